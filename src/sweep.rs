//! Finds and removes what killed runs left behind: containers, mounts, device-mapper devices, loop devices, files.
//!
//! Every experiment begins with a sweep. Only what a run made is looked at, and only runs that have ended are swept:
//! never a living one, never one that was kept with `SNAPTAX_KEEP`, unless that is asked for, and never what merely
//! has a similar name.
//!
//! ```no_run
//! use std::path::Path;
//!
//! for remains in snaptax::sweep::dead(Path::new("/var/tmp"))? {
//!     println!("{remains}");
//!     remains.remove()?;
//! }
//! # Ok::<(), snaptax::sweep::Error>(())
//! ```

mod containers;

use std::fmt;
use std::path::Path;

pub use containers::{Container, RUN_LABEL};

use crate::command;
use crate::storage::{self, Leftovers, RunId};

/// Why something could not be swept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Devices or files.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// Containers.
    #[error("cannot {doing}: {source}")]
    Docker {
        /// What was tried.
        doing: String,
        /// What happened.
        source: command::Error,
    },
}

/// What one run made and has not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    containers: Vec<Container>,
    storage: Leftovers,
}

impl fmt::Display for Remains {
    /// One line for each thing, the last to be made first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for container in &self.containers {
            writeln!(f, "container {}", container.name)?;
        }
        write!(f, "{}", self.storage)
    }
}

/// What every run on this machine has, living and kept ones too.
///
/// Containers are looked for where Docker's command line is installed and an engine answers.
///
/// # Errors
/// When devices cannot be listed, or the work directory not be read.
pub fn find(work_dir: &Path) -> Result<Vec<Remains>, Error> {
    let mut found: Vec<_> = Leftovers::find(work_dir)?
        .into_iter()
        .map(|storage| Remains {
            containers: Vec::new(),
            storage,
        })
        .collect();
    for container in containers::list() {
        let of_run = found.iter().position(|remains| remains.run() == container.run);
        let at = of_run.unwrap_or_else(|| {
            found.push(Remains {
                containers: Vec::new(),
                storage: Leftovers::none(container.run),
            });
            found.len() - 1
        });
        found[at].containers.push(container);
    }
    Ok(found)
}

/// What runs have left that ended without removing it.
///
/// # Errors
/// As [`find`].
pub fn dead(work_dir: &Path) -> Result<Vec<Remains>, Error> {
    let mut found = find(work_dir)?;
    found.retain(Remains::is_dead);
    Ok(found)
}

impl Remains {
    /// The run that made them.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.storage.run
    }

    /// Whether the run has ended without removing them.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        !self.storage.alive && !self.storage.kept
    }

    /// Whether the run has ended and was told to keep them.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.storage.alive && self.storage.kept
    }

    /// Removes everything in order, and verifies that it is gone.
    ///
    /// # Errors
    /// When something stays; the error says what, and who holds it.
    pub fn remove(&self) -> Result<(), Error> {
        // A server that waits for a suspended disk cannot be killed.
        self.storage.resume()?;
        for container in &self.containers {
            container.remove()?;
        }
        Ok(self.storage.remove()?)
    }
}
