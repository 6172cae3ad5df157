//! From windows to ratios with intervals.
//!
//! A round is one window on each side; its log-ratio, ln(with / without), is the observation. Rounds come in
//! blocks AB BA ([`order`]), so that a linear drift of the machine cancels. How many of them are measured is
//! decided once, after a pilot ([`Plan`]): stopping as soon as an interval looks narrow covers far less than
//! it says (C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the
//! variance", Annals of Mathematical Statistics 16, 1945).
//!
//! ```
//! use snaptax::compare::{PILOT, Plan, estimate, order};
//! use snaptax::result::{Counts, Side, Window, latency_histogram};
//!
//! let plan = Plan::new(0.05, PILOT);
//! let mut windows = Vec::new();
//! for round in 1..=plan.pilot() {
//!     for side in order(round) {
//!         let transactions = if side == Side::Without { 800 } else { 350 };
//!         let counts = Counts { transactions, reads: 14 * transactions, writes: 5 * transactions,
//!             other: 2 * transactions, deadlocks: 0 };
//!         windows.push(Window::new(round, side, 10.0, counts, latency_histogram()));
//!     }
//! }
//! assert_eq!(plan.rounds(&windows), 8);
//! let throughput = estimate(&windows, plan.pilot()).throughput.ok_or("not estimable")?;
//! assert_eq!((throughput.without, throughput.with), (80.0, 35.0));
//! assert!((throughput.ratio - 0.4375).abs() < 1e-9);
//! # Ok::<(), &str>(())
//! ```

mod change;
mod correlation;
mod interval;
mod outlier;
mod percentile;
mod plan;
mod rounds;
mod short;

pub use change::changes;
pub use correlation::Correlation;
pub use outlier::{Outlier, outliers};
pub use plan::{PILOT, Plan, order, pilot_for, rigs_for};

use crate::result::{Counts, Figure, Side, Window};
use interval::Interval;
use rounds::{Round, by_rig, log_ratios, pair};
pub(crate) use short::short;

/// What the rounds say. A figure that they do not suffice for is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimates {
    /// Throughput in transactions per second; at least 2 rounds.
    ///
    /// The ratio and its interval come from *statements* per second: a transaction cut by a window's edge
    /// still counts for what was done of it. The two sides are shown as transactions per second, which is
    /// statements per second divided by the statements per transaction of both sides together.
    pub throughput: Option<Figure>,
    /// Mean latency in milliseconds; at least 2 rounds.
    pub mean_latency: Option<Figure>,
    /// 95th percentile of latency in milliseconds, from the merged histograms of a side; at least 2 rounds
    /// and 400 transactions a side, so that 20 are beyond it.
    pub p95_latency: Option<Figure>,
    /// Complete rounds: those with a window on each side.
    pub rounds: usize,
}

/// Estimates every figure from complete rounds, the first `pilot` of which were the pilot.
///
/// Where they are of several rigs, the ratios of throughput and mean latency are (geometric) means of the rigs' means, and
/// their intervals say how precisely those are known *on these rigs*; what rigs differ by belongs to the bounds.
///
/// With more rounds than the pilot's, intervals of throughput and mean latency keep the pilot's standard
/// deviation and degrees of freedom, as Stein's method demands; that holds for any number of rounds chosen
/// after the pilot without a further look at the data, so a time budget may cut [`Plan::rounds`] short.
#[must_use]
pub fn estimate(windows: &[Window], pilot: usize) -> Estimates {
    let rounds = pair(windows);
    Estimates {
        throughput: throughput(&rounds, pilot),
        mean_latency: mean_latency(&rounds, pilot),
        p95_latency: percentile::figure(&rounds, 0.95),
        rounds: rounds.len(),
    }
}

/// The lag-1 correlation of the rounds' throughput log-ratios, on the rig with most of them; `None` with fewer than 6
/// rounds, or when they do not differ at all.
#[must_use]
pub fn correlation(windows: &[Window]) -> Option<Correlation> {
    let rounds = pair(windows);
    let rigs = by_rig(&rounds, &log_ratios(&rounds, statement_rate)?);
    // Of as many rounds the first rig's, which has the pilot.
    let longest = rigs.iter().rev().max_by_key(|ratios| ratios.len())?;
    Correlation::of(longest)
}

fn throughput(rounds: &[Round<'_>], pilot: usize) -> Option<Figure> {
    let ratios = log_ratios(rounds, statement_rate)?;
    let interval = Interval::student(&by_rig(rounds, &ratios), pilot)?;
    let total = |side| {
        rounds.iter().fold((Counts::default(), 0.0), |(sum, seconds), round| {
            let window = round.window(side);
            (add(sum, window.counts), seconds + window.seconds)
        })
    };
    let (without, with) = (total(Side::Without), total(Side::With));
    let both = add(without.0, with.0);
    if both.transactions == 0 {
        return None;
    }
    let per_transaction = both.statements() as f64 / both.transactions as f64;
    let rate = |(counts, seconds): (Counts, f64)| counts.statements() as f64 / seconds / per_transaction;
    Some(interval.figure(rate(without), rate(with)))
}

fn mean_latency(rounds: &[Round<'_>], pilot: usize) -> Option<Figure> {
    let ratios = log_ratios(rounds, |window| window.latencies.mean())?;
    let interval = Interval::student(&by_rig(rounds, &ratios), pilot)?;
    let mean = |side| percentile::merged(rounds, side).map(|latencies| latencies.mean() / 1000.0);
    Some(interval.figure(mean(Side::Without)?, mean(Side::With)?))
}

fn statement_rate(window: &Window) -> f64 {
    window.counts.statements() as f64 / window.seconds
}

fn add(a: Counts, b: Counts) -> Counts {
    Counts {
        transactions: a.transactions + b.transactions,
        reads: a.reads + b.reads,
        writes: a.writes + b.writes,
        other: a.other + b.other,
        deadlocks: a.deadlocks + b.deadlocks,
    }
}

#[cfg(test)]
mod tests;
