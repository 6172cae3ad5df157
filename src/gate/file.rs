//! The snapshot file that holds bounds: where it lies, and what insta does with it.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use insta::{Comparator, Snapshot};
use serde::Serialize;

use super::bounds::Bounds;
use crate::report::{json, number};
use crate::result::{Figure, Record, Verdict};

/// Where [`assert_ratio_bounds!`](crate::assert_ratio_bounds) was called.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// `INSTA_WORKSPACE_ROOT` at compile time.
    pub workspace: Option<&'static str>,
    /// `CARGO_MANIFEST_DIR`.
    pub manifest_dir: &'static str,
    /// `module_path!()`.
    pub module: &'static str,
    /// `file!()`.
    pub file: &'static str,
    /// The function, with its module.
    pub function: &'static str,
}

impl Site {
    /// The test's name within its module, with the case when there is one.
    pub(super) fn name(&self) -> String {
        let inside = self.function.strip_prefix(self.module).unwrap_or(self.function);
        // serial_test's attributes wrap the function in a closure within a function of the same name.
        let mut parts: Vec<&str> = inside
            .split("::")
            .filter(|part| !part.is_empty() && *part != "{{closure}}")
            .collect();
        parts.dedup();
        parts.join("::")
    }

    /// The directory that `file!()` is relative to, as insta finds it but without asking cargo, which a guest
    /// does not have.
    fn workspace(&self) -> PathBuf {
        if let Some(root) = env::var_os("INSTA_WORKSPACE_ROOT") {
            return root.into();
        }
        if let Some(root) = self.workspace {
            return root.into();
        }
        let manifest_dir = Path::new(self.manifest_dir);
        let root = manifest_dir
            .ancestors()
            .find(|directory| directory.join(self.file).is_file());
        root.unwrap_or(manifest_dir).to_owned()
    }
}

/// Why bounds cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// insta cannot read the file.
    #[error("{} is no snapshot file: {problem}", path.display())]
    Read { path: PathBuf, problem: String },
    /// The body is not bounds.
    #[error("the bounds in {} cannot be used: {problem}", path.display())]
    Bounds { path: PathBuf, problem: String },
}

/// The bounds' file of one experiment and profile.
#[derive(Debug)]
pub(super) struct BoundsFile {
    workspace: PathBuf,
    path: PathBuf,
    name: String,
    profile: String,
}

