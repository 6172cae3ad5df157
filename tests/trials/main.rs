//! What the method is held to, on a real server: hours of measuring, so it is no part of the ordinary run.
//!
//! ```sh
//! cargo experiments --test trials --timeout 120 a_side_compared_with_itself -- --nocapture
//! ```
//!
//! Each trial makes ten comparisons on one rig, prints them, and leaves them in `results.json`; but that of several rigs,
//! which takes four minutes.
#![expect(clippy::unwrap_used)]

mod regressions;
mod rigs;

use std::time::Duration;

use snaptax::bench::bench;
use snaptax::gate::{Bounds, judge};
use snaptax::prelude::*;
use snaptax::report::json;
use snaptax::result::{Comparison, Figure, Record};
use snaptax::settings::Settings;

/// Comparisons of a trial.
const COMPARISONS: usize = 10;

/// Both sides are the same, so none of the comparisons may fail bounds as narrow as are ever proposed.
#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_side_compared_with_itself() {
    let comparisons = bench()
        .load(Oltp::sysbench_0_4().rows(300_000).threads(16).uniform())
        .window(Duration::from_secs(10))
        .measure_times(COMPARISONS)
        .unwrap();
    let bounds = bounds_around(1.0, 1.1);
    let records = judged("a_side_compared_with_itself", comparisons, &bounds);
    let failed = records.iter().filter(|record| !record.verdict.passes()).count();
    assert_eq!((records.len(), failed), (COMPARISONS, 0));
}

/// Bounds for the throughput ratio alone.
fn bounds_around(ratio: f64, factor: f64) -> Bounds {
    let (low, high) = (ratio / factor, ratio * factor);
    Bounds::parse(&format!("throughput: {{low: {low:.3}, high: {high:.3}}}")).unwrap()
}

/// Judges every comparison, prints what it found on one line, and keeps it.
fn judged(name: &str, comparisons: Vec<Comparison>, bounds: &Bounds) -> Vec<Record> {
    let output = json::output_directory(Settings::from_env().unwrap().output.as_deref());
    let mut records = Vec::new();
    for (number, mut comparison) in (1..).zip(comparisons) {
        comparison.name = format!("{name}_{number}");
        let (verdict, reason) = judge(&comparison, bounds);
        let figure = |figure: Option<Figure>| {
            figure.map_or("-".to_owned(), |Figure { ratio, low, high, .. }| {
                format!("{ratio:.3} ({low:.3} to {high:.3})")
            })
        };
        println!(
            "{number}: {verdict:?}, throughput {}, p95 {}, {} rounds: {reason}",
            figure(comparison.throughput),
            figure(comparison.p95_latency),
            comparison.rounds
        );
        let record = Record {
            verdict,
            reason,
            bounds: None,
            comparison,
        };
        json::append(&output, &record).unwrap();
        records.push(record);
    }
    say_spread(&records);
    records
}

/// How a trial's log-ratios scatter.
fn say_spread(records: &[Record]) {
    let ratios: Vec<f64> = records
        .iter()
        .filter_map(|record| Some(record.comparison.throughput?.ratio.ln()))
        .collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    let deviation = (squares / (ratios.len() - 1) as f64).sqrt();
    println!("log-ratios: mean {mean:.3}, standard deviation {deviation:.3}");
}
