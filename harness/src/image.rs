//! Images: what a guest boots from, and what it finds on its disks.

pub(crate) mod archive;
pub(crate) mod cpio;
pub(crate) mod disk;
pub(crate) mod initramfs;
pub(crate) mod mirror;
pub(crate) mod root;
pub(crate) mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use snaptax::command::{self, Command};
use snaptax::settings::Size;

use crate::bound::bound;
use crate::{cache, file, guest, interrupt};

/// What fetching and unpacking packages may take.
const DEBOOTSTRAP_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Namespaces of its own: its mounts, and all that it started, go with its first process.
const ISOLATED: [&str; 6] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"];

/// mmdebstrap, for an image that is made in this directory.
fn mmdebstrap(image: &Path) -> Command {
    // Without root, it takes namespaces by itself, with other users' ids, which could not enter scratch space.
    if !rustix::process::geteuid().is_root() {
        return bound("mmdebstrap").deadline(DEBOOTSTRAP_DEADLINE);
    }
    let command = match Command::new("unshare").args(ISOLATED).arg("true").run() {
        Ok(_) => bound("unshare").args(ISOLATED).arg("mmdebstrap"),
        // In a container, perhaps.
        Err(_) => bound("mmdebstrap"),
    };
    // Scratch space goes when a kill leaves something in it.
    let scratch = image.parent().unwrap_or(image);
    command.env("TMPDIR", scratch).deadline(DEBOOTSTRAP_DEADLINE)
}

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// A program failed.
    #[error(transparent)]
    Command(#[from] command::Error),
    /// A program failed, or a signal came.
    #[error(transparent)]
    Supervise(#[from] interrupt::Error),
    /// mmdebstrap failed.
    #[error("cannot build the {image}: {source}\n  hint: {hint}")]
    Debootstrap {
        /// Which image.
        image: &'static str,
        /// What it said.
        source: interrupt::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The preparation guest failed.
    #[error(transparent)]
    Guest(#[from] guest::Error),
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
    /// There is no room for the measured disk.
    #[error(
        "{what} takes {size}, and {} has {free} free\n  hint: make room, name another place with --cache, or a \
         smaller --disk",
        directory.display()
    )]
    Space {
        /// What it is for.
        what: &'static str,
        /// Where it was to be.
        directory: PathBuf,
        /// Its size.
        size: Size,
        /// What is there.
        free: Size,
    },
    /// An image lacks something.
    #[error("{image} lacks {what}")]
    Lacks {
        /// Which image.
        image: &'static str,
        /// What it lacks.
        what: String,
    },
    /// The server image asked for cannot be pulled.
    #[error("cannot pull the server image {name}:\n  {}\n  hint: check its name and the way to its registry, or leave SNAPTAX_IMAGE unset", said.trim().replace('\n', "\n  "))]
    Pull {
        /// The image.
        name: String,
        /// What Docker said.
        said: String,
    },
    /// The server image could not be imported.
    #[error("cannot import the server image:\n  {}", said.trim().replace('\n', "\n  "))]
    Import {
        /// What Docker said.
        said: String,
    },
}

impl Error {
    /// A failure of mmdebstrap, or an interrupt.
    fn debootstrap(image: &'static str, hint: &'static str, source: interrupt::Error) -> Self {
        match source {
            interrupt::Error::Interrupted => Self::Supervise(source),
            source => Self::Debootstrap { image, source, hint },
        }
    }
}
