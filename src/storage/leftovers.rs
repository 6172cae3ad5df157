//! What runs have made: found by its name and by what it stands on, and removed.

mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::Command;
use crate::storage::report::AttachedLoop;
use crate::storage::{Error, FoundRun, Life, RELEASE_DEADLINE, RunId, dm, holders, loop_device, printable, wait_until};
use owner::{Stack, directory_of, run_of};

/// Programs that storage starts. They go on to their end without the process that started them, and would make, or
/// freeze, what has just been looked at.
const PROGRAMS: [&str; 7] = ["lvm", "dmsetup", "losetup", "mkfs.ext4", "mount", "umount", "fsfreeze"];

/// How long such programs are waited for.
const PROGRAMS_DEADLINE: Duration = Duration::from_secs(60);

/// Everything of one run that storage knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftovers {
    /// The run.
    pub run: RunId,
    /// Whether the run still lives.
    pub life: Life,
    /// Whether its things are to stay.
    pub kept: bool,
    /// Where its volumes are mounted.
    pub mounts: Vec<Mount>,
    /// Its device-mapper devices.
    pub devices: Vec<String>,
    /// Its loop devices, as `/dev/loop0`.
    pub loops: Vec<String>,
    /// Its directories.
    pub directories: Vec<PathBuf>,
}

/// A mounted volume of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is.
    pub at: PathBuf,
    number: (u32, u32),
}

impl Mount {
    fn is_there(&self) -> bool {
        let mounts = holders::mounts_here();
        mounts
            .iter()
            .any(|(number, at)| *number == self.number && *at == self.at)
    }
}

