//! Disks that a guest writes to.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::free_space;

use super::Error;
use crate::cache::{Cache, Key, Use};
use crate::file;
use crate::interrupt::{self, Interrupt};

/// What a guest writes beside the measured disk, with room to spare.
const SCRATCH: Size = Size::mib(512);

/// The measured disk: a file written in full, so that the host allocates nothing while the guest measures.
///
/// # Errors
/// When there is no room, writing fails, or a signal comes.
pub(crate) fn measured(cache: &Cache, size: Size, interrupt: &Interrupt) -> Result<PathBuf, Error> {
    let key = Key::of(&["measured", &size.as_bytes().to_string()]);
    let directory = cache.get_or_build("disk", &key, Use::Written, |directory| -> Result<(), Error> {
        let path = directory.join("disk.raw");
        check_space("the measured disk", directory, size)?;
        let filled = fill(&path, size.as_bytes(), interrupt);
        filled.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Error::Supervise(interrupt::Error::Interrupted),
            _ => file::error("write", &path)(error).into(),
        })
    })?;
    Ok(directory.join("disk.raw"))
}

/// Whether the measured disk is there.
pub(crate) fn is_cached(cache: &Cache, size: Size) -> bool {
    cache
        .get("disk", &Key::of(&["measured", &size.as_bytes().to_string()]))
        .is_some()
}

/// Checks that there is room for the measured disk, should it have to be made.
///
/// # Errors
/// When there is not.
pub(crate) fn require_space(cache: &Cache, size: Size) -> Result<(), Error> {
    match is_cached(cache, size) {
        true => Ok(()),
        false => check_space("the measured disk", cache.directory(), size),
    }
}

/// Checks that there is room for what a guest writes to its other disk and sends back.
///
/// # Errors
/// When there is not.
pub(crate) fn require_scratch(directory: &Path) -> Result<(), Error> {
    check_space("a guest", directory, SCRATCH)
}

/// A disk that is filled to its end may stop more than this.
fn check_space(what: &'static str, directory: &Path, size: Size) -> Result<(), Error> {
    let free = free_space(directory).map_err(file::error("look at", directory))?;
    if free >= size {
        return Ok(());
    }
    Err(Error::Space {
        what,
        directory: directory.to_owned(),
        size,
        free,
    })
}

fn fill(path: &Path, bytes: u64, interrupt: &Interrupt) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        if interrupt.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = left.min(1 << 20) as usize;
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    file.sync_all()
}

/// A qcow2 disk of this size that allocates what is written.
///
/// # Errors
/// When qemu-img fails.
pub(crate) fn growing(path: &Path, size: Size) -> Result<(), Error> {
    Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(path)
        .arg(size.as_bytes().to_string())
        .run()?;
    Ok(())
}

/// A qcow2 disk that keeps what is written over `base` to itself.
///
/// # Errors
/// When qemu-img fails.
pub(crate) fn overlay(path: &Path, base: &Path) -> Result<(), Error> {
    let base = fs::canonicalize(base).map_err(file::error("find", base))?;
    Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
        .arg(&base)
        .arg(path)
        .run()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::progress::Progress;

    #[test]
    fn the_measured_disk_is_allocated_in_full() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), &Progress::new(), &Interrupt::default()).unwrap();
        let path = measured(&cache, Size::bytes(3 << 19), &Interrupt::default()).unwrap();
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.len(), 3 << 19);
        assert!(metadata.blocks() * 512 >= metadata.len());
        assert!(is_cached(&cache, Size::bytes(3 << 19)) && !is_cached(&cache, Size::mib(1)));
    }
}
