//! `results.json`: a list of [`Record`]s.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::Serialize;

use crate::result::Record;

/// Name of the file in its directory.
pub const FILE_NAME: &str = "results.json";

/// Why results cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no list of results of this version.
    #[error("{} is no list of results: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
}

static WRITTEN: LazyLock<Mutex<HashMap<PathBuf, Vec<Record>>>> = LazyLock::new(Mutex::default);

/// Adds a record to `results.json` in this directory, which is made if need be, and returns the file's path.
///
/// The first record of a process begins the file anew: it holds one run's results. The file is replaced as a
/// whole, so that a reader never sees half of it.
///
/// # Errors
/// When the directory or the file cannot be written.
pub fn append(directory: &Path, record: &Record) -> Result<PathBuf, Error> {
    let path = directory.join(FILE_NAME);
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let records = written.entry(path.clone()).or_default();
    records.push(record.clone());
    replace(&path, records)?;
    Ok(path)
}

/// Puts a file with this value in place of what is there.
pub(super) fn replace(path: &Path, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    let write = || {
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        // Temporary files are private; results are an ordinary file, which a CI job uploads as another user.
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(directory)?;
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

/// Where results of a run on this machine go: the directory set, else `snaptax/native` in cargo's target directory.
/// (`cargo experiments` keeps each run's in a directory of its own.)
#[must_use]
pub fn output_directory(set: Option<&Path>) -> PathBuf {
    if let Some(directory) = set {
        return directory.to_owned();
    }
    // Cargo tags its target directory, and test binaries lie in it wherever it is.
    let tagged = env::current_exe().ok().and_then(|binary| {
        let target = binary
            .ancestors()
            .find(|directory| directory.join("CACHEDIR.TAG").is_file());
        target.map(Path::to_owned)
    });
    tagged.unwrap_or_else(|| "target".into()).join("snaptax/native")
}

/// Reads a `results.json`.
///
/// # Errors
/// When it cannot be read or is no list of results.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| Error::Format {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Comparison, Verdict};

    fn record(name: &str) -> Record {
        Record {
            verdict: Verdict::Invalid,
            reason: "the snapshot overflowed".into(),
            bounds: None,
            comparison: Comparison {
                name: name.into(),
                ..Comparison::default()
            },
        }
    }

    fn names(path: &Path) -> Vec<String> {
        read(path)
            .unwrap()
            .into_iter()
            .map(|record| record.comparison.name)
            .collect()
    }

    #[test]
    fn records_are_added_and_an_earlier_runs_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b").join(FILE_NAME);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "[of an earlier run").unwrap();

        append(path.parent().unwrap(), &record("first")).unwrap();
        assert_eq!(names(&path), ["first"]);
        append(path.parent().unwrap(), &record("second")).unwrap();
        assert_eq!(names(&path), ["first", "second"]);
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn others_may_read_results() {
        let directory = tempfile::tempdir().unwrap();
        let ordinary = directory.path().join("ordinary");
        fs::write(&ordinary, "").unwrap();
        let path = append(directory.path(), &record("oltp")).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&ordinary));
    }

    #[test]
    fn threads_do_not_lose_each_others_records() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let directory = directory.path();
                scope.spawn(move || append(directory, &record(name)).unwrap());
            }
        });
        let mut names = names(&directory.path().join(FILE_NAME));
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_file_that_is_no_list_of_results_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        assert!(matches!(read(&path), Err(Error::Read { .. })));
        fs::write(&path, "{}").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("results.json is no list of results"), "{message}");
    }
}
