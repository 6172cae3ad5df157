use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{self, Command};
use crate::storage::{Error, LogicalVolume, RELEASE_DEADLINE, complain, holders, wait_until};

/// A filesystem that a volume can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filesystem {
    /// ext4 with mke2fs's defaults.
    Ext4,
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
        })
    }
}

impl Filesystem {
    /// Nothing is left for later or to the device: lazy tables would be written by the kernel during a
    /// measurement, and a discard or "write zeroes" request would become a hole in the loop device's file.
    pub(super) fn make(self, device: &Path) -> Result<(), Error> {
        let command = match self {
            Self::Ext4 => Command::new("mkfs.ext4").env("UNIX_IO_NOZEROOUT", "1").args([
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ]),
        };
        let command = command.arg(device).deadline(Duration::from_secs(1800));
        command
            .run()
            .map(drop)
            .map_err(Error::command(format!("make {self} on {}", device.display())))
    }
}

/// A mounted volume. Unmounted, and its volume removed, when dropped.
#[derive(Debug)]
pub struct Mounted {
    point: MountPoint,
    volume: LogicalVolume,
}

#[derive(Debug)]
struct MountPoint {
    directory: PathBuf,
    made: bool,
    number: Option<(u32, u32)>,
}

impl Mounted {
    pub(super) fn mount(volume: LogicalVolume, directory: &Path) -> Result<Self, Error> {
        let made = !directory.exists();
        fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
        let mut point = MountPoint {
            directory: directory.to_owned(),
            made,
            number: None,
        };
        let type_ = volume
            .filesystem()
            .map_or("auto".into(), |filesystem| filesystem.to_string());
        let command = Command::new("mount")
            .args(["-t", &type_])
            .arg(volume.path())
            .arg(directory);
        point.number = holders::number_of(volume.path());
        command.run().map_err(|source| Error::Mount {
            source,
            kernel: kernel_log(),
        })?;
        Ok(Self { point, volume })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.directory
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &LogicalVolume {
        &self.volume
    }

    /// Freezes the filesystem and thaws it at once, as making a snapshot does.
    ///
    /// # Errors
    /// When either fails.
    pub fn freeze_and_thaw(&self) -> Result<(), Error> {
        let directory = self.path();
        let fsfreeze = |what: &str| Command::new("fsfreeze").arg(what).arg(directory).run();
        let frozen = fsfreeze("--freeze");
        if matches!(
            frozen,
            Err(command::Error::Failed { .. } | command::Error::NotFound { .. })
        ) {
            return frozen
                .map(drop)
                .map_err(Error::command(format!("freeze {}", directory.display())));
        }
        // Also after a freeze that did not end in time: it may have succeeded before it was killed.
        let mut thawed = Ok(());
        let _ = wait_until(Duration::from_secs(10), || {
            thawed = fsfreeze("--unfreeze").map(drop);
            Ok::<_, Error>(thawed.is_ok())
        });
        frozen.map_err(Error::command(format!("freeze {}", directory.display())))?;
        thawed.map_err(Error::command(format!("thaw {}", directory.display())))
    }

    /// Unmounts it, and waits until the volume is closed.
    ///
    /// # Errors
    /// When something still uses it; the error says what. `Drop` has tried once more by then.
    pub fn unmount(mut self) -> Result<LogicalVolume, Error> {
        // On fields, so that an error drops them in their order: the mount before its volume.
        self.point.unmount(RELEASE_DEADLINE)?;
        self.volume.lv().wait_until_closed(RELEASE_DEADLINE)?;
        Ok(self.volume)
    }
}

impl MountPoint {
    fn unmount(&mut self, deadline: Duration) -> Result<(), Error> {
        let Some(number) = self.number else { return Ok(()) };
        let mut failure = None;
        let gone = wait_until(deadline, || {
            if !holders::is_mounted(number) {
                return Ok(true);
            }
            failure = Command::new("umount").arg(&self.directory).run().err();
            Ok::<_, Error>(!holders::is_mounted(number))
        })?;
        if gone {
            self.number = None;
            if self.made {
                fs::remove_dir(&self.directory).map_err(Error::file("remove", &self.directory))?;
            }
            return Ok(());
        }
        let mut holders = holders::of_device(number);
        holders.extend(failure.map(|failure| failure.to_string()));
        Err(Error::StillHeld {
            what: self.directory.display().to_string(),
            waited: deadline,
            holders,
        })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(RELEASE_DEADLINE) {
            complain(format_args!("left behind: {error}"));
        }
    }
}

/// The kernel's last lines: mount(8) says little, the kernel says why.
fn kernel_log() -> String {
    let text = Command::new("dmesg")
        .run()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n  ")
}
