//! The whole way to a verdict, simulated: bounds from runs, a measurement, and another one if it was inconclusive.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use snaptax::compare::{Plan, estimate, pilot_for};
use snaptax::gate::{Bounds, judge};
use snaptax::result::{Comparison, Figure, Verdict, Window};

use crate::noise::{Latencies, Noise, empty, normal};

/// Runs that bounds are made from.
pub(crate) const RUNS: usize = 5;

/// A measurement, and the ratio of its rig.
#[derive(Debug)]
pub(crate) struct Measured {
    /// What was measured. Windows are kept only where they bear on the verdict.
    pub(crate) comparison: Comparison,
    /// Logarithm of the rig's true ratio.
    pub(crate) truth: f64,
}

impl Measured {
    /// Whether the interval of throughput contains the rig's own ratio.
    pub(crate) fn covers(&self) -> bool {
        contains(self.comparison.throughput, self.truth)
    }

    /// Whether that of p95 does, of a rig whose latencies differ by as much as its throughput.
    pub(crate) fn covers_p95(&self) -> bool {
        contains(self.comparison.p95_latency, -self.truth)
    }
}

fn contains(figure: Option<Figure>, truth: f64) -> bool {
    figure.is_some_and(|figure| (figure.low.ln()..=figure.high.ln()).contains(&truth))
}

/// Measures fresh rigs: a pilot on the first, then as many rounds on all of them as planned, or as the budget has room for.
pub(crate) fn measure(noise: &Noise, plan: Plan, budget: usize, seed: u64, latencies: Latencies) -> Measured {
    let mut run = noise.run(seed, latencies);
    run.measure(plan.pilot());
    let mut rounds = plan.rounds(&run.windows).min(plan.rigs() * budget);
    while rounds > plan.pilot() && plan.total(rounds) > budget {
        rounds -= 1;
    }
    run.measure(plan.share(rounds, 1));
    let mut truth = run.log_ratio;
    let mut windows = run.windows;
    for rig in 2..=plan.rigs() {
        let mut run = noise.run(seed ^ (rig as u64) << 56, latencies);
        run.measure(plan.share(rounds, rig));
        let before = windows.len() / 2;
        windows.extend(run.windows.into_iter().map(|window| Window {
            rig,
            round: before + window.round,
            ..window
        }));
        truth += run.log_ratio;
    }
    truth /= plan.rigs() as f64;
    let estimates = estimate(&windows, plan.pilot());
    for window in &mut windows {
        window.latencies = empty();
    }
    // Windows matter to a verdict only where rounds are correlated.
    if snaptax::compare::correlation(&windows).is_none_or(|found| !found.is_significant()) {
        windows.clear();
    }
    let comparison = Comparison {
        throughput: estimates.throughput,
        mean_latency: estimates.mean_latency,
        p95_latency: estimates.p95_latency,
        rounds: estimates.rounds,
        target_half_width: plan.half_width(),
        windows,
        ..Comparison::default()
    };
    Measured { comparison, truth }
}

/// Measurements on rigs that do not differ, some as long as planned and some of double length. Whatever differs
/// between rigs, and what the code under test loses, multiplies the ratio of a whole run, so that it can be added
/// later: one pool serves for all of them.
#[derive(Debug)]
pub(crate) struct Pool {
    first: Vec<Measured>,
    again: Vec<Measured>,
}

impl Pool {
    /// A pool of so many measurements of either length, of at most `budget` rounds and twice as many.
    pub(crate) fn new(
        noise: &Noise,
        (half_width, rigs): (f64, usize),
        budget: usize,
        size: usize,
        seed: u64,
        latencies: Latencies,
    ) -> Self {
        let plan = Plan::new(half_width, pilot_for(half_width)).on_rigs(rigs);
        let noise = Noise {
            ratio_sd: 0.0,
            p95_run_sd: 0.0,
            ..*noise
        };
        let of = |plan, rounds, salt: u64| {
            (0..size as u64)
                .map(|i| {
                    measure(
                        &noise,
                        plan,
                        rounds,
                        seed.wrapping_mul(1 << 32) + 2 * i + salt,
                        latencies,
                    )
                })
                .collect()
        };
        Self {
            first: of(plan, budget, 0),
            again: of(plan.doubled(), 2 * budget, 1),
        }
    }

