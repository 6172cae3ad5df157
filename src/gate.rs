//! Bounds for a ratio, kept in an insta snapshot file; insta edits them, snaptax judges by them.
//!
//! [`assert_ratio_bounds!`](crate::assert_ratio_bounds) compares a measurement with the bounds of its profile,
//! which lie beside the test in `snapshots/<module>__<test>@<profile>.snap`. The file's body is the bounds,
//! the disk they are for and nothing else; the measurement they were proposed from is in its header, under `info`:
//!
//! ```yaml
//! throughput: {low: 0.385, high: 0.491}
//! p95_latency: {low: 2.31, high: 3.34}
//! calibration: {iops: 396, write_mib_per_second: 180, flush_milliseconds: 0.4}
//! ```
//!
//! The first two are ratios, with / without; all but `throughput` may be left out. For throughput lower is
//! worse, for latency higher. `calibration` says what the disk did when the bounds were made: a measurement on a
//! disk that does clearly otherwise is `Inconclusive`, and new bounds come with `SNAPTAX_BOUNDS=propose` only. `cargo insta review` shows proposed bounds beside the old ones. They are
//! proposed
//!
//! - for a profile that has none: the test fails, since there was nothing to judge by;
//! - when a measurement is worse than its bounds: the test fails whatever insta's own variables say;
//! - after every conclusive measurement, and one on another disk, with `SNAPTAX_BOUNDS=propose`; the verdict still
//!   decides.
//!
//! Loosened bounds carry an empty `reason:`, to be filled in before they count. Proposals from a single
//! measurement are wide ([`Bounds::proposed`]).
//!
//! `INSTA_UPDATE` and `INSTA_FORCE_PASS` only say where insta writes a proposal: with `INSTA_UPDATE=always`
//! it goes straight into the snapshot file, but the run was judged by the old bounds and fails all the same.
//! With `CI` set, insta writes nothing unless `INSTA_UPDATE` asks for it. Any other measurement that is
//! `Invalid` or `Inconclusive` never reaches insta. One that is not precise enough is made once more, with twice the
//! rounds and twice the budget, before it is `Inconclusive`. `SNAPTAX_GATE=warn` reports and lets the test pass.
//!
//! Every judged measurement is also written to `results.json` (see [`crate::report::json`]) in `SNAPTAX_OUTPUT`
//! or `target/snaptax/native`, and added to the history, `results.jsonl` (see [`crate::report::history`]), there or in
//! `target/snaptax`.

mod bounds;
pub(crate) mod calibration;
mod file;
mod runs;
mod verdict;

pub use bounds::Bounds;
pub use file::Site;
pub use runs::{Proposal, Refusal, propose};
pub use verdict::judge;

#[doc(hidden)]
pub use insta as __insta;

use std::path::Path;

use crate::report::history::{self, Entry};
use crate::report::{self, json, timings};
use crate::result::{Comparison, Ranges, Record, Verdict};
use crate::settings::{BoundsMode, GateMode, Settings};
use file::BoundsFile;

/// Judges a [`Comparison`] by the bounds of its profile, and fails the test unless they hold.
///
/// ```no_run
/// use snaptax::assert_ratio_bounds;
/// use snaptax::result::Comparison;
///
/// # fn measure() -> Comparison { Comparison::default() }
/// let comparison: Comparison = measure();
/// assert_ratio_bounds!(comparison);
/// ```
///
/// # Panics
/// When the verdict is `Worse`, `Inconclusive` or `Invalid` and `SNAPTAX_GATE` is not `warn`; when a `SNAPTAX_*`
/// setting does not fit; when `results.json` cannot be written.
#[macro_export]
macro_rules! assert_ratio_bounds {
    ($comparison:expr $(,)?) => {
        $crate::gate::check(
            &$comparison,
            &$crate::gate::Site {
                workspace: ::core::option_env!("INSTA_WORKSPACE_ROOT"),
                manifest_dir: ::core::env!("CARGO_MANIFEST_DIR"),
                module: ::core::module_path!(),
                file: ::core::file!(),
                function: $crate::gate::__insta::_function_name!(),
            },
            |name: &str, body: &str| $crate::gate::__insta::assert_snapshot!(name, body),
        )
    };
}

/// What can be judged: a measurement, and perhaps a way to make it once more.
pub trait Measurable {
    /// The measurement.
    fn comparison(&self) -> &Comparison;

    /// Measures anew, with twice the effort, after a measurement that was not precise enough; `None` where that cannot be
    /// done, or was done.
    fn again(&self) -> Option<Result<Comparison, Box<dyn std::error::Error>>>;
}

impl Measurable for Comparison {
    fn comparison(&self) -> &Comparison {
        self
    }

    fn again(&self) -> Option<Result<Comparison, Box<dyn std::error::Error>>> {
        None
    }
}

/// What is to be done after a measurement was judged.
struct Judged {
    verdict: Verdict,
    reason: String,
    bounds: Option<Ranges>,
    action: Action,
    /// Whether a longer measurement may say more.
    again: bool,
}

/// What insta is to do with the bounds' file.
enum Action {
    /// Nothing: nothing may be concluded.
    Leave,
    /// Clear away what an earlier run proposed.
    Confirm,
    /// Show these for review.
    Propose(Bounds),
}

