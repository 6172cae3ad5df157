//! The cache directory: images under their keys, scratch space, locks.
//!
//! An image is built in scratch space beside the others and renamed into place, so that a killed build leaves
//! nothing that looks finished. Scratch space belongs to a process and is removed when that process is gone.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Raised whenever the layout of an image changes without a change of its recipe.
const SCHEMA: &str = "1";

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No directory is known.
    #[error("no cache directory: neither SNAPTAX_CACHE, XDG_CACHE_HOME nor HOME is set; use --cache DIR")]
    NoDirectory,
}

/// Attaches what was tried to an I/O error.
fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
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
}

/// A directory of this process, removed with the value.
#[derive(Debug)]
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
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
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .map(|base| base.join("snaptax"))
            .ok_or(Error::NoDirectory)
    }

    /// Opens the cache, and removes the scratch space of processes that are gone.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let scratch = directory.join("tmp");
        fs::create_dir_all(&scratch).map_err(io("create", &scratch))?;
        let directory = fs::canonicalize(directory).map_err(io("find", directory))?;
        let cache = Self { directory };
        cache.sweep();
        Ok(cache)
    }

    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(self.directory.join("tmp")) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.split('-').next().and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
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
    /// When it cannot be made.
    pub(crate) fn scratch(&self) -> Result<Scratch, Error> {
        let parent = self.directory.join("tmp");
        tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(&parent)
            .map(Scratch)
            .map_err(io("create scratch space in", &parent))
    }

    /// The image of this name and key, if it was built.
    pub(crate) fn get(&self, name: &str, key: &Key) -> Option<PathBuf> {
        Some(self.place(name, key)).filter(|path| path.is_dir())
    }

    /// The image of this name and key; built by `fill` into the directory it is given, if need be. Images of the
    /// same name under other keys are removed then.
    ///
    /// # Errors
    /// When `fill` fails, or the image cannot be put in place.
    pub(crate) fn get_or_build<E: From<Error>>(
        &self,
        name: &str,
        key: &Key,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.get(name, key) {
            return Ok(path);
        }
        let _lock = self.lock(name)?;
        if let Some(path) = self.get(name, key) {
            return Ok(path);
        }
        let scratch = self.scratch()?;
        let building = scratch.path().join("image");
        fs::create_dir(&building).map_err(io("create", &building))?;
        fill(&building)?;
        let place = self.place(name, key);
        fs::rename(&building, &place).map_err(io("put an image in place at", &place))?;
        self.remove_others(name, key);
        Ok(place)
    }

    /// Waits for the lock of this name; it is held as long as the file is open.
    ///
    /// # Errors
    /// When the lock file cannot be opened or locked.
    pub(crate) fn lock(&self, name: &str) -> Result<File, Error> {
        let (path, file) = self.lock_file(name)?;
        file.lock().map_err(io("lock", &path))?;
        Ok(file)
    }

    /// The lock of this name, if nobody holds it.
    ///
    /// # Errors
    /// When the lock file cannot be opened or locked.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let (path, file) = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(io("lock", &path)(source)),
        }
    }

    fn lock_file(&self, name: &str) -> Result<(PathBuf, File), Error> {
        let path = self.directory.join(format!("{name}.lock"));
        let file = File::create(&path).map_err(io("open", &path))?;
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
                .is_some_and(|hash| hash != key.as_str() && hash.len() == 16 && !hash.contains('-'));
            if other {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        (directory, cache)
    }

    fn write(text: &'static str) -> impl FnOnce(&Path) -> Result<(), Error> {
        move |directory| fs::write(directory.join("root"), text).map_err(io("write", directory))
    }

    #[test]
    fn an_image_is_built_once_and_again_under_another_key() {
        let (_directory, cache) = cache();
        let (old, new) = (Key::of(&["lvm2"]), Key::of(&["lvm2", "xfsprogs"]));
        let path = cache.get_or_build("root", &old, write("old")).unwrap();
        let again = cache.get_or_build("root", &old, |_| -> Result<(), Error> { panic!("built twice") });
        assert_eq!(again.unwrap(), path);
        cache.get_or_build("root-other", &old, write("other")).unwrap();

        let newer = cache.get_or_build("root", &new, write("new")).unwrap();
        assert_eq!(fs::read_to_string(newer.join("root")).unwrap(), "new");
        assert!(!path.exists(), "the old key's image is removed");
        assert!(cache.get("root-other", &old).is_some(), "another image is kept");
    }

    #[test]
    fn a_failed_build_leaves_no_image_and_no_scratch_space() {
        let (directory, cache) = cache();
        let key = Key::of(&["x"]);
        let failed = cache.get_or_build("root", &key, |path| {
            fs::write(path.join("half"), "made").unwrap();
            Err(Error::NoDirectory)
        });
        assert!(failed.is_err() && cache.get("root", &key).is_none());
        assert_eq!(fs::read_dir(directory.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn scratch_space_of_dead_processes_only_is_removed() {
        let (directory, cache) = cache();
        let mine = cache.scratch().unwrap();
        // Above the kernel's largest process id.
        let dead = directory.path().join("tmp/4194305-left");
        fs::create_dir(&dead).unwrap();
        Cache::open(directory.path()).unwrap();
        assert!(mine.path().exists() && !dead.exists());
    }

    #[test]
    fn keys_tell_apart_what_joins_to_the_same_text() {
        assert_ne!(Key::of(&["ab", "c"]), Key::of(&["a", "bc"]));
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let (_directory, cache) = cache();
        let held = cache.lock("guest").unwrap();
        assert!(cache.try_lock("guest").unwrap().is_none());
        drop(held);
        assert!(cache.try_lock("guest").unwrap().is_some());
    }
}
