use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::settings::Size;
use crate::storage::{Error, complain};

const BLOCK: usize = 4 << 20;
const ALIGNMENT: usize = 4096;

/// A file for a loop device, written in full.
///
/// A sparse or merely reserved file would allocate, or convert, its extents on first writes, which fall on
/// the side with the snapshot. It is deleted when dropped.
#[derive(Debug)]
pub struct BackingFile {
    path: PathBuf,
    size: Size,
    device: u64,
    inode: u64,
    removed: bool,
}

impl BackingFile {
    /// Writes a new file of zeros with direct I/O, and syncs it. `size` is rounded up to 4 MiB. `progress` gets
    /// the size written so far, every 4 MiB, and may stop it.
    ///
    /// # Errors
    /// When the file exists, there is not enough space, or its filesystem does no direct I/O or does not really
    /// store zeros. Nothing is left behind.
    pub fn write(
        path: impl Into<PathBuf>,
        size: Size,
        progress: &mut dyn FnMut(Size) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let path = path.into();
        let blocks = size.as_bytes().div_ceil(BLOCK as u64).max(1);
        let size = Size::bytes(blocks * BLOCK as u64);
        require_space(&path, size)?;

        let (mut file, backing) = Self::create(path, size)?;
        let buffer = vec![0; BLOCK + ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        let block = &buffer[start..start + BLOCK];
        for written in 0..blocks {
            if progress(Size::bytes(written * BLOCK as u64)).is_break() {
                return Err(Error::Interrupted {
                    file: backing.path.clone(),
                });
            }
            file.write_all(block).map_err(|error| backing.write_error(error))?;
        }
        file.sync_all().map_err(Error::file("write", &backing.path))?;
        backing.require_full()?;
        Ok(backing)
    }

    fn create(path: PathBuf, size: Size) -> Result<(File, Self), Error> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(direct)
            .open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists {
                    what: path.display().to_string(),
                });
            }
            // The file may have been made all the same: open(2) checks O_DIRECT last.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                drop(fs::remove_file(&path));
                return Err(Error::DirectIoOff { file: path });
            }
            Err(error) => return Err(Error::file("create", &path)(error)),
        };
        let metadata = file.metadata().map_err(Error::file("read", &path))?;
        let backing = Self {
            path,
            size,
            device: metadata.dev(),
            inode: metadata.ino(),
            removed: false,
        };
        Ok((file, backing))
    }

    fn write_error(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::InvalidInput {
            return Error::DirectIoOff {
                file: self.path.clone(),
            };
        }
        Error::file("write", &self.path)(error)
    }

    /// Verifies that every block of the file is really stored.
    ///
    /// # Errors
    /// When some are not.
    pub fn require_full(&self) -> Result<(), Error> {
        let metadata = fs::metadata(&self.path).map_err(Error::file("read", &self.path))?;
        let used = Size::bytes(metadata.blocks() * 512);
        if used >= self.size {
            return Ok(());
        }
        Err(Error::Sparse {
            file: self.path.clone(),
            size: self.size,
            used,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Its inode, and the number of the device it lies on.
    pub(super) fn identity(&self) -> (u64, (u32, u32)) {
        (
            self.inode,
            (rustix::fs::major(self.device), rustix::fs::minor(self.device)),
        )
    }

    /// Deletes it.
    ///
    /// # Errors
    /// When that fails.
    pub fn remove(mut self) -> Result<(), Error> {
        self.delete()
    }

    fn delete(&mut self) -> Result<(), Error> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("delete", &self.path)(error)),
            _ => {
                self.removed = true;
                Ok(())
            }
        }
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = self.delete()
        {
            complain(format_args!("left behind: {error}"));
        }
    }
}

/// What a directory's filesystem has free for this user.
///
/// # Errors
/// When the directory cannot be looked at.
pub fn free_space(directory: &Path) -> io::Result<Size> {
    let space = rustix::fs::statvfs(directory)?;
    Ok(Size::bytes(space.f_bavail.saturating_mul(space.f_frsize)))
}

fn require_space(path: &Path, asked: Size) -> Result<(), Error> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let free = free_space(directory).map_err(Error::file("use", directory))?;
    if free >= asked {
        return Ok(());
    }
    Err(Error::NotEnoughSpace {
        place: directory.display().to_string(),
        asked,
        free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn go_on(_: Size) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn a_file_is_stored_in_full_and_gone_after_removal() {
        let directory = directory();
        let path = directory.path().join("pv");
        let mut seen = Vec::new();
        let file = BackingFile::write(&path, Size::mib(9), &mut |written| {
            seen.push(written);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(
            (file.size(), fs::metadata(&path).unwrap().len()),
            (Size::mib(12), 12 << 20)
        );
        assert_eq!(seen, [Size::bytes(0), Size::mib(4), Size::mib(8)]);
        file.require_full().unwrap();
        file.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_hole_is_noticed() {
        let directory = directory();
        let file = BackingFile::write(directory.path().join("pv"), Size::mib(8), &mut go_on).unwrap();
        fs::write(file.path(), "").unwrap();
        File::options()
            .write(true)
            .open(file.path())
            .unwrap()
            .set_len(8 << 20)
            .unwrap();
        assert!(matches!(file.require_full(), Err(Error::Sparse { used, .. }) if used == Size::bytes(0)));
    }

    #[test]
    fn being_stopped_leaves_no_file() {
        let directory = directory();
        let path = directory.path().join("pv");
        let stop = &mut |written| {
            if written < Size::mib(4) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        assert!(matches!(
            BackingFile::write(&path, Size::mib(64), stop),
            Err(Error::Interrupted { .. })
        ));
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_there_is_refused_and_kept() {
        let directory = directory();
        let path = directory.path().join("pv");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(
            BackingFile::write(&path, Size::mib(4), &mut go_on),
            Err(Error::Exists { .. })
        ));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn too_little_space_is_told_in_numbers_before_anything_is_written() {
        let directory = directory();
        let path = directory.path().join("pv");
        let error = BackingFile::write(&path, Size::gib(1 << 20), &mut go_on).unwrap_err();
        assert!(matches!(error, Error::NotEnoughSpace { asked, .. } if asked == Size::gib(1 << 20)));
        assert!(error.to_string().contains("1024 TiB are needed"), "{error}");
        assert!(!path.exists());
    }
}
