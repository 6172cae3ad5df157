use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::result::Calibration;
use crate::settings::Size;
use crate::storage::calibration::{self, Times};
use crate::storage::report::{LvAttr, Row};
use crate::storage::volume_group::Group;
use crate::storage::{
    Error, Filesystem, Mounted, RELEASE_DEADLINE, SnapshotBuilder, complain, dm, holders, wait_until,
};

/// A linear logical volume. Removed when dropped.
#[derive(Debug)]
pub struct LogicalVolume {
    lv: Lv,
    size: Size,
    filesystem: Option<Filesystem>,
}

/// A logical volume to be made.
#[derive(Debug)]
pub struct VolumeBuilder<'a> {
    group: &'a Arc<Group>,
    name: String,
    size: Size,
}

impl<'a> VolumeBuilder<'a> {
    pub(super) fn new(group: &'a Arc<Group>, name: String) -> Self {
        Self {
            group,
            name,
            size: Size::mib(512),
        }
    }

    /// Its size, 512 MiB unless said; LVM rounds it up to whole extents of 4 MiB.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// When the group has no room for it, or LVM fails.
    pub fn create(self) -> Result<LogicalVolume, Error> {
        let size = self
            .group
            .require_space(&format!("logical volume {}", self.name), self.size)?;
        let bytes = format!("{}b", size.as_bytes());
        let args = [
            "--size",
            &bytes,
            "--zero",
            "y",
            "--wipesignatures",
            "y",
            self.group.name(),
        ];
        let (lv, row) = Lv::create(self.group, self.name, &args)?;
        let found = lv.size(&row)?;
        if found != size {
            return Err(lv.not_as_asked("size", size, found));
        }
        Ok(LogicalVolume {
            lv,
            size,
            filesystem: None,
        })
    }
}

impl LogicalVolume {
    /// Its name within the group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lv.name
    }

    /// Its node, below `/dev/mapper`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.lv.path
    }

    /// Its size, in whole extents.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The filesystem it was given.
    #[must_use]
    pub fn filesystem(&self) -> Option<Filesystem> {
        self.filesystem
    }

    /// Measures in about four seconds how fast it is written to. What it holds is lost. `stop` ends it early.
    ///
    /// # Errors
    /// When it is mounted, cannot be written with direct I/O, or was stopped.
    pub fn calibrate(&mut self, stop: &AtomicBool) -> Result<Calibration, Error> {
        self.filesystem = None;
        calibration::calibrate(self.path(), Times::USUAL, stop)
    }

    /// Makes a filesystem on it, completely: none of it is left to the kernel for later, and no hole is made
    /// in the file below.
    ///
    /// # Errors
    /// When that fails. The volume is removed then.
    pub fn format(mut self, filesystem: Filesystem) -> Result<Self, Error> {
        filesystem.make(self.path())?;
        self.lv.group.device().file().require_full()?;
        self.filesystem = Some(filesystem);
        Ok(self)
    }

    /// Mounts it at a directory, which is made if missing.
    ///
    /// # Errors
    /// When that fails. The volume is removed then.
    pub fn mount(self, directory: &Path) -> Result<Mounted, Error> {
        Mounted::mount(self, directory)
    }

    /// A thick snapshot of it, to be made; it may be mounted and in use.
    #[must_use]
    pub fn thick_snapshot(&self, name: impl Into<String>) -> SnapshotBuilder<'_> {
        SnapshotBuilder::new(self, name.into())
    }

    /// Removes it, and verifies that it is gone.
    ///
    /// # Errors
    /// When it still has snapshots, is in use, or LVM fails.
    pub fn remove(self) -> Result<(), Error> {
        let rows = self
            .lv
            .group
            .lvm()
            .report("lvs", "lv_name,origin", self.lv.group.name())?;
        let snapshots = rows.iter().filter(|row| row.text("origin") == Some(self.name()));
        let holders: Vec<_> = snapshots
            .filter_map(|row| Some(format!("snapshot {}", row.text("lv_name")?)))
            .collect();
        if !holders.is_empty() {
            return Err(Error::StillHeld {
                what: self.lv.full_name(),
                waited: Duration::ZERO,
                holders,
            });
        }
        self.lv.remove()
    }

    pub(super) fn lv(&self) -> &Lv {
        &self.lv
    }
}

/// What LVM knows a volume by, of whatever kind.
#[derive(Debug)]
pub(super) struct Lv {
    pub(super) group: Arc<Group>,
    pub(super) name: String,
    path: PathBuf,
    removed: bool,
}

