//! The noise model's values, from windows of real runs.

use snaptax::result::Side;
use statrs::distribution::{ChiSquared, ContinuousCDF, StudentsT};

use crate::data::Measured;
use crate::noise::{Noise, STATEMENTS, Z95};

/// Stalls that are assumed even if none are in the data: one window in 50 loses 10 to 30 %. Those that are in the data
/// make the windows' standard deviation larger, too, so that they count twice.
const STALL_CHANCE: f64 = 0.02;
const STALL_LOSS: (f64, f64) = (0.10, 0.30);

/// Robust standard deviations below which a window counts as stalled.
const STALLED: f64 = 3.0;

/// Parameters of a run's regression: level, ratio, drift.
const PARAMETERS: f64 = 3.0;

/// The fitted model, and what the fit is worth.
#[derive(Debug)]
pub(crate) struct Fit {
    /// The model.
    pub(crate) noise: Noise,
    /// Runs.
    pub(crate) runs: usize,
    /// Windows.
    pub(crate) windows: usize,
    /// Windows that stalled.
    pub(crate) stalled: usize,
    /// The standard error of `phi`.
    pub(crate) phi_error: f64,
    /// 95 % interval of `ratio_sd`.
    pub(crate) ratio_sd: (f64, f64),
}

/// A run by least squares: ln(rate) = level + ratio * with + drift * (window - middle) + residual.
struct Line {
    level: f64,
    ratio: f64,
    drift: f64,
    /// Residuals of the windows, in order, with their sides.
    residuals: Vec<(Side, f64)>,
}

/// Fits the model; `None` with fewer than two runs of at least four windows.
pub(crate) fn fit(runs: &[Measured]) -> Option<Fit> {
    let lines: Vec<Line> = runs.iter().filter_map(line).collect();
    if lines.len() < 2 || lines.len() < runs.len() {
        return None;
    }
    let windows: usize = lines.iter().map(|line| line.residuals.len()).sum();
    let per_run = windows as f64 / lines.len() as f64;
    let freedom = (per_run - PARAMETERS) / per_run;
    let of_side = |side| {
        let all = lines.iter().flat_map(|line| &line.residuals);
        let squares: Vec<f64> = all.filter(|(s, _)| *s == side).map(|(_, e)| e * e).collect();
        (mean(&squares) / freedom).sqrt()
    };
    let (without_sd, with_sd) = (of_side(Side::Without), of_side(Side::With));
    let standardised: Vec<Vec<f64>> = lines
        .iter()
        .map(|line| {
            let sd = |side| if side == Side::With { with_sd } else { without_sd };
            line.residuals.iter().map(|(side, e)| e / sd(*side)).collect()
        })
        .collect();
    let phi = phi(&standardised);

    // What the windows' scatter leaves in a run's mean ratio and drift.
    let window_variance = (without_sd.powi(2) + with_sd.powi(2)) / 2.0;
    let of_ratio = window_variance * 4.0 / per_run * (1.0 - phi);
    let of_drift = window_variance * 12.0 / per_run.powi(3);
    let of_level = window_variance * 2.0 / per_run;
    let ratios: Vec<f64> = lines.iter().map(|line| line.ratio).collect();
    let levels: Vec<f64> = lines.iter().map(|line| line.level).collect();
    let drifts: Vec<f64> = lines.iter().map(|line| line.drift).collect();
    let beyond = |total: f64, within: f64| (total - within).max(0.0).sqrt();
    let ratio_interval = variance_interval(&ratios)?;

    let stalled = stalled(&standardised);
    let rate = mean(&levels).exp();
    let first = &runs.first()?.run;
    let threads = f64::from(first.threads);
    let latency = latency(runs, &lines, threads, window_variance);
    let noise = Noise {
        rate,
        log_ratio: mean(&ratios),
        seconds: mean(
            &runs
                .iter()
                .flat_map(|run| &run.windows)
                .map(|window| window.seconds)
                .collect::<Vec<_>>(),
        ),
        threads,
        level_sd: beyond(variance(&levels), of_level),
        ratio_sd: beyond(variance(&ratios), of_ratio),
        without_sd,
        with_sd,
        phi: phi.clamp(0.0, 0.9),
        drift_sd: beyond(variance(&drifts), of_drift),
        stall_chance: STALL_CHANCE.max(stalled as f64 / windows as f64),
        stall_loss: STALL_LOSS,
        latency_sd: latency.0,
        p95_run_sd: latency.1,
        p95_window_sd: latency.2,
    };
    Some(Fit {
        noise,
        runs: lines.len(),
        windows,
        stalled,
        phi_error: 1.0 / (windows as f64 * freedom).sqrt(),
        ratio_sd: (beyond(ratio_interval.0, of_ratio), beyond(ratio_interval.1, of_ratio)),
    })
}

