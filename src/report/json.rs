//! `results.json`: a list of [`Record`]s.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use tempfile::NamedTempFile;

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
    let failed = |source| Error::Write {
        path: path.clone(),
        source,
    };
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let records = written.entry(path.clone()).or_default();
    records.push(record.clone());
    fs::create_dir_all(directory).map_err(failed)?;
    replace(directory, &path, records).map_err(failed)?;
    Ok(path)
}

fn replace(directory: &Path, path: &Path, records: &[Record]) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(directory)?;
    serde_json::to_writer_pretty(&mut file, records)?;
    file.write_all(b"\n")?;
    file.persist(path)?;
    Ok(())
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
