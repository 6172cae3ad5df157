//! A run: its name in everything it makes, and its directory.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::storage::Error;

/// What every name begins with that a run gives to anything.
const PREFIX: &str = "snaptax-";

/// Locked for as long as the run lives, and the mark of a directory that snaptax made.
const LOCK: &str = "run.lock";

/// The mark of a run whose things are to stay.
const KEPT: &str = "kept";

/// A run's name in everything it makes: its process, and when that started, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId {
    process: u32,
    started: u64,
}

impl RunId {
    /// The id of this process.
    #[must_use]
    pub fn current() -> Self {
        let process = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            process,
            started: start_time(&stat).unwrap_or(0),
        }
    }

    /// Whether its process runs, as far as this process sees others.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        start_time(&stat) == Some(self.started)
    }

    /// The run that made something of this name, `snaptax-<run>` or `snaptax-<run>-<more>`.
    ///
    /// ```
    /// use snaptax::storage::RunId;
    ///
    /// let run = RunId::of_name("snaptax-812-90417-vgtest").map(|run| run.to_string());
    /// assert_eq!(run.as_deref(), Some("812-90417"));
    /// assert_eq!(RunId::of_name("snaptax-notes"), None);
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
        format!("{}-{}", parts.next()?, parts.next()?).parse().ok()
    }
}

/// Field 22 of proc_pid_stat(5); the second, in parentheses, may contain blanks and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.process, self.started)
    }
}

/// A text is not of the form `<process>-<start time>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a run, as in 812-90417")]
pub struct NoRunId;

impl FromStr for RunId {
    type Err = NoRunId;

    fn from_str(text: &str) -> Result<Self, NoRunId> {
        let (process, started) = text.split_once('-').ok_or(NoRunId)?;
        let run = Self {
            process: process.parse().map_err(|_| NoRunId)?,
            started: started.parse().map_err(|_| NoRunId)?,
        };
        // As it would write it itself: no signs, no leading zeros.
        if run.to_string() == text { Ok(run) } else { Err(NoRunId) }
    }
}

/// A directory for all files of this run: `snaptax-<run>` in the work directory. Removed when dropped, but for what
/// somebody else put there.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    kept: bool,
    // Held until the process ends, however it ends.
    _lock: File,
}

impl RunDirectory {
    /// Makes and locks it, and the work directory if that is missing.
    ///
    /// # Errors
    /// When it cannot be made, or is there already.
    pub fn create(work_dir: &Path) -> Result<Self, Error> {
        let path = work_dir.join(format!("{PREFIX}{}", RunId::current()));
        fs::create_dir_all(work_dir)
            .and_then(|()| fs::create_dir(&path))
            .map_err(Error::file("create", &path))?;
        let file = path.join(LOCK);
        let lock = OpenOptions::new().write(true).create_new(true).open(&file);
        let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
        let lock = lock.map_err(|error| {
            let _ = fs::remove_file(&file).and_then(|()| fs::remove_dir(&path));
            Error::file("lock", &file)(error)
        })?;
        Ok(Self {
            path,
            kept: false,
            _lock: lock,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it, and all that the run made, stay when the run ends: only a sweep that is told so removes it.
    ///
    /// # Errors
    /// When it cannot be marked.
    pub fn keep(mut self) -> Result<PathBuf, Error> {
        let mark = self.path.join(KEPT);
        fs::write(&mark, "").map_err(Error::file("write", &mark))?;
        self.kept = true;
        Ok(self.path.clone())
    }

    /// Deletes it.
    ///
    /// # Errors
    /// When something is in it that the run did not make.
    pub fn remove(mut self) -> Result<(), Error> {
        clear(&self.path)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = clear(&self.path)
        {
            eprintln!("snaptax: left behind: {error}");
        }
    }
}

/// Deletes a run's directory and what a run puts there: never by descending into a mount, and nothing else.
fn clear(path: &Path) -> Result<(), Error> {
    let here = fs::symlink_metadata(path).map(|metadata| metadata.dev());
    let Ok(device) = here else { return Ok(()) };
    for name in ["lvm", "run"] {
        let part = path.join(name);
        if fs::symlink_metadata(&part).is_ok_and(|metadata| metadata.is_dir() && metadata.dev() == device) {
            fs::remove_dir_all(&part).map_err(Error::file("remove", &part))?;
        }
    }
    for entry in fs::read_dir(path).map_err(Error::file("read", path))?.flatten() {
        let part = entry.path();
        let is_volume = part.extension().is_some_and(|extension| extension == "pv");
        if is_volume && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::remove_file(&part).map_err(Error::file("remove", &part))?;
        }
    }
    // An empty mount point. One that is mounted stays, and is named by what follows.
    let _ = fs::remove_dir(path.join("origin"));
    let marks = [KEPT, LOCK].map(|name| path.join(name));
    let others = fs::read_dir(path).map_err(Error::file("read", path))?.flatten();
    if let Some(other) = others.map(|entry| entry.path()).find(|other| !marks.contains(other)) {
        let why = io::Error::other(format!("{} is in it", other.display()));
        return Err(Error::file("remove", path)(why));
    }
    for mark in marks {
        if let Err(error) = fs::remove_file(&mark)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::file("remove", &mark)(error));
        }
    }
    fs::remove_dir(path).map_err(Error::file("remove", path))
}

