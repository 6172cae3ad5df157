use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::Command;
use crate::storage::report::{AttachedLoop, loop_devices};
use crate::storage::{BackingFile, Counters, Error, RELEASE_DEADLINE, complain, holders, lock, wait_until};

/// Finding a free loop device and attaching to it are two steps of losetup's: this lock keeps other snaptax
/// processes out, and retries help against everybody else.
const LOCK_FILE: &str = "/run/snaptax-loop.lock";
const ATTACH_DEADLINE: Duration = Duration::from_secs(3);
const LOSETUP_DEADLINE: Duration = Duration::from_secs(20);

/// A loop device on a file of its own, read and written with direct I/O. Detached, and its file deleted,
/// when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    attachment: Attachment,
    device: PathBuf,
    name: String,
    file: BackingFile,
}

/// Whatever is attached to a file, now or later.
#[derive(Debug)]
struct Attachment {
    identity: (u64, (u32, u32)),
    detached: bool,
}

impl LoopDevice {
    /// Attaches a loop device to `file`.
    ///
    /// # Errors
    /// When that fails, or direct I/O cannot be used. The file is deleted then.
    pub fn attach(file: BackingFile) -> Result<Self, Error> {
        let lock = lock(Path::new(LOCK_FILE), RELEASE_DEADLINE, || ())?;
        // Before the first attempt: one that attaches may still fail, and so may the look that would tell.
        let attachment = Attachment {
            identity: file.identity(),
            detached: false,
        };
        let command = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(file.path())
            // Others wait for the lock.
            .deadline(LOSETUP_DEADLINE);
        let mut failure = None;
        let attached = wait_until(ATTACH_DEADLINE, || {
            failure = command.run().err();
            // With a filesystem that does no direct I/O, losetup attaches first and fails then.
            if failure.is_some() && !attached_to(file.identity())?.is_empty() {
                return Ok(true);
            }
            Ok::<_, Error>(failure.is_none())
        })?;
        drop(lock);
        if let (false, Some(source)) = (attached, failure) {
            return Err(Error::Command {
                doing: format!("attach a loop device to {}", file.path().display()),
                source,
            });
        }
        Self::verified(file, attachment)
    }

    /// Takes the device found by the file's inode, not the name that losetup printed. The last argument is the
    /// first to be dropped.
    fn verified(file: BackingFile, attachment: Attachment) -> Result<Self, Error> {
        let found = attached_to(attachment.identity)?;
        let Some(found) = found.first() else {
            return Err(Error::NotAsAsked {
                what: "the loop device's file".into(),
                asked: file.path().display().to_string(),
                found: "another, or none".into(),
            });
        };
        let device = PathBuf::from(&found.device);
        let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !found.direct_io {
            return Err(Error::DirectIoOff {
                file: file.path().to_owned(),
            });
        }
        Ok(Self {
            attachment,
            device,
            name,
            file,
        })
    }

    /// Its node, as `/dev/loop0`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The file behind it.
    #[must_use]
    pub fn file(&self) -> &BackingFile {
        &self.file
    }

    /// Whether it uses direct I/O; it did when it was attached.
    ///
    /// # Errors
    /// When loop devices cannot be listed.
    pub fn uses_direct_io(&self) -> Result<bool, Error> {
        let found = attached_to(self.attachment.identity)?;
        Ok(found.iter().any(|device| device.direct_io))
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// When it is gone.
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::of(&self.name)
    }

    /// Detaches it and deletes its file. Returns when nothing is attached to the file any more, which losetup
    /// does not promise.
    ///
    /// # Errors
    /// When something still uses the device.
    pub fn remove(mut self) -> Result<(), Error> {
        // On fields, so that an error drops them in their order: the device before its file.
        self.attachment.detach(RELEASE_DEADLINE)?;
        self.file.remove()
    }
}

impl Attachment {
    fn detach(&mut self, deadline: Duration) -> Result<(), Error> {
        let attached = attached_to(self.identity)?;
        for found in &attached {
            // Told once: a device in use goes by itself when it no longer is, and its number may soon be another
            // file's. What losetup says does not count, the looks below do.
            drop(Command::new("losetup").arg("--detach").arg(&found.device).output());
        }
        let gone = wait_until(deadline, || Ok::<_, Error>(attached_to(self.identity)?.is_empty()))?;
        if gone {
            self.detached = true;
            return Ok(());
        }
        let devices: Vec<_> = attached.into_iter().map(|found| found.device).collect();
        let numbers = devices.iter().filter_map(|device| holders::number_of(device.as_ref()));
        Err(Error::StillHeld {
            what: devices.join(", "),
            waited: deadline,
            holders: numbers.flat_map(holders::of_device).collect(),
        })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.detached
            && let Err(error) = self.detach(Duration::from_secs(5))
        {
            complain(format_args!("left behind: {error}"));
        }
    }
}

/// All attached loop devices.
pub(super) fn attached() -> Result<Vec<AttachedLoop>, Error> {
    let command = Command::new("losetup").args(["--list", "--json", "--output"]);
    let output = command.arg("NAME,BACK-FILE,BACK-INO,BACK-MAJ:MIN,DIO").run();
    loop_devices(&output.map_err(Error::command("list loop devices"))?.stdout)
}

/// The loop devices attached to a file, however its path may read by now.
fn attached_to((inode, device): (u64, (u32, u32))) -> Result<Vec<AttachedLoop>, Error> {
    let mut all = attached()?;
    all.retain(|found| found.inode == Some(inode) && found.file_device == Some(device));
    Ok(all)
}
