use hdrhistogram::Histogram;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rstest::rstest;

use super::*;
use crate::result::latency_histogram;

/// Enough statements that counting whole ones does not show.
const STATEMENTS: f64 = 1e9;

fn window(round: usize, side: Side, rate: f64) -> Window {
    let transactions = (STATEMENTS * rate / 21.0).round() as u64;
    let counts = Counts {
        transactions,
        reads: 14 * transactions,
        writes: 5 * transactions,
        other: 2 * transactions,
        deadlocks: 0,
    };
    // Small: simulations make very many of them.
    let latencies = Histogram::new_with_bounds(1, 2, 1).unwrap();
    Window::new(round, side, 60.0, counts, latencies)
}

/// Rounds with these log-ratios.
pub(super) fn rounds_of(ratios: &[f64]) -> Vec<Window> {
    let round = |(index, ratio): (usize, &f64)| {
        let round = index + 1;
        [
            window(round, Side::Without, 1.0),
            window(round, Side::With, ratio.exp()),
        ]
    };
    ratios.iter().enumerate().flat_map(round).collect()
}

fn normal(rng: &mut StdRng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

pub(super) fn normals(rng: &mut StdRng, n: usize, mean: f64, sd: f64) -> Vec<f64> {
    (0..n).map(|_| mean + sd * normal(rng)).collect()
}

fn throughput_of(windows: &[Window]) -> Option<Figure> {
    throughput(&pair(windows), PILOT)
}

/// The share of simulated measurements whose interval contains the truth, in percent.
fn coverage(runs: u64, truth: f64, measure: impl Fn(&mut StdRng) -> Option<Figure>) -> f64 {
    let covered = (0..runs)
        .filter(|seed| {
            let figure = measure(&mut StdRng::seed_from_u64(*seed)).unwrap();
            (figure.low..=figure.high).contains(&truth)
        })
        .count();
    100.0 * covered as f64 / runs as f64
}

#[rstest]
#[case::coarse(0.10, 6)]
#[case::usual(0.05, 8)]
#[case::fine(0.03, 16)]
fn the_pilot_goes_by_the_half_width(#[case] half_width: f64, #[case] rounds: usize) {
    assert_eq!(pilot_for(half_width), rounds);
}

#[rstest]
#[case::coarse(0.10, 1)]
#[case::usual(0.05, 1)]
#[case::no_longer_fine(0.041, 1)]
#[case::just_fine(0.04, 6)]
#[case::fine(0.03, 6)]
fn the_rigs_go_by_the_half_width(#[case] half_width: f64, #[case] rigs: usize) {
    assert_eq!(rigs_for(half_width), rigs);
}

#[rstest]
#[case::one_rig(1, 20, &[20])]
#[case::the_pilot_and_the_least(5, 16, &[16, 4, 4, 4, 4])]
#[case::equal_shares_in_whole_blocks(5, 45, &[16, 10, 10, 10, 10])]
#[case::more_than_the_pilot(2, 50, &[26, 26])]
fn rigs_share_the_rounds(#[case] rigs: usize, #[case] rounds: usize, #[case] shares: &[usize]) {
    let plan = Plan::new(0.03, 16).on_rigs(rigs);
    let found: Vec<usize> = (1..=rigs).map(|rig| plan.share(rounds, rig)).collect();
    assert_eq!(found, shares);
    assert_eq!(plan.total(rounds), shares.iter().sum::<usize>());
    let precision = shares.iter().map(|rounds| 1.0 / *rounds as f64).sum::<f64>() / (rigs * rigs) as f64;
    assert!(precision <= 1.0 / rounds as f64, "as precise as {rounds} rounds on one");
}

/// Rounds of several rigs, one after the other.
fn rigs_of(rigs: &[Vec<f64>]) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for (index, ratios) in rigs.iter().enumerate() {
        let before = windows.len() / 2;
        windows.extend(rounds_of(ratios).into_iter().map(|window| Window {
            rig: index + 1,
            round: before + window.round,
            ..window
        }));
    }
    windows
}

