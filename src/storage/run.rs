//! A run: its name in everything it makes, and its directory.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::OFlags;

use crate::storage::{Error, holders};

/// What every name begins with that a run gives to anything.
const PREFIX: &str = "snaptax-";

/// Locked for as long as the run lives, and the mark of a directory that snaptax made.
const LOCK: &str = "run.lock";

/// The mark of a run whose things are to stay.
const KEPT: &str = "kept";

/// Directories of a run that hold nothing but its own files.
const OWN: [&str; 2] = ["lvm", "run"];

/// Where a run mounts its origin.
const MOUNT: &str = "origin";

/// A run's name in everything it makes: its process, when that started, in clock ticks since boot, and the process
/// namespace in which it has that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId {
    process: u32,
    started: u64,
    namespace: u64,
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
            namespace: namespace(),
        }
    }

    /// Whether its process runs; `None` when it is of another process namespace, whose processes have other numbers
    /// here, if they can be seen at all.
    #[must_use]
    pub fn is_running(&self) -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        (self.namespace == namespace()).then(|| start_time(&stat) == Some(self.started))
    }

    /// The run that made something of this name, `snaptax-<run>` or `snaptax-<run>-<more>`.
    ///
    /// ```
    /// use snaptax::storage::RunId;
    ///
    /// let run = RunId::of_name("snaptax-812-90417-4026531836-vgtest").map(|run| run.to_string());
    /// assert_eq!(run.as_deref(), Some("812-90417-4026531836"));
    /// assert_eq!(RunId::of_name("snaptax-notes"), None);
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
        let id: Vec<&str> = parts.by_ref().take(3).collect();
        id.join("-").parse().ok()
    }

    /// The name of its directory.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{self}")
    }
}

/// Field 22 of proc_pid_stat(5); the second, in parentheses, may contain blanks and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// This process's namespace of processes (pid_namespaces(7)).
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.process, self.started, self.namespace)
    }
}

/// A text is not of the form `<process>-<start time>-<namespace>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a run, as in 812-90417-4026531836")]
pub struct NoRunId;

impl FromStr for RunId {
    type Err = NoRunId;

    fn from_str(text: &str) -> Result<Self, NoRunId> {
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or(NoRunId);
        let run = Self {
            process: part()?.parse().map_err(|_| NoRunId)?,
            started: part()?.parse().map_err(|_| NoRunId)?,
            namespace: part()?.parse().map_err(|_| NoRunId)?,
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
    gone: bool,
    // Held until the process ends, however it ends.
    _lock: File,
}

impl RunDirectory {
    /// Makes and locks it, and the work directory if that is missing.
    ///
    /// # Errors
    /// When it cannot be made, or is there already.
    pub fn create(work_dir: &Path) -> Result<Self, Error> {
        let path = work_dir.join(RunId::current().name());
        fs::create_dir_all(work_dir)
            .and_then(|()| fs::create_dir(&path))
            .map_err(Error::file("create", &path))?;
        match lock(&path) {
            Ok(lock) => Ok(Self {
                path,
                gone: false,
                _lock: lock,
            }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(Error::file("lock", &path)(error))
            }
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks all that the run made as to stay: only a sweep that is told so removes it.
    ///
    /// # Errors
    /// When it cannot be marked.
    pub fn mark_kept(&self) -> Result<(), Error> {
        let mark = self.path.join(KEPT);
        fs::write(&mark, "").map_err(Error::file("write", &mark))
    }

    /// Deletes it.
    ///
    /// # Errors
    /// When something is in it that the run did not make; all of it stays then.
    pub fn remove(mut self) -> Result<(), Error> {
        self.gone = true;
        clear(&self.path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if !self.gone
            && let Err(error) = clear(&self.path)
        {
            eprintln!("snaptax: left behind: {error}");
        }
    }
}

/// Locked before it has its name: where that is, the run lives as long as the lock is held.
fn lock(directory: &Path) -> io::Result<File> {
    let new = directory.join("run.lock.new");
    let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let locked = file.try_lock().map_err(io::Error::from);
    locked
        .and_then(|()| fs::rename(&new, directory.join(LOCK)))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
    Ok(file)
}

/// Deletes a run's directory and what a run puts there. Nothing is deleted when anything else is in it, is mounted in
/// it, or others may write to it.
fn clear(path: &Path) -> Result<(), Error> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("open", path)(error)),
    };
    let refuse = |why: String| Error::file("remove", path)(io::Error::other(why));
    let real = fs::canonicalize(path).map_err(Error::file("find", path))?;
    if let Some((_, at)) = holders::mounts_here().into_iter().find(|(_, at)| at.starts_with(&real)) {
        return Err(refuse(format!("{} is mounted", at.display())));
    }
    // By the open directory, whatever its path comes to name meanwhile.
    let inside = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mut files = Vec::new();
    for entry in fs::read_dir(&inside).map_err(Error::file("read", path))?.flatten() {
        let name = entry.file_name();
        let kind = entry.file_type().map_err(Error::file("read", path))?;
        match name.to_str() {
            Some(name) if kind.is_dir() && (OWN.contains(&name) || name == MOUNT) => {}
            Some(name) if kind.is_file() && is_own_file(name) => files.push(inside.join(name)),
            _ => return Err(refuse(format!("{} in it is not snaptax's", name.display()))),
        }
    }
    let mut removed = || -> io::Result<()> {
        for name in OWN.map(|name| inside.join(name)) {
            allow_missing(fs::remove_dir_all(name))?;
        }
        allow_missing(fs::remove_dir(inside.join(MOUNT)))?;
        // The marks last, so that what a kill leaves here is still known for a run's.
        files.sort_by_key(|file| file.ends_with(LOCK));
        files.iter().try_for_each(|file| allow_missing(fs::remove_file(file)))?;
        allow_missing(fs::remove_dir(path))
    };
    removed().map_err(Error::file("remove", path))
}

fn is_own_file(name: &str) -> bool {
    [LOCK, KEPT, "run.lock.new"].contains(&name)
        || Path::new(name).extension().is_some_and(|extension| extension == "pv")
}

/// Another sweep may have been quicker.
fn allow_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opens a directory that belongs to this user, and that nobody else may write to.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "others own it, or may write to it",
    ))
}