/// The directory of a run that may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The run.
    pub run: RunId,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether it still lives.
    pub alive: bool,
    /// Whether its things are to stay.
    pub kept: bool,
}

impl FoundRun {
    /// The runs that have a directory in this one.
    ///
    /// # Errors
    /// When the directory cannot be read; one that is missing has none.
    pub fn all_in(work_dir: &Path) -> Result<Vec<Self>, Error> {
        let entries = match fs::read_dir(work_dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file("read", work_dir)(error)),
        };
        let directories = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(directories
            .filter_map(|entry| Self::of_directory(&entry.path()))
            .collect())
    }

    /// The run whose directory this is: of its name, and with its mark in it, or with nothing in it.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Option<Self> {
        let name = directory.file_name()?.to_str()?;
        let run = RunId::of_name(name).filter(|run| format!("{PREFIX}{run}") == name)?;
        let lock = directory.join(LOCK);
        let is_ours = lock.is_file() || fs::read_dir(directory).ok()?.next().is_none();
        is_ours.then(|| Self {
            run,
            directory: directory.to_owned(),
            alive: run.is_running() || is_locked(&lock),
            kept: directory.join(KEPT).is_file(),
        })
    }

    /// Deletes the directory.
    ///
    /// # Errors
    /// When something is in it that the run did not make, or is mounted.
    pub fn remove_directory(&self) -> Result<(), Error> {
        clear(&self.directory)
    }
}

/// A process elsewhere, in a container say, may have the directory too, and another number there.
fn is_locked(lock: &Path) -> bool {
    let Ok(file) = File::open(lock) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("7 (a b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2", Some(98_765))]
    #[case("7 (x) S 1", None)]
    #[case("", None)]
    fn the_start_time_is_found_behind_any_name(#[case] stat: &str, #[case] started: Option<u64>) {
        assert_eq!(start_time(stat), started);
    }

    #[test]
    fn a_run_keeps_its_id_and_knows_that_it_runs() {
        let run = RunId::current();
        assert_eq!(run, RunId::current());
        assert!(run.is_running());
        let other = RunId {
            started: run.started + 1,
            ..run
        };
        assert!(!other.is_running(), "another process of the same number");
    }

    #[rstest]
    #[case("snaptax-1-2", true)]
    #[case("snaptax-1-2-vgtest", true)]
    #[case("snaptax-1-2-vg-test", true)]
    #[case("snaptax-1", false)]
    #[case("snaptax-01-2", false)]
    #[case("snaptax-+1-2", false)]
    #[case("snaptax-1-2x", false)]
    #[case("snaptax-one-two", false)]
    #[case("my-snaptax-1-2", false)]
    fn a_name_is_a_runs_only_if_a_run_would_write_it_so(#[case] name: &str, #[case] ours: bool) {
        assert_eq!(RunId::of_name(name).is_some(), ours);
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written(process: u32, started: u64) {
            let run = RunId { process, started };
            prop_assert_eq!(run.to_string().parse(), Ok(run));
            prop_assert_eq!(RunId::of_name(&format!("snaptax-{run}-x")), Some(run));
        }

        #[test]
        fn no_name_makes_it_panic(name in ".{0,40}") {
            let _ = RunId::of_name(&name);
        }
    }

    #[test]
    fn a_run_directory_goes_away_but_for_what_is_not_its_own() {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        let path = directory.path().to_owned();
        fs::create_dir_all(path.join("lvm/backup")).unwrap();
        fs::write(path.join("vgtest.pv"), "").unwrap();
        fs::write(path.join("other"), "").unwrap();
        assert!(directory.remove().is_err());
        assert!(path.join("other").is_file() && !path.join("lvm").exists() && !path.join("vgtest.pv").exists());
    }

    #[test]
    fn a_living_run_is_seen_by_its_lock_alone() {
        let work_dir = tempfile::tempdir().unwrap();
        let path = work_dir.path().join("snaptax-4194305-1");
        fs::create_dir(&path).unwrap();
        let lock = File::create(path.join(LOCK)).unwrap();
        let found = || FoundRun::of_directory(&path).unwrap();
        assert!(!found().alive, "no process of this number can run");
        lock.lock().unwrap();
        assert!(found().alive);
        drop(lock);
        assert!(!found().alive);
    }

    #[test]
    fn a_kept_directory_stays_and_says_so() {
        let work_dir = tempfile::tempdir().unwrap();
        let path = RunDirectory::create(work_dir.path()).unwrap().keep().unwrap();
        let found = FoundRun::all_in(work_dir.path()).unwrap();
        assert!(found[0].kept && found[0].directory == path);
        found[0].remove_directory().unwrap();
        assert_eq!(FoundRun::all_in(work_dir.path()).unwrap(), []);
    }

    #[rstest]
    #[case::without_its_mark("snaptax-4194305-1", Some("notes.txt"))]
    #[case::of_another_name("snaptax-notes", None)]
    #[case::with_more_to_its_name("snaptax-4194305-1-old", None)]
    fn a_look_alike_is_no_runs_directory(#[case] name: &str, #[case] file: Option<&str>) {
        let work_dir = tempfile::tempdir().unwrap();
        let path = work_dir.path().join(name);
        fs::create_dir(&path).unwrap();
        if let Some(file) = file {
            fs::write(path.join(file), "").unwrap();
        }
        assert_eq!(FoundRun::all_in(work_dir.path()).unwrap(), []);
    }
}