#[test]
fn the_interval_covers_the_mean_of_rigs_that_differ() {
    let plan = Plan::new(0.03, pilot_for(0.03)).on_rigs(5);
    let covered = (0..2000)
        .filter(|seed| {
            let rng = &mut StdRng::seed_from_u64(*seed);
            let levels = normals(rng, 5, 0.7_f64.ln(), 0.05);
            let pilot = normals(rng, plan.pilot(), levels[0], 0.06);
            let rounds = plan.rounds(&rounds_of(&pilot));
            let mut rigs = vec![pilot];
            rigs[0].extend(normals(rng, plan.share(rounds, 1) - plan.pilot(), levels[0], 0.06));
            for rig in 2..=5 {
                rigs.push(normals(rng, plan.share(rounds, rig), levels[rig - 1], 0.06));
            }
            let figure = estimate(&rigs_of(&rigs), plan.pilot()).throughput.unwrap();
            let truth = levels.iter().sum::<f64>() / 5.0;
            (figure.low.ln()..=figure.high.ln()).contains(&truth)
        })
        .count();
    let covered = covered as f64 / 20.0;
    assert!((93.5..97.5).contains(&covered), "{covered} %");
}

#[test]
fn rigs_that_differ_do_not_look_like_rounds_that_follow_from_each_other() {
    let rng = &mut StdRng::seed_from_u64(1);
    let rigs: Vec<Vec<f64>> = [0.0, 0.5].map(|level| normals(rng, 16, level, 0.05)).to_vec();
    let windows = rigs_of(&rigs);
    assert!(!correlation(&windows).unwrap().is_significant());
    let one_rig: Vec<Window> = windows.into_iter().map(|window| Window { rig: 1, ..window }).collect();
    assert!(correlation(&one_rig).unwrap().is_significant());
}

#[rstest]
#[case(0.10)]
#[case(0.05)]
fn the_interval_of_a_pilot_covers_in_95_of_100_measurements(#[case] half_width: f64) {
    let covered = coverage(4000, 0.7, |rng| {
        let rounds = normals(rng, pilot_for(half_width), 0.7_f64.ln(), 0.06);
        throughput(&pair(&rounds_of(&rounds)), rounds.len())
    });
    assert!((94.0..96.0).contains(&covered), "{covered} %");
}

#[rstest]
#[case(0.10, 0.20)]
#[case(0.03, 0.06)]
fn the_interval_after_two_stages_covers_as_well_and_is_as_narrow_as_planned(#[case] half_width: f64, #[case] sd: f64) {
    let plan = Plan::new(half_width, pilot_for(half_width));
    let covered = coverage(3000, 0.7, |rng| {
        let mut ratios = normals(rng, plan.pilot(), 0.7_f64.ln(), sd);
        let rounds = plan.rounds(&rounds_of(&ratios));
        ratios.extend(normals(rng, rounds - plan.pilot(), 0.7_f64.ln(), sd));
        let throughput = throughput(&pair(&rounds_of(&ratios)), plan.pilot());
        assert!(throughput.unwrap().half_width() <= half_width * (1.0 + 1e-6));
        throughput
    });
    assert!((94.0..97.0).contains(&covered), "{covered} %");
}

#[test]
fn a_linear_drift_cancels_in_blocks() {
    let mut windows = Vec::new();
    for round in 1..=PILOT {
        for side in order(round) {
            let drift = (-0.02 * windows.len() as f64).exp();
            let effect = if side == Side::With { 0.8 } else { 1.0 };
            windows.push(window(round, side, drift * effect));
        }
    }
    let throughput = estimate(&windows, PILOT).throughput.unwrap();
    assert!((throughput.ratio - 0.8).abs() < 1e-6, "{throughput:?}");

    windows.retain(|window| window.round < PILOT);
    let odd = estimate(&windows, PILOT).throughput.unwrap();
    assert!(
        (odd.ratio - 0.8).abs() > 1e-3,
        "the drift is there to be cancelled: {odd:?}"
    );
}