impl fmt::Display for Leftovers {
    /// One line for each thing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mounts = self
            .mounts
            .iter()
            .map(|mount| format!("mount {}", printable(&mount.at)));
        let devices = self.devices.iter().map(|name| format!("device {name}"));
        let loops = self.loops.iter().map(|name| format!("loop device {name}"));
        let directories = self
            .directories
            .iter()
            .map(|path| format!("directory {}", printable(path)));
        let lines: Vec<String> = mounts.chain(devices).chain(loops).chain(directories).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Leftovers {
    /// Nothing, of this run.
    #[must_use]
    pub fn none(run: RunId) -> Self {
        Self {
            run,
            life: run.life(),
            kept: false,
            mounts: Vec::new(),
            devices: Vec::new(),
            loops: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// What every run has here, living ones too: with one of these directories, with a directory in the work directory,
    /// or with devices on a file in a run's directory, wherever that is.
    ///
    /// What merely has a similar name is passed over: a loop device counts by the directory of its file, a
    /// device-mapper device by its name and by the loop devices it stands on.
    ///
    /// # Errors
    /// When devices cannot be listed, or the work directory not be read.
    pub fn find(work_dir: &Path, directories: &[PathBuf]) -> Result<Vec<Self>, Error> {
        let mut found = Found::default();
        for run in FoundRun::all_in(work_dir)? {
            found.directory(run);
        }
        for run in directories.iter().filter_map(|path| FoundRun::of_directory(path)) {
            found.directory(run);
        }
        let loops = loop_device::attached()?;
        for device in &loops {
            found.loop_device(device);
        }
        let devices = dm::devices()?;
        let stack = Stack::new(&loops, &devices);
        for device in &devices {
            if let Some(run) = stack.run_of(device) {
                found.run(run).devices.push(device.name.clone());
            }
        }
        for (number, at) in holders::mounts_here() {
            let owner = devices.iter().find(|device| device.number == number);
            if let Some(run) = owner.and_then(|device| stack.run_of(device)) {
                found.run(run).mounts.push(Mount { at, number });
            }
        }
        Ok(found.0.into_values().collect())
    }

    /// Waits for programs that the run has left running, for a minute at most; then wakes suspended devices
    /// and thaws frozen filesystems, so that what waits for them can end.
    ///
    /// # Errors
    /// When programs still run, or a device cannot be resumed.
    pub fn wake(&self) -> Result<(), Error> {
        // A program may itself wait for a suspended device.
        self.resume()?;
        let mut running = Vec::new();
        let ended = wait_until(PROGRAMS_DEADLINE, || {
            running = holders::working_for(&self.run.name(), &PROGRAMS);
            Ok::<_, Error>(running.is_empty())
        })?;
        if !ended {
            return Err(Error::StillHeld {
                what: format!("run {}", self.run),
                waited: PROGRAMS_DEADLINE,
                holders: running,
            });
        }
        self.resume()?;
        for mount in &self.mounts {
            // It fails on what is not frozen.
            drop(Command::new("fsfreeze").arg("--unfreeze").arg(&mount.at).output());
        }
        Ok(())
    }

    fn resume(&self) -> Result<(), Error> {
        dm::resume(|device| self.is_device(device))
    }

    /// Removes everything from the top down, again and again while it is in use, and verifies that it is gone.
    ///
    /// # Errors
    /// When something stays; the error says what, and who holds it.
    pub fn remove(&self) -> Result<(), Error> {
        self.unmount()?;
        self.remove_devices()?;
        self.detach()?;
        self.remove_directories()
    }

    fn is_device(&self, name: &str) -> bool {
        self.devices.iter().any(|device| device == name)
    }

    fn unmount(&self) -> Result<(), Error> {
        for mount in self.mounts.iter().rev() {
            let gone = wait_until(RELEASE_DEADLINE, || {
                if mount.is_there() {
                    drop(Command::new("umount").arg(&mount.at).output());
                }
                Ok::<_, Error>(!mount.is_there())
            })?;
            if !gone {
                return Err(Error::StillHeld {
                    what: printable(&mount.at),
                    waited: RELEASE_DEADLINE,
                    holders: holders::of_directory(&mount.at),
                });
            }
        }
        Ok(())
    }

    /// A device that another one stands on is busy until that is gone.
    fn remove_devices(&self) -> Result<(), Error> {
        let left = || -> Result<Vec<dm::Device>, Error> {
            Ok(dm::devices()?
                .into_iter()
                .filter(|device| self.is_device(&device.name))
                .collect())
        };
        let gone = wait_until(RELEASE_DEADLINE, || {
            for device in left()? {
                drop(dm::change(format!("remove {}", device.name), &["remove", &device.name]));
            }
            Ok::<_, Error>(left()?.is_empty())
        })?;
        if gone {
            self.remove_nodes();
            return Ok(());
        }
        let left = left()?;
        Err(Error::StillHeld {
            what: left
                .iter()
                .map(|device| device.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            waited: RELEASE_DEADLINE,
            holders: left
                .iter()
                .flat_map(|device| holders::of_device(device.number))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        })
    }

    /// Without udev, LVM links `/dev/<group>/<volume>` itself, and dmsetup does not know of it.
    fn remove_nodes(&self) {
        let groups: BTreeSet<_> = self.devices.iter().map(|device| dm::group_of(device)).collect();
        for directory in groups.iter().map(|group| Path::new("/dev").join(group)) {
            for link in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let dangles = link.file_type().is_ok_and(|kind| kind.is_symlink()) && !link.path().exists();
                if dangles {
                    let _ = fs::remove_file(link.path());
                }
            }
            let _ = fs::remove_dir(&directory);
        }
    }

    fn detach(&self) -> Result<(), Error> {
        let left = || -> Result<Vec<String>, Error> {
            let ours = |device: &AttachedLoop| run_of(device) == Some(self.run);
            Ok(loop_device::attached()?
                .into_iter()
                .filter(|device| self.loops.contains(&device.device) && ours(device))
                .map(|device| device.device)
                .collect())
        };
        for device in left()? {
            drop(Command::new("losetup").args(["--detach", &device]).output());
        }
        if wait_until(RELEASE_DEADLINE, || Ok::<_, Error>(left()?.is_empty()))? {
            return Ok(());
        }
        let left = left()?;
        let numbers = left.iter().filter_map(|device| holders::number_of(device.as_ref()));
        Err(Error::StillHeld {
            what: left.join(", "),
            waited: RELEASE_DEADLINE,
            holders: numbers.flat_map(holders::of_device).collect(),
        })
    }

    fn remove_directories(&self) -> Result<(), Error> {
        let found = self.directories.iter().filter_map(|path| FoundRun::of_directory(path));
        found.map(|run| run.remove_directory()).fold(Ok(()), Result::and)
    }
}

#[derive(Default)]
struct Found(BTreeMap<RunId, Leftovers>);

impl Found {
    fn run(&mut self, run: RunId) -> &mut Leftovers {
        self.0.entry(run).or_insert_with(|| Leftovers::none(run))
    }

    fn directory(&mut self, found: FoundRun) {
        let leftovers = self.run(found.run);
        // A directory knows more than a process that is out of sight.
        if found.life == Life::Running || leftovers.life == Life::OutOfSight {
            leftovers.life = found.life;
        }
        leftovers.kept |= found.kept;
        if !leftovers.directories.contains(&found.directory) {
            leftovers.directories.push(found.directory);
        }
    }

    fn loop_device(&mut self, device: &AttachedLoop) {
        let Some(run) = run_of(device) else { return };
        self.run(run).loops.push(device.device.clone());
        if let Some(found) = directory_of(device).and_then(FoundRun::of_directory) {
            self.directory(found);
        }
    }
}
