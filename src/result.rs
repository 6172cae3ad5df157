//! What a measurement found: plain data, and the schema of `results.json`.
//!
//! Units are in the names or here: throughput in transactions per second, latency in milliseconds,
//! sizes in bytes, ratios with / without. A value that was not measured is `null`, never 0.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Which side of a comparison: without the difference (the snapshot, say), or with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Without it.
    Without,
    /// With it.
    With,
}

/// What may be concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// The ratios are inside their bounds and were measured precisely enough.
    Within,
    /// A whole interval is beyond the good side of its bounds: passes, but the bounds are loose.
    Better,
    /// A whole interval is beyond the bad side of its bounds.
    Worse,
    /// The measurement was not precise enough to say.
    Inconclusive,
    /// Something happened after which nothing may be concluded.
    Invalid,
}

impl Verdict {
    /// Whether a gate lets this pass.
    #[must_use]
    pub fn passes(self) -> bool {
        matches!(self, Self::Within | Self::Better)
    }
}

/// Statements and transactions of one window, by sysbench's classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Transactions committed.
    pub transactions: u64,
    /// Statements that read.
    pub reads: u64,
    /// Statements that write.
    pub writes: u64,
    /// `BEGIN` and `COMMIT`.
    pub other: u64,
    /// Transactions restarted because the server chose them as a deadlock's victim, or a lock timed out.
    pub deadlocks: u64,
}

impl Counts {
    /// All statements.
    #[must_use]
    pub fn statements(&self) -> u64 {
        self.reads + self.writes + self.other
    }
}

/// How full a snapshot's COW store was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CowFill {
    /// Share of the COW store in use, metadata included, in percent.
    pub percent: f64,
    /// Exceptions: chunks copied.
    pub chunks: u64,
}

/// Work that InnoDB has put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineState {
    /// Pages in the buffer pool that are yet to be written.
    pub dirty_pages: u64,
    /// Pages of the buffer pool.
    pub pool_pages: u64,
    /// Bytes of redo log written since the last checkpoint.
    pub checkpoint_age: u64,
    /// Length of the history list: undo records yet to be purged, in transactions.
    pub history_length: u64,
}

/// What a server may have put off when a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineBand {
    /// The least of each.
    pub low: EngineState,
    /// The most of each.
    pub high: EngineState,
}

/// One timed stretch of load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Window {
    /// The rig it was measured on, from 1.
    #[serde(default = "first")]
    pub rig: usize,
    /// The round it belongs to, from 1, counted through all rigs.
    pub round: usize,
    /// Its side.
    pub side: Side,
    /// Its length in seconds.
    pub seconds: f64,
    /// What was done in it.
    pub counts: Counts,
    /// Latencies of the transactions that ended in it, in microseconds.
    #[serde(skip, default = "empty_histogram")]
    pub latencies: Histogram<u64>,
    /// Share of the window in which the disk under the volume group was busy, in percent.
    pub disk_busy_percent: Option<f64>,
    /// Share of all processors' time that was used in it, in percent.
    pub cpu_busy_percent: Option<f64>,
    /// Share of all processors' time that the load generator used, in percent.
    pub load_cpu_percent: Option<f64>,
    /// The snapshot's COW store at the window's end.
    pub cow: Option<CowFill>,
    /// What the server had put off when the window began.
    #[serde(default)]
    pub engine: Option<EngineState>,
    /// Load before it until the server was back in its band, in seconds.
    #[serde(default)]
    pub settled_seconds: Option<f64>,
    /// Share of it in which a processor was wanted and not given, by the host to a guest or by the hypervisor to a
    /// machine, on average over all of them, in percent.
    #[serde(default)]
    pub host_delay_percent: Option<f64>,
}

impl Window {
    /// A window of which no more is known than what was done in it, on the first rig.
    #[must_use]
    pub fn new(round: usize, side: Side, seconds: f64, counts: Counts, latencies: Histogram<u64>) -> Self {
        Self {
            rig: first(),
            round,
            side,
            seconds,
            counts,
            latencies,
            disk_busy_percent: None,
            cpu_busy_percent: None,
            load_cpu_percent: None,
            cow: None,
            engine: None,
            settled_seconds: None,
            host_delay_percent: None,
        }
    }
}

fn first() -> usize {
    1
}

fn empty_histogram() -> Histogram<u64> {
    latency_histogram()
}

/// A histogram for latencies in microseconds, 1 us to 1 h, three significant digits (0.1 %).
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that HdrHistogram accepts")]
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("valid bounds");
    histogram.auto(true);
    histogram
}

/// One figure on both sides, their ratio and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Without the difference.
    pub without: f64,
    /// With it.
    pub with: f64,
    /// With / without, estimated from the rounds (so it may differ a little from the quotient of the two).
    pub ratio: f64,
    /// Lower end of the ratio's 95 % interval.
    pub low: f64,
    /// Upper end of the ratio's 95 % interval.
    pub high: f64,
}

