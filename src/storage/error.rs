use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command;
use crate::settings::Size;
use crate::storage::SnapshotStatus;

/// Why storage could not be built, read or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program failed.
    #[error("cannot {doing}: {source}{}", hint(source))]
    Command {
        /// What it was started for, as in "create volume group x".
        doing: String,
        /// What happened.
        source: command::Error,
    },
    /// A volume could not be mounted.
    #[error("cannot mount: {source}{}\n  the kernel's last lines:\n  {kernel}", hint(source))]
    Mount {
        /// What happened.
        source: command::Error,
        /// The end of the kernel's log.
        kernel: String,
    },
    /// A file could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried, as in "write".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is less room than asked for.
    #[error("{place} has {free} free, {asked} are needed; choose a smaller size, or another place")]
    NotEnoughSpace {
        /// The directory or volume group.
        place: String,
        /// What was asked for.
        asked: Size,
        /// What is there.
        free: Size,
    },
    /// The size is below the smallest possible one.
    #[error("{what} cannot be {asked} small, {least} is the least")]
    TooSmall {
        /// What was to be made.
        what: String,
        /// What was asked for.
        asked: Size,
        /// The least that works.
        least: Size,
    },
    /// Something of that name is there already; it is left alone.
    #[error("{what} exists already, and this run did not make it")]
    Exists {
        /// The thing.
        what: String,
    },
    /// It did not come free in time.
    #[error("{what} is still in use after {} s{}", waited.as_secs(), by(holders))]
    StillHeld {
        /// The device, volume or mount.
        what: String,
        /// How long it was given.
        waited: Duration,
        /// Who holds it, as far as can be seen.
        holders: Vec<String>,
    },
    /// The file's filesystem does not do direct I/O.
    #[error(
        "{} cannot be read and written with direct I/O, and a cached loop device measures the cache; put the \
         work directory on ext4 or xfs on a disk",
        file.display()
    )]
    DirectIoOff {
        /// The file of the physical volume.
        file: PathBuf,
    },
    /// The file takes less room than its size.
    #[error(
        "{} takes {used} on its disk instead of {size}: its filesystem compresses or leaves out zeros, so that it \
         would grow while measured; put the work directory on ext4 or xfs",
        file.display()
    )]
    Sparse {
        /// The file of the physical volume.
        file: PathBuf,
        /// Its size.
        size: Size,
        /// What it takes.
        used: Size,
    },
    /// A program did as told, yet the result differs.
    #[error("{what} is {found}, asked for was {asked}")]
    NotAsAsked {
        /// The property.
        what: String,
        /// What was asked for.
        asked: String,
        /// What there is.
        found: String,
    },
    /// A program's output, or a file of the kernel's, has an unknown form.
    #[error("cannot read {what}: {problem}")]
    Unreadable {
        /// Where it is from.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The snapshot holds no data any more.
    #[error("snapshot {name} is lost ({status}); give it a larger COW store")]
    SnapshotLost {
        /// The snapshot.
        name: String,
        /// Its state.
        status: SnapshotStatus,
    },
    /// The caller stopped it.
    #[error("stopped while writing {}", file.display())]
    Interrupted {
        /// The file being written.
        file: PathBuf,
    },
}

impl Error {
    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    pub(super) fn command(doing: impl Into<String>) -> impl FnOnce(command::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Command { doing, source }
    }

    pub(super) fn unreadable(what: impl Into<String>, problem: impl ToString) -> Self {
        Self::Unreadable {
            what: what.into(),
            problem: problem.to_string(),
        }
    }
}

fn hint(source: &command::Error) -> &'static str {
    match source {
        command::Error::NotFound { program } => match program.as_str() {
            "lvm" | "dmsetup" => "; install lvm2",
            "losetup" | "mount" | "umount" | "fsfreeze" => "; install util-linux",
            "mkfs.ext4" => "; install e2fsprogs",
            _ => "",
        },
        command::Error::Deadline { .. } => {
            "\n  a command that hangs often waits for udev, or for a frozen filesystem; `snaptax doctor` looks at udev"
        }
        _ => "",
    }
}

fn by(holders: &[String]) -> String {
    if holders.is_empty() {
        return ", by something that /proc and /sys do not show".into();
    }
    format!(" by:\n  {}", holders.join("\n  "))
}