/// The directory of a run that may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The run.
    pub run: RunId,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether it still lives, as far as can be seen from here.
    pub alive: bool,
    /// Whether its things are to stay.
    pub kept: bool,
}

impl FoundRun {
    /// The runs that have a directory in this one.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all_in(work_dir: &Path) -> Result<Vec<Self>, Error> {
        let entries = fs::read_dir(work_dir).map_err(Error::file("read", work_dir))?;
        Ok(entries
            .flatten()
            .filter_map(|entry| Self::of_directory(&entry.path()))
            .collect())
    }

    /// The run whose directory this is: of its name and this user's, and with its mark in it, or with nothing in it.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Option<Self> {
        let name = directory.file_name()?.to_str()?;
        let run = RunId::of_name(name).filter(|run| run.name() == name)?;
        let inside = open(directory).ok()?;
        let inside = PathBuf::from(format!("/proc/self/fd/{}", inside.as_raw_fd()));
        let is_file = |name: &str| fs::symlink_metadata(inside.join(name)).is_ok_and(|metadata| metadata.is_file());
        if !is_file(LOCK) && fs::read_dir(&inside).ok()?.any(|entry| !is_new_lock(entry)) {
            return None;
        }
        Some(Self {
            run,
            directory: directory.to_owned(),
            alive: is_alive(&run, is_locked(&inside.join(LOCK))),
            kept: is_file(KEPT),
        })
    }

    /// Deletes the directory.
    ///
    /// # Errors
    /// When something is in it that the run did not make, or is mounted; nothing is deleted then.
    pub fn remove_directory(&self) -> Result<(), Error> {
        clear(&self.directory)
    }
}

fn is_new_lock(entry: io::Result<fs::DirEntry>) -> bool {
    entry.is_ok_and(|entry| entry.file_name() == "run.lock.new")
}

/// A run of another process namespace, in a container say, has ended only if its lock is there and free.
fn is_alive(run: &RunId, locked: Option<bool>) -> bool {
    match (locked, run.is_running()) {
        (Some(true), _) => true,
        (_, Some(running)) => running,
        (Some(false), None) => false,
        (None, None) => true,
    }
}

