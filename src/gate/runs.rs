//! Bounds from the runs of a history.

use super::bounds::Bounds;
use super::verdict::imprecision;
use crate::compare;
use crate::report::history::Series;
use crate::result::{Comparison, Ranges, Record, Verdict};

/// Bounds proposed from several runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The bounds. Where they tolerate more than those that the last run was judged by, a throughput that is lower or
    /// what runs that were Worse have lost, their `reason` is empty: it is to be filled in before they count.
    pub bounds: Bounds,
    /// What to know before they are used, a sentence each.
    pub remarks: Vec<String>,
}

/// Why runs make no bounds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// There are too few.
    #[error(
        "{found} runs from which something may be concluded{}, and {needed} are needed",
        if *imprecise > 0 { format!(" ({imprecise} more are not as precise as was aimed at)") } else { String::new() }
    )]
    TooFew {
        /// Usable runs.
        found: usize,
        /// Runs that were not precise enough.
        imprecise: usize,
        /// Runs that were asked for.
        needed: usize,
    },
    /// What is measured became something else.
    #[error("the ratio came to a new level within the last {last} runs; only {newer} are of that level")]
    NewLevel {
        /// Runs that were asked for.
        last: usize,
        /// Runs since.
        newer: usize,
    },
    /// The runs are too far apart to be of one level.
    #[error(
        "the last runs differ more than runs of unchanged code do (by a standard deviation of {:.0} %; {:.0} % is to be \
         expected): `snaptax history` shows them; measure until {last} agree",
        100.0 * scatter, 100.0 * expected
    )]
    Scatter {
        /// Standard deviation of log-ratios.
        scatter: f64,
        /// What it should be.
        expected: f64,
        /// Runs that were asked for.
        last: usize,
    },
    /// They were not all on one disk.
    #[error("one of the runs was on a clearly different disk than the last one (see their calibration)")]
    AnotherDisk,
}

/// Bounds from the last runs of a series, five or more, from which something may be concluded and which are as precise as
/// was aimed at ([`Bounds::from_runs`]).
///
/// # Errors
/// When the runs are too few, of two levels, too far apart, or of two disks.
pub fn propose(series: &Series, last: usize) -> Result<Proposal, Refusal> {
    let usable = series.records();
    let precise: Vec<&Record> = usable
        .iter()
        .copied()
        .filter(|record| imprecision(&record.comparison).is_none())
        .collect();
    let Some(since) = precise.len().checked_sub(last) else {
        return Err(Refusal::TooFew {
            found: precise.len(),
            imprecise: usable.len() - precise.len(),
            needed: last,
        });
    };
    let ratios: Vec<f64> = precise.iter().filter_map(|record| log_ratio(record)).collect();
    if let Some(change) = compare::changes(&ratios).into_iter().rfind(|change| *change > since) {
        return Err(Refusal::NewLevel {
            last,
            newer: ratios.len() - change,
        });
    }
    let records = &precise[since..];
    let runs: Vec<Comparison> = records.iter().map(|record| record.comparison.clone()).collect();
    if let Some((scatter, expected)) = Bounds::excess_scatter(&runs) {
        return Err(Refusal::Scatter {
            scatter,
            expected,
            last,
        });
    }
    let bounds = Bounds::from_runs(&runs).ok_or(Refusal::AnotherDisk)?;
    let bounds = match judged_by(records) {
        Some(old) => bounds.superseding(old),
        None => bounds,
    };
    Ok(Proposal {
        remarks: remarks(records, &bounds),
        bounds,
    })
}

/// What the last run was judged by, as far as it holds for new bounds. Those of p95 from one run are tighter than any
/// from several, so that they only count where they were broken or are to be given up.
fn judged_by(records: &[&Record]) -> Option<Ranges> {
    let mut ranges = records.iter().rev().find_map(|record| record.bounds)?;
    if without_p95(records) == 0 && worse(records) == 0 {
        ranges.p95_latency = None;
    }
    Some(ranges)
}

fn worse(records: &[&Record]) -> usize {
    records.iter().filter(|record| record.verdict == Verdict::Worse).count()
}

fn without_p95(records: &[&Record]) -> usize {
    let without = records.iter().filter(|record| record.comparison.p95_latency.is_none());
    without.count()
}

fn log_ratio(record: &Record) -> Option<f64> {
    Some(record.comparison.throughput?.ratio.ln())
}

fn remarks(records: &[&Record], bounds: &Bounds) -> Vec<String> {
    let mut remarks = Vec::new();
    let worse = worse(records);
    if worse > 0 {
        remarks.push(format!(
            "{worse} of {} runs were Worse: these bounds accept what was lost",
            records.len()
        ));
    }
    if bounds.reason.is_some() {
        remarks.push("they tolerate more than the bounds of the last run: write down why, in `reason`".into());
    }
    if bounds.calibration.is_none() {
        remarks.push("the last run's disk was not calibrated, so they hold for any disk".into());
    }
    let without_p95 = without_p95(records);
    if (1..records.len()).contains(&without_p95) {
        remarks.push(format!("p95 latency is not bounded: {without_p95} runs have none"));
    }
    let differing: Vec<&str> = ASPECTS
        .iter()
        .filter(|(_, aspect)| {
            let mut all = records.iter().map(|record| aspect(&record.comparison));
            let first = all.next();
            all.any(|other| Some(other) != first)
        })
        .map(|(name, _)| *name)
        .collect();
    if !differing.is_empty() {
        remarks.push(format!("the runs are not of the same {}", differing.join(", ")));
    }
    remarks
}