fn line(run: &Measured) -> Option<Line> {
    let windows = &run.windows;
    let n = windows.len() as f64;
    if n <= PARAMETERS {
        return None;
    }
    let y: Vec<f64> = windows.iter().map(|w| (w.statements as f64 / w.seconds).ln()).collect();
    let with: Vec<f64> = windows.iter().map(|w| f64::from(w.side == Side::With)).collect();
    let time: Vec<f64> = (0..windows.len()).map(|i| i as f64 - (n - 1.0) / 2.0).collect();
    // Two regressors beside the level: normal equations of the centred columns.
    let centred = |values: &[f64]| {
        let middle = mean(values);
        values.iter().map(|value| value - middle).collect::<Vec<_>>()
    };
    let (x1, x2, yc) = (centred(&with), centred(&time), centred(&y));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (a, b, c) = (dot(&x1, &x1), dot(&x1, &x2), dot(&x2, &x2));
    let determinant = a * c - b * b;
    let (p, q) = (dot(&x1, &yc), dot(&x2, &yc));
    let (ratio, drift) = ((p * c - q * b) / determinant, (a * q - b * p) / determinant);
    let level = mean(&y) - ratio * mean(&with);
    let residual = |i: usize| y[i] - level - ratio * with[i] - drift * time[i];
    (ratio.is_finite() && drift.is_finite()).then(|| Line {
        level,
        ratio,
        drift,
        residuals: windows.iter().enumerate().map(|(i, w)| (w.side, residual(i))).collect(),
    })
}

/// The correlation of neighbours. Residuals of a regression are correlated even if the windows are not, by about
/// -parameters / n, which is added back.
fn phi(runs: &[Vec<f64>]) -> f64 {
    let products: f64 = runs
        .iter()
        .flat_map(|run| run.windows(2))
        .map(|pair| pair[0] * pair[1])
        .sum();
    let squares: f64 = runs.iter().flatten().map(|e| e * e).sum();
    let n = runs.iter().map(Vec::len).sum::<usize>() as f64 / runs.len() as f64;
    products / squares + PARAMETERS / n
}

fn stalled(runs: &[Vec<f64>]) -> usize {
    let all: Vec<f64> = runs.iter().flatten().copied().collect();
    let robust = 1.4826 * median(&all.iter().map(|e| e.abs()).collect::<Vec<_>>());
    all.iter().filter(|e| **e < -STALLED * robust).count()
}

/// The standard deviation of latencies, that of p95 / mean between runs, and that between windows.
fn latency(runs: &[Measured], lines: &[Line], threads: f64, window_variance: f64) -> (f64, f64, f64) {
    let mut shapes = Vec::new();
    let (mut excess, mut errors, mut sampling) = (Vec::new(), Vec::new(), Vec::new());
    let mut rounds = Vec::new();
    for (run, line) in runs.iter().zip(lines) {
        let Some(p95) = run.run.p95_latency else { continue };
        let mean_latency = |rate: f64| 1000.0 * threads * STATEMENTS / rate;
        shapes.push((p95.without / mean_latency(line.level.exp())).ln());
        shapes.push((p95.with / mean_latency((line.level + line.ratio).exp())).ln());
        excess.push(p95.ratio.ln() + line.ratio);
        let n = run.windows.len() as f64 / 2.0;
        let t = StudentsT::new(0.0, 1.0, n - 1.0).map_or(2.0, |t| t.inverse_cdf(0.975));
        errors.push((p95.half_width() / t).powi(2));
        let of_side = |side| {
            let windows = run.windows.iter().filter(|window| window.side == side);
            0.05 * 0.95 / windows.map(|window| window.transactions as f64).sum::<f64>()
        };
        sampling.push(of_side(Side::Without) + of_side(Side::With));
        rounds.push(n);
    }
    if excess.len() < 2 {
        return (0.5, 0.2, 0.2);
    }
    // Z95 sd - sd^2 / 2 = ln(p95 / mean), the smaller root.
    let sd = Z95 - (Z95 * Z95 - 2.0 * mean(&shapes)).max(0.0).sqrt();
    let density = 0.10314 / sd;
    let of_windows = mean(&errors) - mean(&sampling) / (density * density) - window_variance * 2.0 / mean(&rounds);
    let window = (of_windows * mean(&rounds) / 2.0).max(0.0).sqrt();
    (sd, (variance(&excess) - mean(&errors)).max(0.0).sqrt(), window)
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn variance(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// 95 % interval of the variance that the values were drawn from.
fn variance_interval(values: &[f64]) -> Option<(f64, f64)> {
    let freedom = values.len() as f64 - 1.0;
    let chi = ChiSquared::new(freedom).ok()?;
    let squares = freedom * variance(values);
    Some((squares / chi.inverse_cdf(0.975), squares / chi.inverse_cdf(0.025)))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