    /// The measurements as long as planned.
    pub(crate) fn first(&self) -> &[Measured] {
        &self.first
    }
}

/// What differs from rig to rig, as standard deviations of logarithms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rigs {
    /// Of the throughput ratio.
    pub(crate) ratio_sd: f64,
    /// Of the p95 latency ratio, beside what follows from throughput.
    pub(crate) p95_sd: f64,
    /// Rigs of a measurement, whose mean differs by less.
    pub(crate) number: usize,
}

/// How often what happens.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Processes.
    pub(crate) total: usize,
    /// Those with a failing verdict.
    pub(crate) fails: usize,
    /// Those with the verdict `Worse`.
    pub(crate) worse: usize,
    /// Those that took a second measurement.
    pub(crate) again: usize,
    /// Fails in which throughput alone would have passed.
    pub(crate) by_p95: usize,
    /// Sum of the distances, in logs, of the bounds of throughput from their middle.
    pub(crate) width: f64,
}

/// Goes the whole way `count` times; the code under test loses the share `loss` of the throughput with.
pub(crate) fn tally(pool: &mut Pool, rigs: Rigs, loss: f64, count: usize, seed: u64) -> Tally {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    let loss = (1.0 - loss).ln();
    for _ in 0..count {
        let drawn = rand::seq::index::sample(&mut rng, pool.first.len(), RUNS + 1);
        let calibration: Vec<Comparison> = (0..RUNS)
            .map(|i| {
                let (from, shift) = (&pool.first[drawn.index(i)].comparison, Shift::of(rigs, 0.0, &mut rng));
                Comparison {
                    throughput: from.throughput.map(|figure| moved(figure, shift.throughput)),
                    p95_latency: from.p95_latency.map(|figure| moved(figure, shift.p95)),
                    rounds: from.rounds,
                    target_half_width: from.target_half_width,
                    ..Comparison::default()
                }
            })
            .collect();
        let Some(bounds) = Bounds::from_runs(&calibration) else {
            continue;
        };
        tally.width += (bounds.throughput.high / bounds.throughput.low).ln() / 2.0;
        let first = &mut pool.first[drawn.index(RUNS)].comparison;
        let mut verdict = judged(first, &Shift::of(rigs, loss, &mut rng), &bounds);
        if verdict.0 == Verdict::Inconclusive {
            tally.again += 1;
            let size = pool.again.len();
            let again = &mut pool.again[rng.random_range(0..size)].comparison;
            verdict = judged(again, &Shift::of(rigs, loss, &mut rng), &bounds);
        }
        tally.total += 1;
        tally.fails += usize::from(!verdict.0.passes());
        tally.worse += usize::from(verdict.0 == Verdict::Worse);
        tally.by_p95 += usize::from(!verdict.0.passes() && verdict.1);
    }
    tally
}

struct Shift {
    throughput: f64,
    p95: f64,
}

impl Shift {
    fn of(rigs: Rigs, loss: f64, rng: &mut StdRng) -> Self {
        let mean = (rigs.number as f64).sqrt().recip();
        let throughput = mean * rigs.ratio_sd * normal(rng) + loss;
        Self {
            throughput,
            p95: mean * rigs.p95_sd * normal(rng) - throughput,
        }
    }
}

/// The verdict on a measurement moved by `shift`, and whether p95 made it.
fn judged(comparison: &mut Comparison, shift: &Shift, bounds: &Bounds) -> (Verdict, bool) {
    let (throughput, p95) = (comparison.throughput, comparison.p95_latency);
    comparison.throughput = throughput.map(|figure| moved(figure, shift.throughput));
    comparison.p95_latency = p95.map(|figure| moved(figure, shift.p95));
    let verdict = judge(comparison, bounds).0;
    let mut by_p95 = false;
    if !verdict.passes() {
        comparison.p95_latency = None;
        by_p95 = judge(comparison, bounds).0.passes();
    }
    comparison.throughput = throughput;
    comparison.p95_latency = p95;
    (verdict, by_p95)
}

fn moved(figure: Figure, by: f64) -> Figure {
    let factor = by.exp();
    Figure {
        ratio: figure.ratio * factor,
        low: figure.low * factor,
        high: figure.high * factor,
        ..figure
    }
}
