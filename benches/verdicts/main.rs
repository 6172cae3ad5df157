//! How often verdicts are wrong, by simulation with noise like that of real windows.
//!
//! ```sh
//! cargo bench --bench verdicts                                 # one to two minutes on two cores
//! cargo bench --bench verdicts -- --count 1000000              # more of them
//! cargo bench --bench verdicts -- --extract */results.json     # replaces the windows in benches/data
//! ```

mod data;
mod fit;
mod noise;
mod process;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Parser;
use fit::Fit;
use noise::{Latencies, Noise};
use process::{Measured, Pool, Rigs, Tally, tally};
use snaptax::compare::rigs_for;

/// Independent parts of a simulation, each with a pool and seeds of its own; figures scatter over them.
const BATCHES: usize = 20;

/// A half-width, and the loss that is to be found with it.
const SCALES: [(f64, f64); 3] = [(0.03, 0.10), (0.05, 0.20), (0.10, 0.25)];

/// Standard deviations between runs for which the process is simulated, beside the fitted one.
const RUN_SDS: [f64; 7] = [0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04];

/// Simulates how often verdicts are wrong.
#[derive(Debug, Parser)]
struct Arguments {
    /// Simulated processes per figure: bounds from five runs, a measurement, another one if it was inconclusive
    #[arg(long, default_value_t = 100_000)]
    count: usize,
    /// Simulated measurements of either length that these are put together from
    #[arg(long, default_value_t = 6000)]
    measurements: usize,
    /// The experiment whose windows the noise is fitted to
    #[arg(long, default_value = "oltp_under_a_thick_snapshot")]
    experiment: String,
    /// Where the windows are
    #[arg(long, default_value_os_t = data::directory())]
    data: PathBuf,
    /// Rounds that the budget of a measurement with a half-width below 5 % has room for: 64 take an hour; others have
    /// 32, which are the 30 minutes of the default
    #[arg(long, default_value_t = 64)]
    fine_rounds: usize,
    /// Simulates with this correlation of neighbouring windows instead of the fitted one
    #[arg(long)]
    phi: Option<f64>,
    /// Simulates with this standard deviation of p95 / mean latency between runs instead of the fitted one
    #[arg(long)]
    p95_sd: Option<f64>,
    /// The first seed; the batches use it and the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rigs of a measurement, for every half-width, instead of the default
    #[arg(long)]
    rigs: Option<usize>,
    /// Takes windows from these results.json files, writes them to the data directory and ends
    #[arg(long, num_args = 1..)]
    extract: Vec<PathBuf>,
    /// What cargo passes
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if !arguments.extract.is_empty() {
        let runs = data::extract(&arguments.extract, &arguments.data)?;
        println!("{runs} runs are in {}", arguments.data.display());
        return Ok(());
    }
    let runs = data::read(&arguments.data, &arguments.experiment)?;
    let fit = fit::fit(&runs).ok_or("the noise cannot be fitted: it takes two runs of four windows at least")?;
    show_fit(&arguments.experiment, &fit);
    let noise = Noise {
        phi: arguments.phi.unwrap_or(fit.noise.phi),
        p95_run_sd: arguments.p95_sd.unwrap_or(fit.noise.p95_run_sd),
        ..fit.noise
    };

    let results = simulate(&arguments, &noise);
    println!(
        "{} measurements of either length a row, {} processes a figure for false alarms and a tenth of it for losses; \
         seeds {} to {}",
        arguments.measurements,
        arguments.count,
        arguments.seed,
        arguments.seed + BATCHES as u64 - 1
    );
    for (scale, batches) in SCALES.iter().zip(&results) {
        let rigs = arguments.rigs.unwrap_or(rigs_for(scale.0));
        show(*scale, rigs, batches, &fit);
    }
    Ok(())
}

/// What one batch found for one scale.
#[derive(Debug, Clone)]
struct Batch {
    coverage: f64,
    coverage_p95: f64,
    rounds: f64,
    half_width_p95: f64,
    /// For each standard deviation between runs: on unchanged code, and with the loss.
    tallies: Vec<(Tally, Tally)>,
}

/// All batches of all scales, on all processors.
fn simulate(arguments: &Arguments, noise: &Noise) -> Vec<Vec<Batch>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let item = next.fetch_add(1, Ordering::Relaxed);
                    if item >= SCALES.len() * BATCHES {
                        break;
                    }
                    let (scale, number) = (item / BATCHES, item % BATCHES);
                    let batch = batch(arguments, noise, SCALES[scale], arguments.seed + number as u64);
                    if let Ok(mut found) = found.lock() {
                        found.push((scale, number, batch));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(scale, number, _)| (*scale, *number));
    let of = |scale: usize| found.iter().filter(move |(s, ..)| *s == scale);
    (0..SCALES.len())
        .map(|scale| of(scale).map(|(.., batch)| batch.clone()).collect())
        .collect()
}