impl Figure {
    /// Half-width of the interval as used everywhere here, `(ln high - ln low) / 2`: 0.05 is about 5 %.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }
}

/// The server that was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// What `SELECT VERSION()` says.
    pub version: String,
    /// `mysql` or `mariadb` with its major version, as in a profile's name: `mysql9`, `mariadb11`.
    pub series: String,
    /// The image it ran from.
    pub image: String,
    /// Where the image came from: a registry, or Debian packages.
    pub image_source: String,
    /// Effective variables that bear on the result.
    pub variables: BTreeMap<String, String>,
}

/// The load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The transaction profile, as `sysbench 0.4 oltp complex`.
    pub profile: String,
    /// Threads, each with a connection of its own.
    pub threads: u32,
    /// Rows in the table.
    pub rows: u64,
    /// How ids are drawn: `uniform`.
    pub distribution: String,
    /// Length of one window in seconds.
    pub window_seconds: f64,
    /// The seed of the first thread's generator.
    pub seed: u64,
}

/// The storage under the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// What differed between the sides: `thick snapshot, 4 KiB chunks, 512 MiB COW store`.
    pub difference: String,
    /// Size of the origin in bytes.
    pub volume_bytes: u64,
    /// Filesystem on it.
    pub filesystem: String,
    /// Whether the loop device reads and writes its file with direct I/O.
    pub direct_io: Option<bool>,
    /// Share of the without windows in which the disk was busy, in percent.
    pub disk_busy_percent: Option<f64>,
}

/// What the disk did just before the experiment, on the volume that the server's data then lay on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Random writes of 16 KiB, a page of InnoDB, from eight threads, per second.
    pub iops: f64,
    /// Writes of 1 MiB, one after the other, in MiB per second.
    pub write_mib_per_second: f64,
    /// Median time that it takes to make a write of 4 KiB durable, in milliseconds.
    pub flush_milliseconds: f64,
}

/// One experiment's measurement, before it is judged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The experiment's name: its test function, with the case when there is one.
    pub name: String,
    /// What it was measured on: `guest-tcg-1200iops-mysql9`.
    pub profile: String,
    /// Throughput in transactions per second; higher is better.
    pub throughput: Option<Figure>,
    /// Mean latency in milliseconds; lower is better.
    pub mean_latency: Option<Figure>,
    /// 95th percentile of latency in milliseconds; lower is better. `None` below 400 transactions a side.
    pub p95_latency: Option<Figure>,
    /// Rounds measured: one window on each side.
    pub rounds: usize,
    /// Windows that were taken again because the host was busy in them; they are not in `windows`.
    #[serde(default)]
    pub windows_taken_again: usize,
    /// The half-width of the throughput interval that was aimed at.
    pub target_half_width: f64,
    /// Largest fill of the COW store at the end of a window, in percent.
    pub cow_fill_percent: Option<f64>,
    /// Mean number of chunks copied from a snapshot's creation to the end of its window.
    pub chunks_copied: Option<f64>,
    /// What the server had to have put off before a window was begun.
    #[serde(default)]
    pub band: Option<EngineBand>,
    /// Why nothing may be concluded from it, if so.
    pub invalid: Option<String>,
    /// The server.
    pub server: Server,
    /// The load.
    pub load: Load,
    /// The storage.
    pub storage: Storage,
    /// What the disk did before.
    #[serde(default)]
    pub calibration: Option<Calibration>,
    /// Versions of what was under test: kernel, LVM, QEMU, snaptax.
    pub versions: BTreeMap<String, String>,
    /// Every window.
    pub windows: Vec<Window>,
}

impl Comparison {
    /// Rigs that it was measured on.
    #[must_use]
    pub fn rigs(&self) -> usize {
        self.windows.iter().map(|window| window.rig).max().unwrap_or_else(first)
    }

    /// Mean of something over one side's windows, those where it was measured.
    #[must_use]
    pub fn mean(&self, side: Side, value: impl Fn(&Window) -> Option<f64>) -> Option<f64> {
        let windows = self.windows.iter().filter(|window| window.side == side);
        let values: Vec<f64> = windows.filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// A range of ratios, with / without, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The lower bound, above 0.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// What the ratios of an experiment may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ranges {
    /// Of the throughput ratio.
    pub throughput: Range,
    /// Of the p95 latency ratio; `None` when it is not judged.
    pub p95_latency: Option<Range>,
}

/// A measurement with its verdict: one element of `results.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// What may be concluded.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
    /// What it was judged by; `None` where there were no bounds, or none of its calibration.
    #[serde(default)]
    pub bounds: Option<Ranges>,
    /// The measurement.
    #[serde(flatten)]
    pub comparison: Comparison,
}