impl Lv {
    /// Runs `lvcreate` and reads back what it made.
    pub(super) fn create(group: &Arc<Group>, name: String, args: &[&str]) -> Result<(Self, Row), Error> {
        if exists(group, &name)? {
            return Err(Error::Exists {
                what: format!("{}/{name}", group.name()),
            });
        }
        // From here on it is removed when dropped: a failed lvcreate may leave a volume behind.
        let mut lv = Self {
            group: Arc::clone(group),
            name,
            path: PathBuf::new(),
            removed: false,
        };
        let tags = group.lvm().tags();
        let fixed = ["lvcreate", "--yes", "--monitor", "n", "--name", &lv.name];
        let args: Vec<&str> = fixed
            .into_iter()
            .chain(tags.iter().map(String::as_str))
            .chain(args.iter().copied())
            .collect();
        let doing = format!("create {}", lv.full_name());
        group.lvm().run_suspending(group.name(), doing, &args)?;

        let fields = "lv_name,lv_attr,lv_size,chunk_size,lv_dm_path,origin";
        let rows = group.lvm().report("lvs", fields, &lv.full_name())?;
        let row = rows
            .into_iter()
            .next()
            .ok_or_else(|| Error::unreadable(lv.full_name(), "lvs does not list it"))?;
        lv.path = row.text("lv_dm_path").map(PathBuf::from).unwrap_or_default();
        let attr = row.text("lv_attr").unwrap_or_default();
        // A small snapshot under load may be lost by now, which its state tells whoever measures with it.
        let has_device = LvAttr::parse(attr).is_some_and(|attr| attr.is_active() || attr.is_lost());
        if !has_device || !lv.path.exists() {
            return Err(lv.not_as_asked("device", "active", format!("not, or without node (lv_attr {attr})")));
        }
        Ok((lv, row))
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.group.name(), self.name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in device-mapper; `None` before it was made.
    pub(super) fn dm_name(&self) -> Option<String> {
        Some(self.path.file_name()?.to_string_lossy().into_owned())
    }

    pub(super) fn size(&self, row: &Row) -> Result<Size, Error> {
        let size = row.number("lv_size").map(Size::bytes);
        size.ok_or_else(|| Error::unreadable(self.full_name(), "lvs does not tell its size"))
    }

    pub(super) fn not_as_asked(&self, what: &str, asked: impl ToString, found: impl ToString) -> Error {
        Error::NotAsAsked {
            what: format!("the {what} of {}", self.full_name()),
            asked: asked.to_string(),
            found: found.to_string(),
        }
    }

    pub(super) fn remove(mut self) -> Result<(), Error> {
        self.wait_until_closed(RELEASE_DEADLINE)?;
        self.lvremove(&[])
    }

    /// Waits until nothing has the device open: what was told to end may not have ended yet, and udev
    /// looks into new devices for some milliseconds.
    pub(super) fn wait_until_closed(&self, deadline: Duration) -> Result<(), Error> {
        let Some(name) = self.dm_name() else { return Ok(()) };
        if wait_until(deadline, || Ok::<_, Error>(dm::open_count(&name)? == 0))? {
            return Ok(());
        }
        let number = holders::number_of(&self.path);
        Err(Error::StillHeld {
            what: self.full_name(),
            waited: deadline,
            holders: number.map(holders::of_device).unwrap_or_default(),
        })
    }

    fn lvremove(&mut self, force: &[&str]) -> Result<(), Error> {
        let full_name = self.full_name();
        let args: Vec<&str> = ["lvremove", "--yes"]
            .iter()
            .chain(force)
            .copied()
            .chain([&*full_name])
            .collect();
        let doing = format!("remove {full_name}");
        self.group.lvm().run_suspending(self.group.name(), doing, &args)?;
        if let Some(name) = self.dm_name() {
            let parts = [format!("{name}-cow"), format!("{name}-real"), name];
            let left: Vec<_> = dm::names()?
                .into_iter()
                .filter(|device| parts.contains(device))
                .collect();
            if !left.is_empty() {
                return Err(Error::StillHeld {
                    what: full_name,
                    waited: Duration::ZERO,
                    holders: left,
                });
            }
        }
        self.removed = true;
        Ok(())
    }
}

impl Drop for Lv {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        // A failed lvcreate may have made nothing, and an origin takes its snapshots with it.
        let result = exists(&self.group, &self.name)
            .and_then(|exists| if exists { self.lvremove(&["--force"]) } else { Ok(()) });
        if let Err(error) = result {
            complain(format_args!("left behind: {error}"));
        }
    }
}

fn exists(group: &Group, name: &str) -> Result<bool, Error> {
    let rows = group.lvm().report("lvs", "lv_name", group.name())?;
    Ok(rows.iter().any(|row| row.text("lv_name") == Some(name)))
}