fn batch(arguments: &Arguments, noise: &Noise, (half_width, loss): (f64, f64), seed: u64) -> Batch {
    let size = (arguments.measurements / BATCHES).max(20);
    let count = (arguments.count / BATCHES).max(10);
    let budget = if half_width < 0.05 { arguments.fine_rounds } else { 32 };
    let number = arguments.rigs.unwrap_or(rigs_for(half_width));
    let mut pool = Pool::new(noise, (half_width, number), budget, size, seed, Latencies::All);
    let share = |what: &dyn Fn(&Measured) -> f64| pool.first().iter().map(what).sum::<f64>() / size as f64;
    let p95 = |measured: &Measured| {
        measured
            .comparison
            .p95_latency
            .map_or(0.0, |figure| figure.half_width())
    };
    let (coverage, coverage_p95) = (
        share(&|measured| f64::from(measured.covers())),
        share(&|measured| f64::from(measured.covers_p95())),
    );
    let (rounds, half_width_p95) = (share(&|measured| measured.comparison.rounds as f64), share(&p95));
    let tallies = RUN_SDS.iter().chain([&noise.ratio_sd]).map(|ratio_sd| {
        let rigs = Rigs {
            ratio_sd: *ratio_sd,
            p95_sd: noise.p95_run_sd,
            number,
        };
        let unchanged = tally(&mut pool, rigs, 0.0, count, seed);
        (unchanged, tally(&mut pool, rigs, loss, count / 10, seed + 1000))
    });
    let tallies = tallies.collect();
    Batch {
        coverage,
        coverage_p95,
        rounds,
        half_width_p95,
        tallies,
    }
}

fn show_fit(experiment: &str, fit: &Fit) {
    let noise = &fit.noise;
    let percent = |sd: f64| format!("{:.1} %", 100.0 * sd);
    println!(
        "{experiment}: {} runs, {} windows of {:.0} s",
        fit.runs, fit.windows, noise.seconds
    );
    let rows = [
        ("statements/s without", format!("{:.0}", noise.rate)),
        ("ratio", format!("{:.3}", noise.log_ratio.exp())),
        ("SD of a window, without", percent(noise.without_sd)),
        ("SD of a window, with", percent(noise.with_sd)),
        (
            "correlation of neighbouring windows",
            format!("{:.2} +- {:.2}", noise.phi, fit.phi_error),
        ),
        (
            "stalled windows",
            format!(
                "{} found, {} assumed to lose 10 to 30 %",
                fit.stalled,
                percent(noise.stall_chance)
            ),
        ),
        (
            "SD of drift between runs, per window",
            format!("{:.2} %", 100.0 * noise.drift_sd),
        ),
        ("SD of the level between runs", percent(noise.level_sd)),
        (
            "SD of the ratio between runs",
            format!(
                "{} (95 % interval {} to {})",
                percent(noise.ratio_sd),
                percent(fit.ratio_sd.0),
                percent(fit.ratio_sd.1)
            ),
        ),
        ("SD of log latencies", format!("{:.2}", noise.latency_sd)),
        ("SD of p95 / mean latency between windows", percent(noise.p95_window_sd)),
        ("the same between runs, with", percent(noise.p95_run_sd)),
    ];
    for (name, value) in rows {
        println!("  {name:<42}{value}");
    }
    println!();
}

fn show((half_width, loss): (f64, f64), rigs: usize, batches: &[Batch], fit: &Fit) {
    let figure = |value: &dyn Fn(&Batch) -> f64| {
        let values: Vec<f64> = batches.iter().map(value).collect();
        (
            fit::mean(&values),
            (fit::variance(&values) / values.len() as f64).sqrt(),
        )
    };
    let percent = |(value, error): (f64, f64), digits: usize| {
        format!("{:.digits$} % +- {:.digits$}", 100.0 * value, 100.0 * error)
    };
    println!(
        "\nhalf-width {:.0} %, loss {:.0} %, on {} rigs",
        100.0 * half_width,
        100.0 * loss,
        rigs
    );
    println!(
        "  interval covers: throughput {}, p95 {}; {:.1} rounds; half-width of p95 {:.1} %",
        percent(figure(&|batch| batch.coverage), 1),
        percent(figure(&|batch| batch.coverage_p95), 1),
        figure(&|batch| batch.rounds).0,
        100.0 * figure(&|batch| batch.half_width_p95).0
    );
    println!("  SD of runs   bounds -+   measured again   false alarms        by p95 alone        loss found");
    for (index, ratio_sd) in RUN_SDS.iter().chain([&fit.noise.ratio_sd]).enumerate() {
        let unchanged = |value: fn(&Tally) -> f64| {
            figure(&|batch| value(&batch.tallies[index].0) / batch.tallies[index].0.total as f64)
        };
        let found = figure(&|batch| batch.tallies[index].1.worse as f64 / batch.tallies[index].1.total as f64);
        println!(
            "  {:<13}{:<12}{:<17}{:<20}{:<20}{}{}",
            format!("{:.1} %", 100.0 * ratio_sd),
            format!("{:.1} %", 100.0 * unchanged(|tally| tally.width).0),
            format!("{:.0} %", 100.0 * unchanged(|tally| tally.again as f64).0),
            percent(unchanged(|tally| tally.fails as f64), 3),
            percent(unchanged(|tally| tally.by_p95 as f64), 3),
            percent(found, 1),
            if index == RUN_SDS.len() { "   (fitted)" } else { "" }
        );
    }
}
