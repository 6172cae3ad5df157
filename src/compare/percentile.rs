//! Percentiles of latency, with a jackknife over rounds.

use hdrhistogram::Histogram;

use super::interval::{Interval, mean, t_quantile};
use super::rounds::Round;
use crate::result::{Figure, Side, latency_histogram};

/// Transactions beyond a percentile that it takes to estimate it.
const FEWEST_EXCEEDANCES: f64 = 20.0;

/// A percentile of the merged histograms of each side, in milliseconds, with the ratio's interval from
/// deleting one round at a time (B. Efron, "The Jackknife, the Bootstrap and Other Resampling Plans", 1982)
/// and Student's t with one degree of freedom less than rounds.
pub(super) fn figure(rounds: &[Round<'_>], quantile: f64) -> Option<Figure> {
    let t = t_quantile(rounds.len().checked_sub(1)?)?;
    let (without, with) = (merged(rounds, Side::Without)?, merged(rounds, Side::With)?);
    let exceedances = |histogram: &Histogram<u64>| histogram.len() as f64 * (1.0 - quantile);
    if exceedances(&without).min(exceedances(&with)) < FEWEST_EXCEEDANCES {
        return None;
    }

    let deleted: Option<Vec<f64>> = rounds
        .iter()
        .map(|round| {
            let rest = |all: &Histogram<u64>, side| subtracted(all, &round.window(side).latencies);
            let (without, with) = (rest(&without, Side::Without)?, rest(&with, Side::With)?);
            Some((milliseconds(&with, quantile) / milliseconds(&without, quantile)).ln())
        })
        .collect();
    let deleted = deleted?;
    let centre = mean(&deleted);
    let squares: f64 = deleted.iter().map(|ratio| (ratio - centre).powi(2)).sum();
    let n = deleted.len() as f64;

    let (without, with) = (milliseconds(&without, quantile), milliseconds(&with, quantile));
    let interval = Interval {
        centre: (with / without).ln(),
        half_width: t * ((n - 1.0) / n * squares).sqrt(),
    };
    Some(interval.figure(without, with))
}

/// All latencies of a side; `None` if one of them fits no histogram.
pub(super) fn merged(rounds: &[Round<'_>], side: Side) -> Option<Histogram<u64>> {
    let mut sum = latency_histogram();
    rounds
        .iter()
        .try_for_each(|round| sum.add(&round.window(side).latencies))
        .ok()?;
    Some(sum)
}

/// `all` without `part`; `None` if that leaves nothing.
fn subtracted(all: &Histogram<u64>, part: &Histogram<u64>) -> Option<Histogram<u64>> {
    let mut rest = all.clone();
    rest.subtract(part).ok()?;
    (!rest.is_empty()).then_some(rest)
}

fn milliseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}
