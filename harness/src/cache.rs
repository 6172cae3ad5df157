//! The cache directory: images under their keys, scratch space, locks.
//!
//! An image is built in scratch space beside the others and renamed into place, so that a killed build leaves
//! nothing that looks finished. What it is made of is written down; one that is found to differ is built anew. Images
//! and scratch space are locked as long as they are in use: others remove what nobody has locked, and nothing else. The
//! directory may be anyone's, so that only names made here are ever removed.

mod seal;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

pub(crate) use seal::Use;

use crate::file;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Raised whenever the layout of an image changes without a change of its recipe.
const SCHEMA: &str = "2";

/// Where scratch space is, inside the cache.
const SCRATCH: &str = "snaptax-scratch";
/// The lock of the one guest that runs at a time.
const GUEST: &str = "guest";
/// How the name of scratch space begins.
const SCRATCH_PREFIX: &str = "scratch-";

/// How often a lock that others hold is tried.
const RETRY: Duration = Duration::from_millis(200);

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
    /// No directory is known.
    #[error(
        "no cache directory: of SNAPTAX_CACHE, XDG_CACHE_HOME and HOME none is set to an absolute path; use --cache DIR"
    )]
    NoDirectory,
    /// Its path cannot be written down.
    #[error("{} is no path of UTF-8 letters; use another one with --cache DIR", .0.display())]
    NotUtf8(PathBuf),
    /// A signal came while others held a lock.
    #[error("interrupted")]
    Interrupted,
}

/// What an image depends on, as a short hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key of an image that depends on exactly these texts.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(&SCHEMA).chain(parts) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let mut text = String::new();
        for byte in &hash.finalize()[..8] {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// The hash in hexadecimal digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The cache directory.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    directory: PathBuf,
    progress: Progress,
    interrupt: Interrupt,
    /// Images that were looked at: those that are whole with the lock that keeps them.
    seen: Arc<Mutex<BTreeMap<PathBuf, Option<File>>>>,
}

/// A directory of this process, removed with the value, and only then unlocked.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
    _lock: File,
}

impl Scratch {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Cache {
    /// The directory used when none is given.
    ///
    /// # Errors
    /// When the environment names none.
    pub(crate) fn default_directory() -> Result<PathBuf, Error> {
        let variable = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                // As the XDG base directory specification has it.
                .filter(|path| path.is_absolute())
        };
        variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .map(|base| base.join("snaptax"))
            .ok_or(Error::NoDirectory)
    }

