//! How often intervals and verdicts are wrong, quickly and with fixed seeds; `cargo bench --bench verdicts` has the
//! figures.
#![allow(clippy::unwrap_used)]

use data::{Measured, Run, Window};
use fit::fit;
use noise::{Latencies, Noise};
use process::{Pool, Rigs, measure, tally};
use rstest::rstest;
use snaptax::compare::{PILOT, Plan, estimate};
use snaptax::result::{Figure, Verdict};

#[allow(dead_code, reason = "shared with the bench")]
#[path = "../benches/verdicts/data.rs"]
mod data;
#[allow(dead_code, reason = "shared with the bench")]
#[path = "../benches/verdicts/fit.rs"]
mod fit;
#[allow(dead_code, reason = "shared with the bench")]
#[path = "../benches/verdicts/noise.rs"]
mod noise;
#[allow(dead_code, reason = "shared with the bench")]
#[path = "../benches/verdicts/process.rs"]
mod process;

const HALF_WIDTH: f64 = 0.05;

/// About what the windows in `benches/data` have.
const NOISE: Noise = Noise {
    rate: 370.0,
    log_ratio: -0.53,
    seconds: 20.0,
    threads: 16.0,
    level_sd: 0.01,
    ratio_sd: 0.0,
    without_sd: 0.034,
    with_sd: 0.038,
    phi: 0.06,
    drift_sd: 0.001,
    stall_chance: 0.02,
    stall_loss: (0.10, 0.30),
    latency_sd: 0.5,
    p95_run_sd: 0.14,
    p95_window_sd: 0.12,
};

/// The check: of so many measurements, the share in percent whose interval contains the rig's ratio is 93 to 97.
fn covers_as_it_says(measurements: u64, measured: impl Fn(u64) -> (Figure, f64)) -> Result<(), f64> {
    let covered = (0..measurements).filter(|seed| {
        let (figure, truth) = measured(*seed);
        (figure.low.ln()..=figure.high.ln()).contains(&truth)
    });
    let percent = 100.0 * covered.count() as f64 / measurements as f64;
    (93.0..=97.0).contains(&percent).then_some(()).ok_or(percent)
}

#[test]
fn the_interval_covers_with_the_noise_of_real_windows() {
    let plan = Plan::new(HALF_WIDTH, PILOT);
    let checked = covers_as_it_says(400, |seed| {
        let measured = measure(&NOISE, plan, usize::MAX, seed, Latencies::None);
        (measured.comparison.throughput.unwrap(), measured.truth)
    });
    assert_eq!(checked, Ok(()));
}

#[test]
fn stopping_as_soon_as_the_interval_looks_narrow_does_not_pass_the_same_check() {
    let checked = covers_as_it_says(150, |seed| {
        let mut run = NOISE.run(seed, Latencies::None);
        loop {
            run.measure(run.windows.len() / 2 + 2);
            let figure = estimate(&run.windows, usize::MAX).throughput.unwrap();
            if figure.half_width() <= HALF_WIDTH {
                return (figure, run.log_ratio);
            }
        }
    });
    assert!(checked.unwrap_err() < 92.0, "{checked:?}");
}

#[test]
fn unchanged_code_hardly_ever_fails_and_a_loss_of_20_percent_does() {
    let mut pool = Pool::new(&NOISE, (HALF_WIDTH, 1), 32, 40, 1, Latencies::None);
    let rigs = Rigs {
        ratio_sd: 0.02,
        p95_sd: 0.0,
        number: 1,
    };
    let unchanged = tally(&mut pool, rigs, 0.0, 2000, 1);
    assert!(unchanged.fails <= 4, "{unchanged:?}");
    let lost = tally(&mut pool, rigs, 0.20, 400, 2);
    assert!(lost.worse >= 392, "{lost:?}");
}

#[rstest]
#[case::on_one_rig_too_often(1, false)]
#[case::on_six_rigs(6, true)]
fn where_rigs_differ_by_3_percent_a_loss_of_10_percent_is_found(#[case] number: usize, #[case] is_found: bool) {
    let mut pool = Pool::new(&NOISE, (0.03, number), 64, 40, 1, Latencies::None);
    let rigs = Rigs {
        ratio_sd: 0.034,
        p95_sd: 0.0,
        number,
    };
    let lost = tally(&mut pool, rigs, 0.10, 400, 2);
    assert_eq!(lost.worse >= 364, is_found, "{lost:?}");
    let unchanged = tally(&mut pool, rigs, 0.0, 2000, 1);
    assert_eq!(unchanged.fails <= 6, is_found, "{unchanged:?}");
}

#[test]
fn an_interval_half_as_wide_does_not_pass_the_check_either() {
    let plan = Plan::new(HALF_WIDTH, PILOT);
    let checked = covers_as_it_says(150, |seed| {
        let measured = measure(&NOISE, plan, usize::MAX, seed, Latencies::None);
        let figure = measured.comparison.throughput.unwrap();
        let narrow = Figure {
            low: (figure.low * figure.ratio).sqrt(),
            high: (figure.high * figure.ratio).sqrt(),
            ..figure
        };
        (narrow, measured.truth)
    });
    assert!(checked.unwrap_err() < 90.0, "{checked:?}");
}

#[test]
fn a_rig_that_lost_nothing_is_within_bounds_from_its_like() {
    let plan = Plan::new(HALF_WIDTH, PILOT);
    let runs: Vec<_> = (0..6)
        .map(|seed| measure(&NOISE, plan, 32, seed, Latencies::All).comparison)
        .collect();
    let bounds = snaptax::gate::Bounds::from_runs(&runs[..5]).unwrap();
    let (verdict, reason) = snaptax::gate::judge(&runs[5], &bounds);
    assert_eq!(verdict, Verdict::Within, "{reason}");
    assert!(bounds.p95_latency.is_some());
}

#[test]
fn the_fit_finds_the_noise_that_windows_were_made_with() {
    let truth = Noise {
        ratio_sd: 0.03,
        phi: 0.3,
        drift_sd: 0.01,
        stall_chance: 0.0,
        ..NOISE
    };
    let runs: Vec<Measured> = (0..200)
        .map(|seed| {
            let mut run = truth.run(seed, Latencies::None);
            run.measure(6);
            let name = seed.to_string();
            let windows = run.windows.iter().map(|window| Window {
                run: name.clone(),
                round: window.round,
                side: window.side,
                seconds: window.seconds,
                transactions: window.counts.transactions,
                statements: window.counts.statements(),
            });
            Measured {
                windows: windows.collect(),
                run: Run {
                    run: name,
                    experiment: "simulated".into(),
                    threads: 16,
                    p95_latency: None,
                },
            }
        })
        .collect();
    let found = fit(&runs).unwrap().noise;
    let near = |found: f64, truth: f64, by: f64| assert!((found - truth).abs() < by, "{found} is not {truth}");
    near(found.without_sd, truth.without_sd, 0.004);
    near(found.with_sd, truth.with_sd, 0.004);
    near(found.phi, truth.phi, 0.08);
    near(found.drift_sd, truth.drift_sd, 0.002);
    near(found.ratio_sd, truth.ratio_sd, 0.005);
    near(found.log_ratio, truth.log_ratio, 0.01);
}
