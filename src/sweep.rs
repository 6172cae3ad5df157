//! Finds and removes what killed runs left behind: containers, mounts, device-mapper devices, loop devices, files.
//!
//! Every experiment begins with a sweep. Only what a run made is looked at, and only runs that have ended are swept:
//! never a living one, never one that was kept with `SNAPTAX_KEEP`, unless that is asked for, and never what merely
//! has a similar name. A run of another process namespace, in a container say, counts as living unless its directory
//! can be seen and its lock there is free.
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
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use containers::{Container, DIRECTORY_LABEL, RUN_LABEL};

use crate::command;
use crate::storage::{self, Leftovers, Life, RunId};

/// Held while something is removed.
const LOCK_FILE: &str = "/run/snaptax-sweep.lock";

/// How long another sweep may take.
const LOCK_DEADLINE: Duration = Duration::from_secs(300);

/// How often a run is looked at anew: what was under way when it was killed comes up later.
const LOOKS: u32 = 5;

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
    /// Something new of a dead run comes up again and again.
    #[error("things of run {run} come back:\n{things}")]
    ComesBack {
        /// The run.
        run: RunId,
        /// What there is.
        things: String,
    },
}

/// What one run made and has not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    containers: Vec<Container>,
    storage: Leftovers,
    work_dir: PathBuf,
}

impl fmt::Display for Remains {
    /// One line for each thing, the last to be made first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let containers = self
            .containers
            .iter()
            .map(|container| format!("container {}", container.name));
        let storage = Some(self.storage.to_string()).filter(|text| !text.is_empty());
        let lines: Vec<String> = containers.chain(storage).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// What every run on this machine has, living and kept ones too.
///
/// # Errors
/// When devices or containers cannot be listed, or the work directory not be read.
pub fn find(work_dir: &Path) -> Result<Vec<Remains>, Error> {
    let containers = containers::list()?;
    let directories: Vec<PathBuf> = containers
        .iter()
        .filter_map(|container| container.directory.clone())
        .collect();
    let remains = |storage| Remains {
        containers: Vec::new(),
        storage,
        work_dir: work_dir.to_owned(),
    };
    let found = Leftovers::find(work_dir, &directories)?;
    let mut found: Vec<_> = found.into_iter().map(remains).collect();
    for container in containers {
        let of_run = found.iter().position(|remains| remains.run() == container.run);
        let at = of_run.unwrap_or_else(|| {
            found.push(remains(Leftovers::none(container.run)));
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

    /// Whether the run still lives.
    #[must_use]
    pub fn life(&self) -> Life {
        self.storage.life
    }

    /// Whether the run has ended without removing them.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.life() == Life::Ended && !self.storage.kept
    }

    /// Whether the run has ended and was told to keep them.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.life() == Life::Ended && self.storage.kept
    }

    /// Removes everything in order, and verifies that it is gone. Waits for another sweep to end, for 5 min at most.
    ///
    /// # Errors
    /// When something stays; the error says what, and who holds it.
    pub fn remove(&self) -> Result<(), Error> {
        let _lock = lock()?;
        let mut left = self.clone();
        for _ in 0..LOOKS {
            // A server that waits for a suspended disk, or for a frozen filesystem, cannot be killed.
            left.storage.wake()?;
            // What was under way is there by now.
            let Some(now) = self.again()? else { return Ok(()) };
            now.storage.wake()?;
            for container in &now.containers {
                container.remove()?;
            }
            now.storage.remove()?;
            match self.again()? {
                None => return Ok(()),
                Some(new) => left = new,
            }
        }
        Err(Error::ComesBack {
            run: self.run(),
            things: left.to_string(),
        })
    }

    /// What there is of the same run now.
    fn again(&self) -> Result<Option<Self>, Error> {
        let found = find(&self.work_dir)?;
        Ok(found.into_iter().find(|remains| remains.run() == self.run()))
    }
}

/// One sweep at a time on a machine; the lock goes with the file.
fn lock() -> Result<File, Error> {
    let mut told = false;
    let lock = storage::lock(Path::new(LOCK_FILE), LOCK_DEADLINE, || {
        if !std::mem::replace(&mut told, true) {
            storage::complain("waiting for another sweep to end");
        }
    });
    Ok(lock?)
}