    /// Opens the cache, and removes scratch space that nobody uses any more. Waits for others are shown and can be
    /// interrupted.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn open(directory: &Path, progress: &Progress, interrupt: &Interrupt) -> Result<Self, Error> {
        if directory.to_str().is_none() {
            return Err(Error::NotUtf8(directory.to_owned()));
        }
        let scratch = directory.join(SCRATCH);
        fs::create_dir_all(&scratch).map_err(file::error("create", &scratch))?;
        let directory = fs::canonicalize(directory).map_err(file::error("find", directory))?;
        let cache = Self {
            directory,
            progress: progress.clone(),
            interrupt: interrupt.clone(),
            seen: Arc::default(),
        };
        // Another user's cache is told of now, and not after a build.
        for name in [SCRATCH, GUEST] {
            cache.lock_file(name)?;
        }
        cache.sweep();
        Ok(cache)
    }

    fn sweep(&self) {
        // Without the lock, somebody makes scratch space just now that is not locked yet.
        let Ok(Some(_lock)) = self.try_lock(SCRATCH) else {
            return;
        };
        let Ok(entries) = fs::read_dir(self.directory.join(SCRATCH)) else {
            return;
        };
        for entry in entries.flatten() {
            let ours = entry.file_name().to_string_lossy().starts_with(SCRATCH_PREFIX)
                && entry.file_type().is_ok_and(|kind| kind.is_dir());
            let unused = || File::open(entry.path()).is_ok_and(|directory| directory.try_lock().is_ok());
            if ours && unused() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Where the cache is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Scratch space on the cache's filesystem.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub(crate) fn scratch(&self) -> Result<Scratch, Error> {
        let parent = self.directory.join(SCRATCH);
        let _making = self.lock(SCRATCH, "another cargo experiments to tidy up")?;
        let directory = tempfile::Builder::new()
            .prefix(SCRATCH_PREFIX)
            .tempdir_in(&parent)
            .map_err(file::error("create scratch space in", &parent))?;
        let lock = File::open(directory.path()).map_err(file::error("open", directory.path()))?;
        lock.lock().map_err(file::error("lock", directory.path()))?;
        Ok(Scratch { directory, _lock: lock })
    }

    /// Whether there is an image of this name and key, whole or not.
    pub(crate) fn has(&self, name: &str, key: &Key) -> bool {
        self.place(name, key).is_dir()
    }

    /// The image of this name and key, if it was built and is whole. It stays as long as this cache, or a clone of it,
    /// is open.
    pub(crate) fn get(&self, name: &str, key: &Key) -> Option<PathBuf> {
        let place = self.place(name, key);
        let mut seen = self.seen();
        let kept = seen.entry(place.clone()).or_insert_with(|| {
            let kept = self.keep(&place);
            if let Err(Some(damage)) = &kept {
                let note = format!("{} is damaged ({damage}) and is built anew", place.display());
                self.progress.note(&note);
            }
            kept.ok()
        });
        kept.is_some().then_some(place)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Option<File>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock of an image that is whole; what is wrong with one that is not; nothing if there is none. It is locked
    /// before it is looked at: others may be about to remove it.
    fn keep(&self, image: &Path) -> Result<File, Option<String>> {
        let lock = File::open(image).map_err(|_| None)?;
        lock.try_lock_shared().map_err(|_| None)?;
        if !image.is_dir() {
            return Err(None);
        }
        match seal::broken(image) {
            Some(damage) => Err(Some(damage)),
            None => Ok(lock),
        }
    }

    /// The image of this name and key; built by `fill` into the directory it is given, if need be. Images of the
    /// same name under other keys are removed then, unless somebody uses them, and so is a damaged one.
    ///
    /// # Errors
    /// When `fill` fails, or the image cannot be put in place.
    pub(crate) fn get_or_build<E: From<Error>>(
        &self,
        name: &str,
        key: &Key,
        usage: Use,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.get(name, key) {
            return Ok(path);
        }
        let _lock = self.lock(name, &format!("another cargo experiments to build the {name} image"))?;
        // Whoever had the lock may have built it meanwhile.
        let place = self.place(name, key);
        if let Ok(lock) = self.keep(&place) {
            self.seen().insert(place.clone(), Some(lock));
            return Ok(place);
        }
        let scratch = self.scratch()?;
        let building = scratch.path().join("image");
        fs::create_dir(&building).map_err(|error| Error::from(file::error("create", &building)(error)))?;
        fill(&building)?;
        seal::write(&building, usage).map_err(|error| Error::from(file::error("seal", &building)(error)))?;
        if place.exists() {
            // Whoever still uses the damaged one has it open.
            fs::rename(&place, scratch.path().join("damaged"))
                .map_err(|error| Error::from(file::error("take away the damaged image", &place)(error)))?;
        }
        let lock = File::open(&building).and_then(|directory| directory.lock_shared().map(|()| directory));
        let lock = lock.map_err(|error| Error::from(file::error("lock", &building)(error)))?;
        fs::rename(&building, &place)
            .map_err(|error| Error::from(file::error("put an image in place at", &place)(error)))?;
        self.seen().insert(place.clone(), Some(lock));
        self.remove_others(name, key);
        Ok(place)
    }

    /// Waits until no other guest of this cache runs: two would disturb each other's measurements. The next may start
    /// when the file is closed.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(crate) fn alone(&self) -> Result<File, Error> {
        self.lock(GUEST, "another guest to end")
    }

    /// The lock of this name, held as long as the file is open. A wait for others is shown, as one for `whom`.
    ///
    /// # Errors
    /// When the lock file cannot be opened or locked, or a signal comes.
    pub(crate) fn lock(&self, name: &str, whom: &str) -> Result<File, Error> {
        if let Some(lock) = self.try_lock(name)? {
            return Ok(lock);
        }
        self.progress.note(&format!("waiting for {whom}"));
        let step = self.progress.step("waiting");
        loop {
            if self.interrupt.is_set() {
                return Err(Error::Interrupted);
            }
            thread::sleep(RETRY);
            if let Some(lock) = self.try_lock(name)? {
                step.done();
                return Ok(lock);
            }
        }
    }

    /// The lock of this name, if nobody holds it.
    ///
    /// # Errors
    /// When the lock file cannot be opened or locked.
    fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let (path, file) = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(file::error("lock", &path)(source).into()),
        }
    }

    fn lock_file(&self, name: &str) -> Result<(PathBuf, File), Error> {
        let path = self.directory.join(format!("{name}.lock"));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(file::error("open", &path))?;
        Ok((path, file))
    }

    fn place(&self, name: &str, key: &Key) -> PathBuf {
        self.directory.join(format!("{name}-{}", key.as_str()))
    }

    fn remove_others(&self, name: &str, key: &Key) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let other = file_name
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|hash| hash != key.as_str() && is_key(hash));
            let unused = || File::open(entry.path()).is_ok_and(|image| image.try_lock().is_ok());
            if other && unused() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Whether a text has the shape of a [`Key`].