/// Judges, records, reports, proposes, and panics if the verdict does not pass: the whole of
/// [`assert_ratio_bounds!`](crate::assert_ratio_bounds), which gives it the place of the test.
#[doc(hidden)]
#[track_caller]
pub fn check(measured: &impl Measurable, site: &Site, assert_snapshot: impl Fn(&str, &str)) {
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(errors) => panic!(
            "{}",
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        ),
    };
    let named = |mut comparison: Comparison| {
        if comparison.name.is_empty() {
            comparison.name = site.name();
        }
        comparison
    };
    let mut comparison = named(measured.comparison().clone());
    let file = BoundsFile::new(site, &comparison.name, &comparison.profile);
    let mut judged = judged(&comparison, &file, settings.bounds);
    if judged.again
        && let Some(again) = measured.again()
    {
        let first = judged.reason;
        judged = match again {
            Ok(again) => {
                println!(
                    "the first measurement:\n{}",
                    report::table(&[Record {
                        verdict: judged.verdict,
                        reason: first.clone(),
                        bounds: judged.bounds,
                        comparison: comparison.clone(),
                    }])
                );
                comparison = named(again);
                let judged = self::judged(&comparison, &file, settings.bounds);
                let reason = format!(
                    "{}; this is the second measurement, as of the first {first}",
                    judged.reason
                );
                Judged { reason, ..judged }
            }
            Err(error) => Judged {
                reason: format!("{first}; and measuring again failed: {error}"),
                ..judged
            },
        };
    }
    let record = Record {
        verdict: judged.verdict,
        reason: judged.reason,
        bounds: judged.bounds,
        comparison,
    };
    let recorded = record_in(&file, settings.output.as_deref(), &record);

    println!("{}", report::table(std::slice::from_ref(&record)));
    let advice = match judged.action {
        Action::Leave => String::new(),
        Action::Confirm => {
            file.confirm(&record, assert_snapshot);
            String::new()
        }
        Action::Propose(bounds) => {
            let written = file.propose(&bounds, &record, assert_snapshot);
            advice(&bounds, file.path(), written.as_deref())
        }
    };
    if let Err(error) = recorded {
        panic!("{error}");
    }
    if record.verdict.passes() || settings.gate == GateMode::Warn {
        println!("{advice}");
        return;
    }
    panic!(
        "{} on {}: {:?}: {}\n{advice}",
        record.comparison.name, record.comparison.profile, record.verdict, record.reason
    );
}

fn record_in(file: &BoundsFile, set: Option<&Path>, record: &Record) -> Result<(), json::Error> {
    let output = file.output_directory(set);
    timings::mark("verdict");
    timings::write(&output)?;
    json::append(&output, record)?;
    history::append(&history::path(set, &output), &[Entry::now(record)])
}

fn judged(comparison: &Comparison, file: &BoundsFile, mode: BoundsMode) -> Judged {
    let inconclusive = |reason, action| Judged {
        verdict: Verdict::Inconclusive,
        reason,
        bounds: None,
        action,
        again: false,
    };
    if let Some((verdict, reason)) = verdict::doubt(comparison) {
        return Judged {
            verdict,
            again: verdict == Verdict::Inconclusive,
            ..inconclusive(reason, Action::Leave)
        };
    }
    let imprecision = verdict::imprecision(comparison);
    let proposed = Bounds::proposed(comparison);
    let bounds = match file.read() {
        Ok(Some(bounds)) => bounds,
        Ok(None) => {
            let reason = format!("there are no bounds for the profile {} yet", comparison.profile);
            return match imprecision {
                None => inconclusive(reason, proposed.map_or(Action::Leave, Action::Propose)),
                Some(imprecise) => Judged {
                    again: true,
                    ..inconclusive(format!("{reason}, and none are proposed: {imprecise}"), Action::Leave)
                },
            };
        }
        Err(error) => return inconclusive(error.to_string(), Action::Leave),
    };
    if let Some(refusal) = verdict::refusal(comparison, &bounds) {
        return match (mode, imprecision, proposed) {
            (BoundsMode::Propose, None, Some(proposed)) => {
                inconclusive(refusal, Action::Propose(proposed.superseding(bounds.ranges())))
            }
            (BoundsMode::Propose, Some(imprecise), _) => Judged {
                again: true,
                ..inconclusive(format!("{refusal}. None are proposed: {imprecise}"), Action::Leave)
            },
            _ => inconclusive(refusal, Action::Leave),
        };
    }
    let (verdict, reason) = judge(comparison, &bounds);
    let action = match (verdict, mode, proposed) {
        (Verdict::Worse, BoundsMode::Keep, Some(proposed)) => {
            Action::Propose(proposed.only_where_broken(comparison, &bounds).replacing(&bounds))
        }
        (Verdict::Within | Verdict::Better | Verdict::Worse, BoundsMode::Propose, Some(proposed)) => {
            Action::Propose(proposed.replacing(&bounds))
        }
        (Verdict::Within | Verdict::Better, ..) => Action::Confirm,
        (Verdict::Worse | Verdict::Inconclusive | Verdict::Invalid, ..) => Action::Leave,
    };
    Judged {
        verdict,
        reason,
        bounds: Some(bounds.ranges()),
        action,
        again: verdict == Verdict::Inconclusive,
    }
}

fn advice(bounds: &Bounds, path: &Path, written: Option<&Path>) -> String {
    let proposal = format!("  {}", bounds.to_string().trim_end().replace('\n', "\n  "));
    match written {
        Some(written) if written == path => {
            format!("new bounds were written to {}:\n{proposal}", path.display())
        }
        Some(written) => format!(
            "new bounds wait in {}; look at them with `cargo insta review`:\n{proposal}",
            written.display()
        ),
        None => format!(
            "new bounds were not written, as insta writes none where CI is set or INSTA_UPDATE=no. To create \
             them, run the test with INSTA_UPDATE=new, then `cargo insta review`, and commit {}; these are \
             proposed:\n{proposal}",
            path.display()
        ),
    }
}