impl BoundsFile {
    pub(super) fn new(site: &Site, name: &str, profile: &str) -> Self {
        let workspace = site.workspace();
        let (name, profile) = (file_part(name), file_part(profile));
        let source = workspace.join(site.file);
        let directory = source
            .parent()
            .unwrap_or(&workspace)
            .join(insta::Settings::clone_current().snapshot_path());
        // As insta composes it from module, name and suffix.
        let file_name = format!("{}__{name}@{profile}.snap", site.module.replace("::", "__"));
        Self {
            path: directory.join(file_name),
            workspace,
            name,
            profile,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where results go; a relative directory is one in the workspace.
    pub(super) fn output_directory(&self, set: Option<&Path>) -> PathBuf {
        let set = set.map(|directory| self.workspace.join(directory));
        json::output_directory(set.as_deref())
    }

    /// The bounds, or `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<Bounds>, Error> {
        let Some(body) = self.body()? else {
            return Ok(None);
        };
        Bounds::parse(&body).map(Some).map_err(|problem| Error::Bounds {
            path: self.path.clone(),
            problem,
        })
    }

    fn body(&self) -> Result<Option<String>, Error> {
        let unreadable = |problem: String| Error::Read {
            path: self.path.clone(),
            problem,
        };
        if !self.path.try_exists().map_err(|error| unreadable(error.to_string()))? {
            return Ok(None);
        }
        let snapshot = Snapshot::from_file(&self.path).map_err(|error| unreadable(error.to_string()))?;
        let text = snapshot.as_text().map(ToString::to_string);
        text.map(Some).ok_or_else(|| unreadable("it is not a text".into()))
    }

    /// Tells insta that the bounds hold, upon which it removes what an earlier run proposed.
    pub(super) fn confirm(&self, record: &Record, assert_snapshot: impl Fn(&str, &str)) {
        // The body as it is: INSTA_UPDATE=force writes it back even though it holds.
        if let Ok(Some(body)) = self.body() {
            self.settings(record, Answer::Holds)
                .bind(|| assert_snapshot(&self.name, &body));
        }
    }

    /// Gives insta new bounds, and returns the file that it wrote them to, if it did.
    pub(super) fn propose(
        &self,
        bounds: &Bounds,
        record: &Record,
        assert_snapshot: impl Fn(&str, &str),
    ) -> Option<PathBuf> {
        let settings = self.settings(record, Answer::Differs);
        // insta panics on a difference, unless told not to; whether the test fails is decided by the verdict.
        let body = bounds.to_string();
        let _ = catch_unwind(AssertUnwindSafe(|| {
            settings.bind(|| assert_snapshot(&self.name, &body))
        }));
        let holds_them = |path: &PathBuf| {
            let text = Snapshot::from_file(path)
                .ok()
                .and_then(|snapshot| snapshot.as_text().map(ToString::to_string));
            text.is_some_and(|text| text.trim() == body.trim())
        };
        [self.path.clone(), self.pending_path()]
            .into_iter()
            .find(|path| path.is_file() && holds_them(path))
    }

    fn pending_path(&self) -> PathBuf {
        let directory = env::var_os("INSTA_PENDING_DIR").filter(|directory| !directory.is_empty());
        let moved = directory.and_then(|directory| {
            let inside = self.path.strip_prefix(&self.workspace).ok()?;
            Some(Path::new(&directory).join(inside))
        });
        moved.unwrap_or_else(|| self.path.clone()).with_extension("snap.new")
    }

    fn settings(&self, record: &Record, answer: Answer) -> insta::Settings {
        let mut settings = insta::Settings::clone_current();
        if let Some(directory) = self.path.parent() {
            settings.set_snapshot_path(directory);
        }
        settings.set_snapshot_suffix(&self.profile);
        settings.set_prepend_module_to_snapshot(true);
        settings.set_omit_expression(true);
        settings.set_info(&Info::of(record));
        settings.set_comparator(Box::new(answer));
        settings
    }
}

/// A name without characters that mean something in a path or to insta.
fn file_part(name: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.replace("::", "__").chars().map(plain).collect()
}

/// What insta is told when it compares old bounds with new ones: the verdict is snaptax's.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Holds,
    Differs,
}

impl Comparator for Answer {
    fn matches(&self, _: &Snapshot, _: &Snapshot) -> bool {
        matches!(self, Self::Holds)
    }

    fn dyn_clone(&self) -> Box<dyn Comparator> {
        Box::new(*self)
    }
}

/// The measurement as `cargo insta review` shows it.
#[derive(Debug, Serialize)]
struct Info<'a> {
    verdict: Verdict,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_latency: Option<String>,
    rounds: usize,
    difference: &'a str,
    load: String,
    server: String,
}

impl<'a> Info<'a> {
    fn of(record: &'a Record) -> Self {
        let comparison = &record.comparison;
        let sides = |figure: Figure, unit| {
            let (without, with) = (number::digits(figure.without), number::digits(figure.with));
            format!("{without} -> {with} {unit}, ratio {}", number::ratio(&figure))
        };
        Self {
            verdict: record.verdict,
            reason: &record.reason,
            throughput: comparison.throughput.map(|figure| sides(figure, "transactions/s")),
            p95_latency: comparison.p95_latency.map(|figure| sides(figure, "ms")),
            rounds: comparison.rounds,
            difference: &comparison.storage.difference,
            load: format!(
                "{}, {} threads, {} rows, {} s windows",
                comparison.load.profile, comparison.load.threads, comparison.load.rows, comparison.load.window_seconds
            ),
            server: format!("{} ({})", comparison.server.version, comparison.server.image),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("experiments::oltp::thick", "thick")]
    #[case("experiments::oltp::thick::{{closure}}::thick", "thick")]
    #[case("experiments::oltp::chunks::case_1_4k::{{closure}}::case_1_4k", "chunks::case_1_4k")]
    fn a_tests_name_is_without_its_module_and_what_attributes_add(#[case] function: &'static str, #[case] name: &str) {
        let site = Site {
            workspace: None,
            manifest_dir: "",
            module: "experiments::oltp",
            file: "",
            function,
        };
        assert_eq!(site.name(), name);
    }
}
