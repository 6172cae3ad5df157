//! A run: its directory, and whether it still lives.

mod id;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

pub use id::{NoRunId, RunId};

use crate::storage::{Error, complain, holders, printable};

/// Of a run's directory, whatever else the umask would allow: a directory that others may write to is no run's.
const MODE: u32 = 0o755;

/// Locked for as long as the run lives, and the mark of a directory that snaptax made.
const LOCK: &str = "run.lock";

/// The mark of a run whose things are to stay.
const KEPT: &str = "kept";

/// Directories of a run that hold nothing but its own files.
const OWN: [&str; 2] = ["lvm", "run"];

/// Where a run mounts its origin.
const MOUNT: &str = "origin";

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
            .and_then(|()| DirBuilder::new().mode(MODE).create(&path))
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
            complain(format_args!("left behind: {error}"));
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
            Some(name) if kind.is_dir() && OWN.contains(&name) => {}
            Some(MOUNT) if kind.is_dir() && is_empty(&inside.join(MOUNT)) => {}
            Some(name) if kind.is_file() && is_own_file(name) => files.push(inside.join(name)),
            _ => return Err(refuse(format!("{} in it is not snaptax's", printable(name.as_ref())))),
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

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
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

/// Opens a directory that belongs to this user, or to root, and that nobody else may write to.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let owner = metadata.uid();
    if (owner == 0 || owner == rustix::process::geteuid().as_raw()) && metadata.mode() & 0o022 == 0 {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "others own it, or may write to it",
    ))
}

/// Whether a run lives, as far as can be seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It has ended.
    Ended,
    /// Its process is of another process namespace, in a container or on another machine, and its directory is out of
    /// sight.
    OutOfSight,
}

/// The directory of a run that may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The run.
    pub run: RunId,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether it still lives.
    pub life: Life,
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

    /// The run whose directory this is: of its name and this user's or root's, and with its mark in it, or with nothing in it.
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
        // Two ways to the same directory are one directory.
        let parent = directory.parent().and_then(|parent| fs::canonicalize(parent).ok());
        Some(Self {
            run,
            directory: parent.map_or_else(|| directory.to_owned(), |parent| parent.join(name)),
            life: life(&run, is_locked(&inside.join(LOCK))),
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

/// A run of another process namespace has ended only if its lock is there and free.
fn life(run: &RunId, locked: Option<bool>) -> Life {
    match (locked, run.life()) {
        (Some(true), _) => Life::Running,
        (Some(false), Life::OutOfSight) => Life::Ended,
        (_, life) => life,
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

    use rstest::rstest;

    /// A process number that none can have, in this namespace.
    fn dead() -> String {
        format!("snaptax-4194305-1-{}", id::namespace())
    }

    /// A directory as a run makes it.
    fn make(path: &Path) {
        DirBuilder::new().mode(MODE).create(path).unwrap();
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
    #[case::something_where_the_origin_was(|path: &Path| fs::create_dir_all(path.join("origin/mine")))]
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
        make(&path);
        let lock = File::create(path.join(LOCK)).unwrap();
        let alive = || FoundRun::of_directory(&path).unwrap().life == Life::Running;
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
    #[case::held(Some(true), Life::Running)]
    #[case::free(Some(false), Life::Ended)]
    #[case::missing(None, Life::OutOfSight)]
    fn a_run_of_another_namespace_has_ended_only_if_its_lock_says_so(
        #[case] locked: Option<bool>,
        #[case] expected: Life,
    ) {
        let run = "1-2-3".parse().unwrap();
        assert_eq!(life(&run, locked), expected);
    }

    #[test]
    fn a_kept_directory_says_so() {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        directory.mark_kept().unwrap();
        let found = FoundRun::all_in(work_dir.path()).unwrap();
        assert!(found[0].kept && found[0].life == Life::Running && found[0].directory == directory.path());
    }

    #[test]
    fn a_directory_is_one_by_whatever_way_it_is_found() {
        let place = tempfile::tempdir().unwrap();
        let work_dir = place.path().join("work");
        fs::create_dir(&work_dir).unwrap();
        make(&work_dir.join(dead()));
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&work_dir, &link).unwrap();
        assert_eq!(FoundRun::all_in(&link).unwrap(), FoundRun::all_in(&work_dir).unwrap());
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
