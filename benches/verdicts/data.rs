//! Windows of real runs: one JSON object a line, in `benches/data`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snaptax::result::{Figure, Record, Side};

/// A measurement on a rig of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Its name: the results file it came from.
    pub(crate) run: String,
    /// What was measured; runs of one experiment differ by noise alone.
    pub(crate) experiment: String,
    /// Threads of the load.
    pub(crate) threads: u32,
    /// 95th percentile of latency, as reported.
    pub(crate) p95_latency: Option<Figure>,
}

/// A window of a run, in the order of measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Window {
    /// The run it belongs to.
    pub(crate) run: String,
    /// Its round, from 1.
    pub(crate) round: usize,
    /// Its side.
    pub(crate) side: Side,
    /// Its length in seconds.
    pub(crate) seconds: f64,
    /// Transactions committed.
    pub(crate) transactions: u64,
    /// Statements done.
    pub(crate) statements: u64,
}

/// A run with its windows.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The run.
    pub(crate) run: Run,
    /// Its windows.
    pub(crate) windows: Vec<Window>,
}

/// The directory of the committed windows.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/data")
}

/// The runs of one experiment.
pub(crate) fn read(directory: &Path, experiment: &str) -> Result<Vec<Measured>, Box<dyn Error>> {
    let windows: Vec<Window> = lines(&directory.join("windows.jsonl"))?;
    let runs: Vec<Run> = lines(&directory.join("runs.jsonl"))?;
    let runs = runs.into_iter().filter(|run| run.experiment == experiment);
    Ok(runs
        .map(|run| {
            let windows = windows.iter().filter(|window| window.run == run.run).cloned();
            Measured {
                windows: windows.collect(),
                run,
            }
        })
        .collect())
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Writes the windows of `results` (files like `results.json`) to `directory`, in the place of what is there.
/// Measurements that are invalid are left out.
pub(crate) fn extract(results: &[PathBuf], directory: &Path) -> Result<usize, Box<dyn Error>> {
    let (mut runs, mut windows) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    let mut count = 0;
    for path in results {
        let records: Vec<Record> = serde_json::from_str(&fs::read_to_string(path)?)?;
        let name = name(path);
        if !names.insert(name.clone()) {
            return Err(format!("two files are named {name}: a run is known by its file's name").into());
        }
        for (index, record) in records.iter().enumerate() {
            let comparison = &record.comparison;
            if comparison.invalid.is_some() {
                continue;
            }
            let run = match records.len() {
                1 => name.clone(),
                _ => format!("{name}.{}", index + 1),
            };
            for window in &comparison.windows {
                let line = Window {
                    run: run.clone(),
                    round: window.round,
                    side: window.side,
                    seconds: window.seconds,
                    transactions: window.counts.transactions,
                    statements: window.counts.statements(),
                };
                writeln!(windows, "{}", serde_json::to_string(&line)?)?;
            }
            let line = Run {
                run,
                experiment: comparison.name.clone(),
                threads: comparison.load.threads,
                p95_latency: comparison.p95_latency,
            };
            writeln!(runs, "{}", serde_json::to_string(&line)?)?;
            count += 1;
        }
    }
    fs::create_dir_all(directory)?;
    fs::write(directory.join("runs.jsonl"), runs)?;
    fs::write(directory.join("windows.jsonl"), windows)?;
    Ok(count)
}

/// The file's name, or its directory's if that is what tells it from others.
fn name(path: &Path) -> String {
    let file = path.file_stem().unwrap_or_default();
    let directory = path.parent().and_then(Path::file_name);
    let name = directory.filter(|_| file == "results").unwrap_or(file);
    name.to_string_lossy().into_owned()
}
