use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::command;
use crate::settings::Size;
use crate::storage::{BackingFile, Counters, Error, LoopDevice, Lvm, VolumeBuilder, complain, dm};

const LEAST: Size = Size::mib(8);

/// LVM's exit status for a command line that it does not understand.
const USAGE: i32 = 3;

/// What LVM itself takes of a group, generously.
const RESERVE: Size = Size::mib(16);

/// Size of a group with room for a volume and what is to be made beside it: unless said, a thick snapshot that can
/// never be too small, which takes 16 bytes of metadata for each chunk of 4 KiB.
///
/// ```
/// use snaptax::settings::Size;
/// use snaptax::storage::group_size;
///
/// assert!(group_size(Size::gib(20), None) > Size::gib(40));
/// assert!(group_size(Size::gib(20), Some(Size::gib(10))) < Size::gib(31));
/// ```
#[must_use]
pub fn group_size(volume: Size, spare: Option<Size>) -> Size {
    let (volume, spare) = (volume.as_bytes(), spare.unwrap_or(volume).as_bytes());
    let parts = [volume, spare, spare / 128, RESERVE.as_bytes()];
    Size::bytes(parts.into_iter().fold(0, u64::saturating_add))
}

/// A volume group on a loop device of its own. Removed with all it contains when the last handle to it, or
/// to a volume in it, is dropped.
#[derive(Debug, Clone)]
pub struct VolumeGroup(Arc<Group>);

/// The group before its device: fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Group {
    registered: Registered,
    device: LoopDevice,
}

#[derive(Debug)]
struct Registered {
    lvm: Lvm,
    name: String,
    device: PathBuf,
    removed: bool,
}

/// A volume group to be made.
pub struct VolumeGroupBuilder<'a> {
    lvm: Lvm,
    name: String,
    file: PathBuf,
    size: Size,
    progress: Box<dyn FnMut(Size) -> ControlFlow<()> + 'a>,
}

impl fmt::Debug for VolumeGroupBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeGroupBuilder")
            .field("name", &self.name)
            .field("file", &self.file)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<'a> VolumeGroupBuilder<'a> {
    /// Size of the file under it, 1 GiB unless said; rounded up to 4 MiB. LVM keeps 1 MiB of it to itself.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Called while the file is written, with the size written so far; may stop it.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(Size) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Writes the file, attaches it and makes the group.
    ///
    /// # Errors
    /// When one of these fails; what was made until then is removed.
    pub fn create(mut self) -> Result<VolumeGroup, Error> {
        let name = format!("snaptax-{}-{}", self.lvm.run_id(), self.name);
        if self.size < LEAST {
            return Err(Error::TooSmall {
                what: format!("volume group {name}"),
                asked: self.size,
                least: LEAST,
            });
        }
        if dm::names()?.iter().any(|device| dm::belongs_to(device, &name)) || exists(&self.lvm, &name)? {
            return Err(Error::Exists {
                what: format!("volume group {name}"),
            });
        }
        let file = BackingFile::write(self.file, self.size, &mut *self.progress)?;
        let device = LoopDevice::attach(file)?;
        let registered = Registered::create(self.lvm, name, device.path())?;
        Ok(VolumeGroup(Arc::new(Group { registered, device })))
    }
}

impl VolumeGroup {
    /// A group on the new file `file`. Its full name is `snaptax-<run>-<name>`, so that it meets no other.
    #[must_use]
    pub fn on_file<'a>(lvm: &Lvm, name: impl Into<String>, file: impl Into<PathBuf>) -> VolumeGroupBuilder<'a> {
        VolumeGroupBuilder {
            lvm: lvm.clone(),
            name: name.into(),
            file: file.into(),
            size: Size::gib(1),
            progress: Box::new(|_| ControlFlow::Continue(())),
        }
    }

    /// Its full name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The loop device it lies on.
    #[must_use]
    pub fn device(&self) -> &LoopDevice {
        &self.0.device
    }

    /// A logical volume to be made in it.
    #[must_use]
    pub fn volume(&self, name: impl Into<String>) -> VolumeBuilder<'_> {
        VolumeBuilder::new(&self.0, name.into())
    }

    /// What its disk has done so far.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn disk(&self) -> Result<Counters, Error> {
        self.0.device.counters()
    }

    /// Whether its loop device uses direct I/O, as it did when it was attached.
    ///
    /// # Errors
    /// When loop devices cannot be listed.
    pub fn uses_direct_io(&self) -> Result<bool, Error> {
        self.0.device.uses_direct_io()
    }

    /// Its free space.
    ///
    /// # Errors
    /// When LVM cannot tell.
    pub fn free(&self) -> Result<Size, Error> {
        Ok(self.0.space()?.free)
    }

    /// Removes it, its loop device and its file, and verifies that they are gone.
    ///
    /// # Errors
    /// When there are volumes in it, or something still uses it.
    pub fn remove(self) -> Result<(), Error> {
        let mut group = Arc::try_unwrap(self.0).map_err(|group| Error::StillHeld {
            what: format!("volume group {}", group.name()),
            waited: Duration::ZERO,
            holders: vec!["a volume, snapshot or other handle of this program".into()],
        })?;
        // On fields, so that an error drops them in their order: the group before its device.
        group.registered.remove(&[])?;
        group.device.remove()
    }
}

