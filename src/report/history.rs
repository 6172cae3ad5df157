//! `results.jsonl`: one line per judged measurement, run after run, so that a drift inside the bounds is seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};

use super::json::Error;
use super::number::{digits, interval};
use crate::result::{Comparison, Figure, Record, Verdict};
use crate::text::printable;

/// Name of the file in its directory.
pub const FILE_NAME: &str = "results.jsonl";

/// Ratios that a measurement may give.
const RATIOS: RangeInclusive<f64> = 1e-6..=1e6;

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// When the measurement was judged.
    pub time: Timestamp,
    /// The measurement, without its windows.
    #[serde(flatten)]
    pub record: Record,
}

impl Entry {
    /// A measurement that was judged just now.
    #[must_use]
    pub fn now(record: &Record) -> Self {
        let mut record = record.clone();
        record.comparison.windows.clear();
        Self {
            time: Timestamp::now(),
            record,
        }
    }

    /// The throughput ratio, unless nothing may be concluded from it.
    fn ratio(&self) -> Option<f64> {
        let Comparison {
            throughput,
            p95_latency,
            ..
        } = &self.record.comparison;
        let sound = throughput.iter().chain(p95_latency).all(is_sound);
        let usable = sound && self.record.verdict != Verdict::Invalid;
        throughput.filter(|_| usable).map(|figure| figure.ratio)
    }
}

/// Whether these can be figures at all: a file may have been edited.
fn is_sound(figure: &Figure) -> bool {
    let Figure { ratio, low, high, .. } = *figure;
    (RATIOS.contains(&low) && RATIOS.contains(&high)) && (low..=high).contains(&ratio)
}

/// Where the history is: in the directory set, else beside the results of the latest run.
#[must_use]
pub fn path(set: Option<&Path>, output: &Path) -> PathBuf {
    let directory = match set {
        Some(_) => output,
        None => output.parent().unwrap_or(output),
    };
    directory.join(FILE_NAME)
}

/// Adds lines to the file, which is made if need be.
///
/// # Errors
/// When it cannot be written.
pub fn append(path: &Path, entries: &[Entry]) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut lines = Vec::new();
        // What a kill has cut must not spoil the next line as well.
        if is_cut(&mut file)? {
            lines.push(b'\n');
        }
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        // At once, so that the lines of processes do not mix.
        file.write_all(&lines)
    };
    write().map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

/// Whether the last line has no end.
fn is_cut(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Reads the file. Lines that are none are passed over, and counted: a kill in the middle of one must not hide the
/// others, nor one of a later version.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<(Vec<Entry>, usize), Error> {
    let bytes = fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let entries: Vec<Option<Entry>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    let broken = entries.iter().filter(|entry| entry.is_none()).count();
    Ok((entries.into_iter().flatten().collect(), broken))
}

/// The runs of one experiment on one profile, the oldest first.
#[derive(Debug, Clone)]
pub struct Series {
    /// The experiment.
    pub name: String,
    /// What it was measured on.
    pub profile: String,
    entries: Vec<Entry>,
}

/// The series of all experiments in a history, by name and profile.
#[must_use]
pub fn series(entries: Vec<Entry>) -> Vec<Series> {
    let mut found: BTreeMap<(String, String), Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        let comparison = &entry.record.comparison;
        let key = (comparison.name.clone(), comparison.profile.clone());
        found.entry(key).or_default().push(entry);
    }
    let series = |((name, profile), mut entries): ((String, String), Vec<Entry>)| {
        entries.sort_by_key(|entry| entry.time);
        // Files that were put together may hold a run twice.
        entries.dedup_by_key(|entry| (entry.time, entry.record.comparison.load.seed));
        Series {
            name: printable(&name),
            profile: printable(&profile),
            entries,
        }
    };
    found.into_iter().map(series).collect()
}

impl Series {
    /// Logarithms of the throughput ratios of the runs that have one.
    #[must_use]
    pub fn log_ratios(&self) -> Vec<f64> {
        self.entries.iter().filter_map(Entry::ratio).map(f64::ln).collect()
    }

    /// The judged measurements from which something may be concluded, the oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<&Record> {
        let usable = self.entries.iter().filter(|entry| entry.ratio().is_some());
        usable.map(|entry| &entry.record).collect()
    }

    /// Its runs as text, the last `most` of them, with a line where a new level begins: `changes` are indices into
    /// [`Self::log_ratios`].
    #[must_use]
    pub fn table(&self, changes: &[usize], most: usize) -> String {
        let ratios = self.log_ratios();
        let level = |change: usize| {
            let edges: Vec<usize> = [0]
                .into_iter()
                .chain(changes.iter().copied())
                .chain([ratios.len()])
                .collect();
            let at = edges.iter().position(|edge| *edge == change).unwrap_or(0);
            let mean = |from: usize, to: usize| (ratios[from..to].iter().sum::<f64>() / (to - from) as f64).exp();
            (mean(edges[at - 1], change), mean(change, edges[at + 1]))
        };
        let mut lines = Vec::new();
        let mut index = 0;
        for entry in &self.entries {
            let mut line = String::new();
            if entry.ratio().is_some() {
                if changes.contains(&index) {
                    let (before, after) = level(index);
                    let percent = 100.0 * (after / before - 1.0);
                    let (before, after) = (digits(before), digits(after));
                    let _ = writeln!(
                        line,
                        "  -- a new level: {before} before, {after} from here ({percent:+.1} %)"
                    );
                }
                index += 1;
            }
            line += &shown(entry);
            lines.push(line);
        }
        let hidden = lines.len().saturating_sub(most);
        let runs = match self.entries.len() {
            1 => "1 run".to_owned(),
            count if hidden > 0 => format!("the last {most} of {count} runs"),
            count => format!("{count} runs"),
        };
        format!(
            "{} on {}, {runs}\n{}",
            self.name,
            self.profile,
            lines[hidden..].concat()
        )
    }
}