/// Whether the lock is held; `None` when there is none.
fn is_locked(lock: &Path) -> Option<bool> {
    let file = File::open(lock).ok()?;
    Some(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
        assert_eq!(run.is_running(), Some(true));
        let reused = RunId {
            started: run.started + 1,
            ..run
        };
        assert_eq!(reused.is_running(), Some(false), "another process of the same number");
        let elsewhere = RunId { namespace: 1, ..run };
        assert_eq!(elsewhere.is_running(), None);
    }

    #[rstest]
    #[case("snaptax-1-2-3", true)]
    #[case("snaptax-1-2-3-vgtest", true)]
    #[case("snaptax-1-2-3-vg-test", true)]
    #[case("snaptax-1-2", false)]
    #[case("snaptax-01-2-3", false)]
    #[case("snaptax-+1-2-3", false)]
    #[case("snaptax-1-2-3x", false)]
    #[case("snaptax-one-two-three", false)]
    #[case("my-snaptax-1-2-3", false)]
    fn a_name_is_a_runs_only_if_a_run_would_write_it_so(#[case] name: &str, #[case] ours: bool) {
        assert_eq!(RunId::of_name(name).is_some(), ours);
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written(process: u32, started: u64, namespace: u64) {
            let run = RunId { process, started, namespace };
            prop_assert_eq!(run.to_string().parse(), Ok(run));
            prop_assert_eq!(RunId::of_name(&format!("snaptax-{run}-x")), Some(run));
        }

        #[test]
        fn no_name_makes_it_panic(name in ".{0,40}") {
            let _ = RunId::of_name(&name);
        }
    }

    /// A process number that none can have, in this namespace.
    fn dead() -> String {
        format!("snaptax-4194305-1-{}", namespace())
    }

    #[test]
    fn a_run_directory_goes_away_with_all_that_is_the_runs() {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        let path = directory.path().to_owned();
        fs::create_dir_all(path.join("lvm/backup")).unwrap();
        fs::create_dir(path.join("origin")).unwrap();
        fs::write(path.join("vgtest.pv"), "").unwrap();
        directory.remove().unwrap();
        assert!(!path.exists());
    }

    #[rstest]
    #[case::another_file(|path: &Path| fs::write(path.join("notes.txt"), "mine"))]
    #[case::another_directory(|path: &Path| fs::create_dir(path.join("sub")))]
    #[case::a_link_in_place_of_a_directory(|path: &Path| std::os::unix::fs::symlink("/tmp", path.join("run")))]
    #[case::a_link_in_place_of_a_file(|path: &Path| std::os::unix::fs::symlink("/etc/hosts", path.join("x.pv")))]
    #[case::for_others_to_write(|path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o777)))]
    fn a_directory_with_anything_else_stays_as_it_is(#[case] change: impl FnOnce(&Path) -> io::Result<()>) {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        let path = directory.path().to_owned();
        fs::create_dir(path.join("lvm")).unwrap();
        fs::write(path.join("vgtest.pv"), "").unwrap();
        change(&path).unwrap();
        assert!(directory.remove().is_err());
        assert!(path.join("lvm").exists() && path.join("vgtest.pv").exists() && path.join(LOCK).exists());
    }

    #[test]
    fn a_living_run_is_seen_by_its_lock_alone() {
        let work_dir = tempfile::tempdir().unwrap();
        let path = work_dir.path().join(dead());
        fs::create_dir(&path).unwrap();
        let lock = File::create(path.join(LOCK)).unwrap();
        let alive = || FoundRun::of_directory(&path).unwrap().alive;
        assert!(!alive(), "no process of this number can run");
        lock.lock().unwrap();
        assert!(alive());
        drop(lock);
        // A program that another test starts just now has the lock, too, until it runs.
        assert!((0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !alive()
        }));
    }

    #[rstest]
    #[case::held(Some(true), true)]
    #[case::free(Some(false), false)]
    #[case::out_of_sight(None, true)]
    fn a_run_of_another_namespace_is_dead_only_if_its_lock_says_so(#[case] locked: Option<bool>, #[case] alive: bool) {
        let run = "1-2-3".parse().unwrap();
        assert_eq!(is_alive(&run, locked), alive);
    }

    #[test]
    fn a_kept_directory_says_so() {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        directory.mark_kept().unwrap();
        let found = FoundRun::all_in(work_dir.path()).unwrap();
        assert!(found[0].kept && found[0].alive && found[0].directory == directory.path());
    }

    #[rstest]
    #[case::without_its_mark(dead(), Some("notes.txt"))]
    #[case::with_a_directory_for_its_mark(dead(), Some("run.lock/x"))]
    #[case::of_another_name("snaptax-notes".into(), None)]
    #[case::with_more_to_its_name(dead() + "-old", None)]
    fn a_look_alike_is_no_runs_directory(#[case] name: String, #[case] file: Option<&str>) {
        let work_dir = tempfile::tempdir().unwrap();
        let path = work_dir.path().join(name);
        fs::create_dir(&path).unwrap();
        if let Some(file) = file.map(|file| path.join(file)) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        assert_eq!(FoundRun::all_in(work_dir.path()).unwrap(), []);
    }

    #[test]
    fn a_link_is_no_runs_directory() {
        let work_dir = tempfile::tempdir().unwrap();
        let target = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(target.path(), work_dir.path().join(dead())).unwrap();
        assert_eq!(FoundRun::all_in(work_dir.path()).unwrap(), []);
    }
}