#[test]
fn order_is_ab_ba() {
    use Side::{With, Without};
    let windows: Vec<Side> = (1..=4).flat_map(order).collect();
    assert_eq!(windows, [Without, With, With, Without, Without, With, With, Without]);
}

#[rstest]
#[case::quiet(0.001, 8)]
#[case::reached_by_the_pilot(0.0598, 8)]
#[case::a_little_noisier(0.0605, 10)]
#[case::noisy(0.2, 90)]
fn the_number_of_rounds_is_steins(#[case] sd: f64, #[case] rounds: usize) {
    // Alternating values with a sample standard deviation of exactly `sd`.
    let step = sd * (7.0_f64 / 8.0).sqrt();
    let ratios: Vec<f64> = (0..8).map(|i| if i % 2 == 0 { step } else { -step }).collect();
    assert_eq!(Plan::new(0.05, PILOT).rounds(&rounds_of(&ratios)), rounds);
}

#[rstest]
#[case::quiet(0.001, 16)]
#[case::noisy(0.2, 146)]
fn a_second_measurement_has_twice_the_pilot_and_twice_the_rounds(#[case] sd: f64, #[case] expected: usize) {
    // As above, with the t of 15 degrees of freedom in the place of that of 7.
    let step = sd * (15.0_f64 / 16.0).sqrt();
    let ratios: Vec<f64> = (0..16).map(|i| if i % 2 == 0 { step } else { -step }).collect();
    let plan = Plan::new(0.05, PILOT).doubled();
    assert_eq!((plan.pilot(), plan.half_width()), (16, 0.05));
    let rounds = plan.rounds(&rounds_of(&ratios));
    assert_eq!(rounds, expected);
}

#[test]
fn rounds_beyond_the_pilot_do_not_change_the_plan() {
    let mut ratios = vec![0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.02, -0.02];
    let planned = Plan::new(0.01, PILOT).rounds(&rounds_of(&ratios));
    ratios.extend([3.0, -3.0]);
    assert_eq!(Plan::new(0.01, PILOT).rounds(&rounds_of(&ratios)), planned);
}

#[rstest]
#[case(&[])]
#[case(&[0.1])]
fn without_two_pilot_rounds_the_plan_is_the_pilot(#[case] ratios: &[f64]) {
    assert_eq!(Plan::new(0.05, 7).rounds(&rounds_of(ratios)), 8);
}

#[rstest]
#[case::no_windows(vec![], 0)]
#[case::one_round(rounds_of(&[0.1]), 1)]
#[case::no_pairs(vec![window(1, Side::With, 1.0), window(2, Side::With, 1.0)], 0)]
#[case::a_window_without_work([rounds_of(&[0.1, 0.1]), vec![window(3, Side::Without, 1.0), window(3, Side::With, 0.0)]].concat(), 3)]
fn what_the_rounds_do_not_suffice_for_is_not_estimated(#[case] windows: Vec<Window>, #[case] rounds: usize) {
    let expected = Estimates {
        rounds,
        ..Estimates::default()
    };
    assert_eq!(estimate(&windows, PILOT), expected);
}

#[test]
fn both_sides_are_shown_in_transactions_of_the_same_size() {
    let mut windows = rounds_of(&[0.0, 0.0]);
    for window in &mut windows {
        window.counts = Counts {
            transactions: 100,
            reads: 1400,
            writes: 500,
            other: 200,
            deadlocks: 0,
        };
        window.seconds = 10.0;
        if window.side == Side::With {
            // The last transactions were cut by the window's edge: more of each was done than completed.
            window.counts.transactions = 90;
        }
    }
    let throughput = estimate(&windows, PILOT).throughput.unwrap();
    assert!((throughput.ratio - 1.0).abs() < 1e-12);
    assert!((throughput.without - 9.5).abs() < 1e-9 && (throughput.with - 9.5).abs() < 1e-9);
}