fn shown(entry: &Entry) -> String {
    let time = entry.time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M");
    let ratio = match entry.record.comparison.throughput {
        Some(figure) => format!("{}  {}", digits(figure.ratio), interval(&figure)),
        None => "not estimable".to_owned(),
    };
    format!("  {time}  {ratio:<22}  {:?}\n", entry.record.verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Counts, Side, Window, latency_histogram};
    use proptest::prelude::*;
    use rstest::rstest;

    fn entry(day: i64, ratio: f64, verdict: Verdict) -> Entry {
        let figure = Figure {
            without: 80.0,
            with: 80.0 * ratio,
            ratio,
            low: ratio * 0.95,
            high: ratio * 1.05,
        };
        Entry {
            time: Timestamp::from_second(1_700_000_000 + 86_400 * day).unwrap(),
            record: Record {
                verdict,
                reason: String::new(),
                bounds: None,
                comparison: Comparison {
                    name: "thick".into(),
                    profile: "lab".into(),
                    throughput: Some(figure),
                    ..Comparison::default()
                },
            },
        }
    }

    #[test]
    fn a_series_is_shown_with_its_change() {
        let entries = vec![
            entry(2, 0.50, Verdict::Within),
            entry(0, 0.60, Verdict::Within),
            entry(1, 0.99, Verdict::Invalid),
            entry(3, 0.51, Verdict::Worse),
        ];
        let all = series(entries);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].log_ratios(), [0.60, 0.50, 0.51].map(f64::ln));
        insta::assert_snapshot!(all[0].table(&[1], 50), @r"
        thick on lab, 4 runs
          2023-11-14 22:13  0.600  0.570 to 0.630   Within
          2023-11-15 22:13  0.990  0.941 to 1.04    Invalid
          -- a new level: 0.600 before, 0.505 from here (-15.8 %)
          2023-11-16 22:13  0.500  0.475 to 0.525   Within
          2023-11-17 22:13  0.510  0.484 to 0.536   Worse
        ");
        let last = all[0].table(&[1], 1);
        assert!(
            last.starts_with("thick on lab, the last 1 of 4 runs\n  2023-11-17"),
            "{last}"
        );
    }

    #[test]
    fn lines_are_added_and_a_cut_one_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a").join(FILE_NAME);
        append(&path, &[entry(0, 0.6, Verdict::Within)]).unwrap();
        let half = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{half}{}", &half[..half.len() / 2])).unwrap();
        append(&path, &[entry(1, 0.5, Verdict::Worse)]).unwrap();
        let (entries, broken) = read(&path).unwrap();
        let verdicts: Vec<_> = entries.iter().map(|entry| entry.record.verdict).collect();
        assert_eq!((verdicts, broken), (vec![Verdict::Within, Verdict::Worse], 1));
    }

    #[rstest]
    #[case::negative_end(0.6, -0.1, 0.7, false)]
    #[case::no_end(0.6, 0.0, 0.7, false)]
    #[case::outside_its_interval(0.6, 0.7, 0.8, false)]
    #[case::beyond_all_reason(1e300, 1e299, 1e301, false)]
    #[case::not_a_number(f64::NAN, 0.5, 0.7, false)]
    #[case::sound(0.6, 0.5, 0.7, true)]
    fn figures_that_cannot_be_are_no_measurements(
        #[case] ratio: f64,
        #[case] low: f64,
        #[case] high: f64,
        #[case] counts: bool,
        #[values(false, true)] of_p95: bool,
    ) {
        let mut entry = entry(0, 0.6, Verdict::Within);
        let figure = Figure {
            without: 80.0,
            with: 48.0,
            ratio,
            low,
            high,
        };
        let comparison = &mut entry.record.comparison;
        match of_p95 {
            true => comparison.p95_latency = Some(figure),
            false => comparison.throughput = Some(figure),
        }
        assert_eq!(entry.ratio().is_some(), counts);
    }

    #[test]
    fn an_entry_holds_no_windows() {
        let mut record = entry(0, 0.6, Verdict::Within).record;
        record.comparison.windows = vec![window()];
        assert_eq!(Entry::now(&record).record.comparison.windows.len(), 0);
    }

    fn window() -> Window {
        Window::new(1, Side::Without, 1.0, Counts::default(), latency_histogram())
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(FILE_NAME);
            fs::write(&path, bytes).unwrap();
            read(&path).unwrap();
        }
    }
}