/// Room in a group.
pub(super) struct Space {
    pub(super) free: Size,
    pub(super) extent: Size,
}

impl Group {
    pub(super) fn name(&self) -> &str {
        &self.registered.name
    }

    pub(super) fn lvm(&self) -> &Lvm {
        &self.registered.lvm
    }

    pub(super) fn device(&self) -> &LoopDevice {
        &self.device
    }

    pub(super) fn space(&self) -> Result<Space, Error> {
        let rows = self.lvm().report("vgs", "vg_free,vg_extent_size", self.name())?;
        let number = |field| rows.first().and_then(|row| row.number(field)).map(Size::bytes);
        match (number("vg_free"), number("vg_extent_size")) {
            (Some(free), Some(extent)) if extent > Size::bytes(0) => Ok(Space { free, extent }),
            _ => Err(Error::unreadable(
                format!("volume group {}", self.name()),
                "no free space or extent size",
            )),
        }
    }

    /// Rounds a size up to whole extents.
    ///
    /// # Errors
    /// When there is not so much left.
    pub(super) fn require_space(&self, what: &str, asked: Size) -> Result<Size, Error> {
        let Space { free, extent } = self.space()?;
        if asked == Size::bytes(0) {
            return Err(Error::TooSmall {
                what: what.into(),
                asked,
                least: extent,
            });
        }
        let rounded = asked
            .as_bytes()
            .checked_next_multiple_of(extent.as_bytes())
            .map(Size::bytes);
        match rounded {
            Some(rounded) if rounded <= free => Ok(rounded),
            _ => Err(Error::NotEnoughSpace {
                place: format!("volume group {}", self.name()),
                asked,
                free,
            }),
        }
    }
}

impl Registered {
    fn create(lvm: Lvm, name: String, device: &Path) -> Result<Self, Error> {
        lvm.admit(device)?;
        let group = Self {
            lvm,
            name,
            device: device.to_owned(),
            removed: false,
        };
        let (device, tags) = (device.to_string_lossy(), group.lvm.tags());
        let doing = format!("create volume group {}", group.name);
        let vgcreate = |options: &[&str]| {
            let tags = tags.iter().map(String::as_str);
            let args = ["vgcreate", "--yes"].into_iter().chain(options.iter().copied());
            let args: Vec<&str> = args.chain(tags).chain([group.name.as_str(), &*device]).collect();
            group.lvm.run(&doing, &args)
        };
        // So that the host's udev rules leave it alone.
        match vgcreate(&["--setautoactivation", "n"]) {
            Err(error) if is_of_usage(&error) => vgcreate(&[])?,
            other => other?,
        };
        Ok(group)
    }

    fn remove(&mut self, force: &[&str]) -> Result<(), Error> {
        if exists(&self.lvm, &self.name)? {
            let args: Vec<&str> = ["vgremove", "--yes"]
                .iter()
                .chain(force)
                .copied()
                .chain([self.name.as_str()])
                .collect();
            let doing = format!("remove volume group {}", self.name);
            self.lvm.run_suspending(&self.name, doing, &args)?;
        }
        let left: Vec<_> = dm::names()?
            .into_iter()
            .filter(|device| dm::belongs_to(device, &self.name))
            .collect();
        if !left.is_empty() {
            return Err(Error::StillHeld {
                what: format!("volume group {}", self.name),
                waited: Duration::ZERO,
                holders: left.into_iter().map(|device| format!("device {device}")).collect(),
            });
        }
        self.lvm.dismiss(&self.device)?;
        self.removed = true;
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = self.remove(&["--force"])
        {
            complain(format_args!("left behind: {error}"));
        }
    }
}

/// Whether LVM does not know an option, as versions before 2.03.12 do not know `--setautoactivation`.
fn is_of_usage(error: &Error) -> bool {
    let Error::Command { source, .. } = error else {
        return false;
    };
    matches!(source, command::Error::Failed { status, .. } if status.code() == Some(USAGE))
}

fn exists(lvm: &Lvm, name: &str) -> Result<bool, Error> {
    let rows = lvm.report("vgs", "vg_name", "")?;
    Ok(rows.iter().any(|row| row.text("vg_name") == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_room_for_the_volume_and_a_snapshot_that_holds_all_of_it() {
        let metadata = Size::gib(1).as_bytes() / 4096 * 16;
        let least = 2 * Size::gib(1).as_bytes() + metadata;
        assert!(group_size(Size::gib(1), None).as_bytes() > least);
        assert!(group_size(Size::gib(1), Some(Size::mib(4))) < Size::mib(1050));
    }

    #[test]
    fn a_size_beyond_any_disk_is_no_overflow() {
        assert_eq!(group_size(Size::bytes(u64::MAX), None), Size::bytes(u64::MAX));
    }
}