fn is_key(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path) -> Cache {
        Cache::open(directory, &Progress::new(), &Interrupt::default()).unwrap()
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(directory.path());
        (directory, cache)
    }

    fn write(text: &'static str) -> impl FnOnce(&Path) -> Result<(), Error> {
        move |directory| Ok(fs::write(directory.join("root"), text).map_err(file::error("write", directory))?)
    }

    #[test]
    fn an_image_is_built_once_and_again_under_another_key() {
        let (directory, cache) = cache();
        let (old, new) = (Key::of(&["lvm2"]), Key::of(&["lvm2", "xfsprogs"]));
        let path = cache.get_or_build("root", &old, Use::Read, write("old")).unwrap();
        let again = cache.get_or_build("root", &old, Use::Read, |_| -> Result<(), Error> {
            panic!("built twice")
        });
        assert_eq!(again.unwrap(), path);
        cache
            .get_or_build("root-other", &old, Use::Read, write("other"))
            .unwrap();
        let foreign = cache.directory().join("root-of-all-good-ones");
        assert_eq!("of-all-good-ones".len(), 16);
        fs::create_dir(&foreign).unwrap();

        let later = open(directory.path());
        let newer = later.get_or_build("root", &new, Use::Read, write("new")).unwrap();
        assert_eq!(fs::read_to_string(newer.join("root")).unwrap(), "new");
        assert!(path.exists(), "an image is kept while somebody uses it");
        drop(cache);
        let newest = Key::of(&["lvm2", "btrfs-progs"]);
        later.get_or_build("root", &newest, Use::Read, write("newest")).unwrap();
        assert!(!path.exists(), "an old key's image is removed");
        let cache = open(directory.path());
        assert!(cache.get("root-other", &old).is_some(), "another image is kept");
        assert!(foreign.exists(), "what is no image is kept");
    }

    #[test]
    fn a_damaged_image_is_built_anew() {
        let (directory, cache) = cache();
        let key = Key::of(&["lvm2"]);
        let path = cache.get_or_build("root", &key, Use::Read, write("old")).unwrap();
        fs::write(path.join("root"), "OLD").unwrap();
        let cache = open(directory.path());
        assert_eq!(cache.get("root", &key), None);
        cache.get_or_build("root", &key, Use::Read, write("new")).unwrap();
        assert_eq!(fs::read_to_string(path.join("root")).unwrap(), "new");
        assert_eq!(cache.get("root", &key), Some(path));
    }

    #[test]
    fn a_failed_build_leaves_no_image_and_no_scratch_space() {
        let (directory, cache) = cache();
        let key = Key::of(&["x"]);
        let failed = cache.get_or_build("root", &key, Use::Read, |path| {
            fs::write(path.join("half"), "made").unwrap();
            Err(Error::NoDirectory)
        });
        assert!(failed.is_err() && cache.get("root", &key).is_none());
        assert_eq!(fs::read_dir(directory.path().join(SCRATCH)).unwrap().count(), 0);
    }

    #[test]
    fn scratch_space_that_nobody_uses_is_removed_and_nothing_else() {
        let (directory, cache) = cache();
        let mine = cache.scratch().unwrap();
        let inside = |name: &str| directory.path().join(name);
        let left = inside("snaptax-scratch/scratch-left");
        // As in a home directory that is given as the cache. Process ids end below 4194304.
        let others = [inside("tmp/4194305-taxes"), inside("snaptax-scratch/4194305-taxes")];
        for path in others.iter().chain([&left]) {
            fs::create_dir_all(path).unwrap();
        }
        open(directory.path());
        assert!(mine.path().exists() && !left.exists());
        assert!(others.iter().all(|path| path.exists()));
    }

    #[test]
    fn keys_tell_apart_what_joins_to_the_same_text() {
        assert_ne!(Key::of(&["ab", "c"]), Key::of(&["a", "bc"]));
    }

    #[test]
    fn a_wait_for_a_lock_ends_with_the_lock_or_with_a_signal() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let cache = Cache::open(directory.path(), &Progress::new(), &interrupt).unwrap();
        let held = cache.lock("guest", "nobody").unwrap();
        assert!(cache.try_lock("guest").unwrap().is_none());
        let waiter = thread::spawn({
            let cache = cache.clone();
            move || cache.lock("guest", "the test").map(drop)
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().unwrap().unwrap();

        let _held = cache.lock("guest", "nobody").unwrap();
        interrupt.stop();
        assert!(matches!(cache.lock("guest", "the test"), Err(Error::Interrupted)));
    }
}