/// What runs of one experiment have in common.
type Aspect = (&'static str, fn(&Comparison) -> String);

const ASPECTS: &[Aspect] = &[
    ("load", |run| {
        let load = &run.load;
        format!(
            "{} {} {} {} {}",
            load.profile, load.threads, load.rows, load.distribution, load.window_seconds
        )
    }),
    ("difference", |run| run.storage.difference.clone()),
    ("volume", |run| {
        format!("{} {}", run.storage.volume_bytes, run.storage.filesystem)
    }),
    ("server version", |run| run.server.version.clone()),
    ("server variables", |run| format!("{:?}", run.server.variables)),
    ("half-width aimed at", |run| run.target_half_width.to_string()),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::history::{Entry, series};
    use crate::result::{Calibration, Figure, Range};
    use rstest::rstest;

    fn record(ratio: f64) -> Record {
        let figure = |ratio: f64| Figure {
            without: 80.0,
            with: 80.0 * ratio,
            ratio,
            low: ratio * 0.95,
            high: ratio * 1.05,
        };
        Record {
            verdict: Verdict::Within,
            reason: String::new(),
            bounds: Some(Ranges {
                throughput: Range { low: 0.45, high: 0.75 },
                p95_latency: Some(Range { low: 1.0, high: 4.0 }),
            }),
            comparison: Comparison {
                name: "thick".into(),
                throughput: Some(figure(ratio)),
                p95_latency: Some(figure(2.0)),
                target_half_width: 0.1,
                calibration: Some(Calibration {
                    iops: 396.0,
                    write_mib_per_second: 180.0,
                    flush_milliseconds: 0.4,
                }),
                ..Comparison::default()
            },
        }
    }

    fn proposed(records: &[Record]) -> Result<Proposal, Refusal> {
        let entries = records.iter().zip(0_u64..).map(|(record, seed)| {
            let mut entry = Entry::now(record);
            entry.record.comparison.load.seed = seed;
            entry
        });
        propose(&series(entries.collect())[0], 5)
    }

    const AGREEING: [f64; 5] = [0.60, 0.61, 0.59, 0.60, 0.58];

    fn agreeing() -> Vec<Record> {
        AGREEING.map(record).into()
    }

    #[test]
    fn runs_that_agree_make_bounds_without_a_remark() {
        let Proposal { bounds, remarks } = proposed(&agreeing()).unwrap();
        assert!(bounds.throughput.low > 0.5 && bounds.throughput.high < 0.7, "{bounds}");
        assert_eq!((bounds.reason, remarks), (None, vec![]));
    }

    #[test]
    fn bounds_from_failed_runs_need_a_reason() {
        let mut runs: Vec<_> = [0.30, 0.31, 0.30, 0.29, 0.30].map(record).into();
        for run in &mut runs {
            run.verdict = Verdict::Worse;
        }
        let Proposal { bounds, remarks } = proposed(&runs).unwrap();
        assert!(
            Bounds::parse(&bounds.to_string())
                .unwrap_err()
                .contains("reason is empty")
        );
        assert!(remarks[0].contains("5 of 5 runs were Worse"), "{remarks:?}");
        assert!(remarks[1].contains("write down why"), "{remarks:?}");
    }

    #[rstest]
    #[case::one_old_of_five(&[0.90, 0.45, 0.46, 0.45, 0.44])]
    #[case::two_new_of_many(&[0.56, 0.57, 0.55, 0.56, 0.57, 0.56, 0.55, 0.56, 0.28, 0.29])]
    fn runs_of_two_levels_make_no_bounds_however_few_they_are(#[case] ratios: &[f64]) {
        let runs: Vec<_> = ratios.iter().copied().map(record).collect();
        let refused = proposed(&runs).unwrap_err();
        assert!(matches!(refused, Refusal::Scatter { .. }), "{refused}");
        assert!(
            refused
                .to_string()
                .contains("differ more than runs of unchanged code do")
        );
    }

    #[test]
    fn an_imprecise_run_does_not_count() {
        let mut runs = agreeing();
        runs[4].comparison.target_half_width = 0.01;
        let refused = proposed(&runs).unwrap_err().to_string();
        let said = "4 runs from which something may be concluded (1 more are not as precise as was aimed at), and 5 are needed";
        assert_eq!(refused, said);
        runs.push(record(0.6));
        assert!(proposed(&runs).is_ok());
    }

    #[rstest]
    #[case::threads(|run: &mut Comparison| run.load.threads = 4, "the runs are not of the same load")]
    #[case::version(|run: &mut Comparison| run.server.version = "9.1.0".into(), "not of the same server version")]
    #[case::chunks(|run: &mut Comparison| run.storage.difference = "512 KiB chunks".into(), "not of the same difference")]
    #[case::option(
        |run: &mut Comparison| { run.server.variables.insert("innodb_doublewrite".into(), "OFF".into()); },
        "not of the same server variables"
    )]
    #[case::no_p95(|run: &mut Comparison| run.p95_latency = None, "p95 latency is not bounded: 1 runs have none")]
    #[case::no_calibration(|run: &mut Comparison| run.calibration = None, "hold for any disk")]
    fn what_is_odd_about_runs_is_told(#[case] change: fn(&mut Comparison), #[case] said: &str) {
        let mut runs = agreeing();
        change(&mut runs[4].comparison);
        let remarks = proposed(&runs).unwrap().remarks;
        assert!(remarks.iter().any(|remark| remark.contains(said)), "{remarks:?}");
    }

    #[test]
    fn runs_on_two_disks_make_no_bounds() {
        let mut runs = agreeing();
        runs[0].comparison.calibration = Some(Calibration {
            iops: 1200.0,
            write_mib_per_second: 180.0,
            flush_milliseconds: 0.4,
        });
        assert_eq!(proposed(&runs), Err(Refusal::AnotherDisk));
    }
}
