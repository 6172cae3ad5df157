//! Windows that are short beside the latencies in them.

use std::fmt;

use crate::result::{Comparison, Side};

/// Mean latencies that a window must be long. Its latencies are those of transactions that end in it, and those of the
/// first one had begun before it, perhaps on the other side.
const LEAST_LATENCIES: f64 = 10.0;

/// The windows of a side that are too short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Short {
    seconds: f64,
    latencies: f64,
}

/// Whether the windows of a side are too short for its latencies.
///
/// A side is looked at as a whole: a window in which the server stalls is not too short, it is what was to be measured.
pub(crate) fn short(comparison: &Comparison, side: Side) -> Option<Short> {
    let transactions = comparison.mean(side, |window| Some(window.counts.transactions as f64))?;
    // The mean latency of a closed loop is threads / throughput.
    let latencies = transactions / f64::from(comparison.load.threads);
    (latencies < LEAST_LATENCIES).then_some(Short {
        seconds: comparison.load.window_seconds,
        latencies,
    })
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, latencies } = self;
        write!(
            f,
            "windows of {seconds:.0} s are only {:.1} mean latencies long, {LEAST_LATENCIES} are needed; set SNAPTAX_TIME to \
             {:.0} or more, or use fewer threads (SNAPTAX_THREADS)",
            (10.0 * latencies).floor() / 10.0,
            (1.5 * seconds * LEAST_LATENCIES / latencies.max(0.1)).ceil()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Counts, Window, latency_histogram};
    use rstest::rstest;

    #[rstest]
    #[case::ten_latencies(&[160, 160], None)]
    #[case::fewer(&[159, 160], Some("windows of 20 s are only 9.9 mean latencies long, 10 are needed; set SNAPTAX_TIME to 31"))]
    #[case::half_as_many(&[80, 80], Some("windows of 20 s are only 5.0 mean latencies long, 10 are needed; set SNAPTAX_TIME to 60"))]
    #[case::one_that_stalls(&[90, 240], None)]
    #[case::no_windows(&[], None)]
    fn windows_of_fewer_than_ten_mean_latencies_are_short(
        #[case] transactions: &[u64],
        #[case] begins: Option<&str>,
        #[values(Side::Without, Side::With)] side: Side,
    ) {
        let window = |transactions| {
            let counts = Counts {
                transactions,
                ..Counts::default()
            };
            Window::new(1, side, 20.0, counts, latency_histogram())
        };
        let mut comparison = Comparison {
            windows: transactions.iter().copied().map(window).collect(),
            ..Comparison::default()
        };
        comparison.load.threads = 16;
        comparison.load.window_seconds = 20.0;
        let found = short(&comparison, side).map(|short| short.to_string());
        assert_eq!(found.is_some(), begins.is_some(), "{found:?}");
        assert!(found.is_none_or(|found| found.starts_with(begins.unwrap())));
    }
}