/// A window with log-normal latencies around 100 ms x `scale`, shifted as a whole by the round's own noise.
fn latencies(rng: &mut StdRng, round: usize, side: Side, scale: f64, n: usize) -> Window {
    let mut window = window(round, side, 1.0);
    window.latencies = latency_histogram();
    let shift = 0.05 * normal(rng);
    for _ in 0..n {
        let milliseconds = 100.0 * scale * (shift + 0.5 * normal(rng)).exp();
        window.latencies.record((1000.0 * milliseconds) as u64).unwrap();
    }
    window
}

fn latency_rounds(rng: &mut StdRng, rounds: usize, ratio: f64, n: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    for round in 1..=rounds {
        windows.push(latencies(rng, round, Side::Without, 1.0, n));
        windows.push(latencies(rng, round, Side::With, ratio, n));
    }
    windows
}

#[test]
fn the_jackknife_interval_of_p95_covers() {
    let covered = coverage(200, 2.5, |rng| {
        percentile::figure(&pair(&latency_rounds(rng, PILOT, 2.5, 150)), 0.95)
    });
    assert!((92.0..99.0).contains(&covered), "{covered} %");
}

#[test]
fn the_interval_of_mean_latency_covers() {
    let covered = coverage(200, 2.5, |rng| {
        mean_latency(&pair(&latency_rounds(rng, PILOT, 2.5, 150)), PILOT)
    });
    assert!((92.0..98.0).contains(&covered), "{covered} %");
}

#[test]
fn latencies_are_shown_in_milliseconds() {
    let windows = latency_rounds(&mut StdRng::seed_from_u64(1), 8, 2.0, 1000);
    let estimates = estimate(&windows, PILOT);
    let (mean, p95) = (estimates.mean_latency.unwrap(), estimates.p95_latency.unwrap());
    // exp(0.5^2 / 2) and exp(1.645 x 0.5) times 100 ms.
    assert!((mean.without - 113.3).abs() < 5.0, "{mean:?}");
    assert!((p95.without - 227.6).abs() < 15.0, "{p95:?}");
    assert!((p95.with / p95.without - p95.ratio).abs() < 1e-9);
}

#[rstest]
#[case(49, false)]
#[case(50, true)]
fn p95_takes_400_transactions_a_side(#[case] per_round: usize, #[case] estimable: bool) {
    let windows = latency_rounds(&mut StdRng::seed_from_u64(1), 8, 2.0, per_round);
    assert_eq!(estimate(&windows, PILOT).p95_latency.is_some(), estimable);
}

#[rstest]
#[case(6)]
#[case(8)]
#[case(20)]
#[case(60)]
fn independent_rounds_are_hardly_ever_called_correlated(#[case] n: usize) {
    let called = (0..4000)
        .filter(|seed| {
            let ratios = normals(&mut StdRng::seed_from_u64(*seed), n, -0.3, 0.05);
            Correlation::of(&ratios).unwrap().is_significant()
        })
        .count();
    assert!(called <= 8, "{called} of 4000");
}

#[rstest]
#[case(&[0.1, 0.1, 0.1, -0.1, -0.1, -0.1])]
#[case(&[0.1, 0.1, 0.1, 0.1, -0.1, -0.1, -0.1, -0.1])]
fn a_shift_of_level_is_found_even_in_a_pilot(#[case] level: &[f64]) {
    // A smooth shift: the largest correlation that so few rounds can have.
    let n = level.len() as f64 + 1.0;
    let smooth: Vec<f64> = (1..=level.len())
        .map(|round| level[round - 1].abs() * (std::f64::consts::PI * 2.0 * round as f64 / n).sin())
        .collect();
    assert!(correlation(&rounds_of(&smooth)).unwrap().is_significant());
}

#[test]
fn rounds_that_follow_from_each_other_are_found() {
    let found = (0..200)
        .filter(|seed| {
            let mut rng = StdRng::seed_from_u64(*seed);
            let mut level = 0.0;
            let ratios: Vec<f64> = (0..40)
                .map(|_| {
                    level = 0.8 * level + 0.05 * normal(&mut rng);
                    level
                })
                .collect();
            correlation(&rounds_of(&ratios)).unwrap().is_significant()
        })
        .count();
    assert!(found > 180, "{found} of 200");
}

#[rstest]
#[case::too_few(&[0.1, 0.2, 0.3, 0.4, 0.5])]
#[case::no_difference(&[0.0; 12])]
fn correlation_is_not_estimated_from(#[case] ratios: &[f64]) {
    assert_eq!(correlation(&rounds_of(ratios)), None);
}

proptest! {
    #[test]
    fn exchanging_the_sides_turns_ratio_and_interval_round(ratios in prop::collection::vec(-1.0..1.0_f64, 2..20)) {
        let windows = rounds_of(&ratios);
        let mut exchanged = windows.clone();
        for window in &mut exchanged {
            window.side = if window.side == Side::With { Side::Without } else { Side::With };
        }
        let (a, b) = (throughput_of(&windows).unwrap(), throughput_of(&exchanged).unwrap());
        prop_assert!((a.ratio * b.ratio - 1.0).abs() < 1e-9);
        prop_assert!((a.low * b.high - 1.0).abs() < 1e-9);
        prop_assert!((a.without - b.with).abs() < 1e-6 * a.without);
    }

    #[test]
    fn the_unit_of_time_and_the_windows_order_do_not_matter(
        ratios in prop::collection::vec(-1.0..1.0_f64, 2..20),
        factor in 0.1..10.0_f64,
    ) {
        let windows = rounds_of(&ratios);
        let mut changed: Vec<Window> = windows.iter().rev().cloned().collect();
        changed.iter_mut().for_each(|window| window.seconds *= factor);
        let (a, b) = (throughput_of(&windows).unwrap(), throughput_of(&changed).unwrap());
        prop_assert!((a.ratio / b.ratio - 1.0).abs() < 1e-9);
        prop_assert!((a.half_width() - b.half_width()).abs() < 1e-9);
    }

    #[test]
    fn the_planned_number_of_rounds_suffices_and_is_whole_blocks(
        ratios in prop::collection::vec(-0.3..0.3_f64, 8),
        half_width in 0.01..0.3_f64,
    ) {
        let windows = rounds_of(&ratios);
        let rounds = Plan::new(half_width, PILOT).rounds(&windows);
        prop_assert!(rounds >= PILOT && rounds.is_multiple_of(2));
        let reached = throughput_of(&windows).unwrap().half_width() * (8.0 / rounds as f64).sqrt();
        prop_assert!(reached <= half_width * (1.0 + 1e-9));
    }
}

/// `docs/method.md` shows this one by hand.
#[test]
fn the_worked_example_of_the_method_comes_out_as_it_is_written() {
    let statements = [
        (7007, 4520),
        (6982, 4211),
        (6223, 4013),
        (7335, 4082),
        (7526, 3962),
        (7038, 3879),
    ];
    let windows: Vec<Window> = (1..)
        .zip(statements)
        .flat_map(|(round, (without, with))| {
            [(Side::Without, without), (Side::With, with)].map(|(side, statements)| {
                let counts = Counts {
                    transactions: statements / 21,
                    reads: statements,
                    ..Counts::default()
                };
                Window::new(round, side, 20.0, counts, latency_histogram())
            })
        })
        .collect();
    let throughput = estimate(&windows, 6).throughput.unwrap();
    let shown = [throughput.ratio, throughput.low, throughput.high].map(|ratio| format!("{ratio:.3}"));
    assert_eq!(shown, ["0.586", "0.535", "0.642"]);
    assert_eq!(
        (Plan::new(0.10, 6).rounds(&windows), Plan::new(0.05, 6).rounds(&windows)),
        (6, 20)
    );
    assert!((correlation(&windows).unwrap().lag1 - 0.34).abs() < 0.005);
}
