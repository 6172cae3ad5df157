//! The rig: storage, server and data that both sides of a comparison share.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::progress::step;
use super::{Difference, Error, Setup, State};
use crate::result::Calibration;
use crate::server::{Server, ServerOptions};
use crate::settings::{Settings, Size};
use crate::storage::{
    self, LogicalVolume, Lvm, Mounted, RunDirectory, Snapshot, SnapshotBuilder, VolumeGroup, group_size,
};
use crate::sweep::{DIRECTORY_LABEL, RUN_LABEL};
use crate::workload::Connect;

const GROUP: &str = "vgtest";
const VOLUME: &str = "datalv";
const DATABASE: &str = "sbtest";

/// A volume group on a loop device, a mounted volume in it, and a server with its data on that.
///
/// Fields drop in this order, should a run end early: the server before what it stands on.
pub struct Rig {
    server: Server,
    mounted: Mounted,
    group: VolumeGroup,
    lvm: Lvm,
    directory: RunDirectory,
    settings: Settings,
    calibration: Calibration,
}

impl Rig {
    pub(super) fn build(setup: &Setup, settings: &Settings, stop: &AtomicBool) -> Result<Self, Error> {
        let directory = RunDirectory::create(&settings.work_dir)?;
        let lvm = Lvm::isolated(directory.path().join("lvm"))?;

        let volume_size = settings.volume_size.unwrap_or(setup.volume_size);
        let spare = settings.snapshot_size.or(setup.spare);
        let group = step("volume group", || {
            VolumeGroup::on_file(&lvm, GROUP, directory.path().join(format!("{GROUP}.pv")))
                .size(group_size(volume_size, spare))
                .progress(|_| match stop.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
                .create()
        })?;
        let mut volume = step("volume", || group.volume(VOLUME).size(volume_size).create())?;
        let calibration = step("calibration", || volume.calibrate(stop))?;
        let mounted = step("filesystem", || {
            volume.format(setup.filesystem)?.mount(&directory.path().join("origin"))
        })?;
        super::check(stop)?;

        let server = step("server", || {
            // Not the filesystem's root: an initialisation refuses a directory with `lost+found` in it.
            let data = mounted.path().join("mysql");
            let mut options = ServerOptions::new(&settings.image, data, directory.path().join("run"));
            options.mysqld = setup.mysqld(settings);
            options.name = lvm.run_id().name();
            options.labels = BTreeMap::from([
                (RUN_LABEL.to_owned(), lvm.run_id().to_string()),
                (DIRECTORY_LABEL.to_owned(), directory.path().display().to_string()),
            ]);
            Server::start(options, stop)
        })?;
        Ok(Self {
            server,
            mounted,
            group,
            lvm,
            directory,
            settings: settings.clone(),
            calibration,
        })
    }

    /// The origin: the mounted volume that the server's data is on.
    #[must_use]
    pub fn volume(&self) -> Origin<'_> {
        Origin {
            volume: self.mounted.volume(),
            settings: &self.settings,
        }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Lets sweeps pass over everything.
    pub(super) fn mark_kept(&self) -> Result<(), Error> {
        Ok(self.directory.mark_kept()?)
    }

    /// Leaves everything as it is, and tells how to look at it and how to remove it.
    pub(super) fn keep(self) -> String {
        let path = self.directory.path().to_owned();
        let socket = self.server.socket().to_owned();
        // Its lock, too, goes with the process.
        std::mem::forget(self);
        format!(
            "kept, in {0}:\n\
             \x20    LVM_SYSTEM_DIR={0}/lvm lvs --all\n\
             \x20    mysql --user=root --socket={1} {DATABASE}\n\
             \x20    ls {0}/origin/mysql\n\
             \x20  to remove it: snaptax sweep --kept",
            path.display(),
            socket.display()
        )
    }

    pub(super) fn connect(&self) -> Connect {
        Connect::socket(self.server.socket()).user("root").database(DATABASE)
    }

    pub(super) fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// The volume group that all of it is in.
    #[must_use]
    pub fn group(&self) -> &VolumeGroup {
        &self.group
    }

    pub(super) fn calibration(&self) -> Calibration {
        self.calibration
    }

    pub(super) fn lvm(&self) -> &Lvm {
        &self.lvm
    }

    /// Stops the server and removes everything, in order; goes on after a failure, and reports the first.
    pub(super) fn remove(self) -> Result<(), Error> {
        let stopped = self.server.stop().map_err(Error::from);
        let unmounted = self.mounted.unmount().and_then(LogicalVolume::remove);
        let removed = self.group.remove();
        drop(self.lvm);
        let cleared = self.directory.remove();
        stopped
            .and(unmounted.map_err(Error::from))
            .and(removed.map_err(Error::from))
            .and(cleared.map_err(Error::from))
    }
}

/// The origin as an experiment sees it. Snapshots of it follow the settings, which win over its code.
#[derive(Debug)]
pub struct Origin<'a> {
    volume: &'a LogicalVolume,
    settings: &'a Settings,
}

impl<'a> Origin<'a> {
    /// A thick snapshot of it, to be made while the server runs. `SNAPTAX_SNAPSHOT_SIZE` and
    /// `SNAPTAX_CHUNK_SIZE` win over what is said here.
    pub fn thick_snapshot(&self, name: &str) -> ThickSnapshot<'a> {
        ThickSnapshot {
            builder: self.volume.thick_snapshot(name),
            settings: self.settings,
        }
    }

    /// The volume itself.
    #[must_use]
    pub fn volume(&self) -> &'a LogicalVolume {
        self.volume
    }
}

/// A thick snapshot to be made.
#[derive(Debug)]
pub struct ThickSnapshot<'a> {
    builder: SnapshotBuilder<'a>,
    settings: &'a Settings,
}

impl ThickSnapshot<'_> {
    /// Size of its COW store; without it, as large as it can ever need.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.builder = self.builder.size(size);
        self
    }

    /// Its chunk size: a power of two from 4 KiB, which is the default, to 512 KiB.
    #[must_use]
    pub fn chunk_size(mut self, size: Size) -> Self {
        self.builder = self.builder.chunk_size(size);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// When the group has no room for it, or LVM fails or makes another than was asked for.
    pub fn create(self) -> Result<Snapshot, Error> {
        let mut builder = self.builder;
        if let Some(size) = self.settings.snapshot_size {
            builder = builder.size(size);
        }
        if let Some(size) = self.settings.chunk_size {
            builder = builder.chunk_size(size);
        }
        Ok(builder.create()?)
    }
}

impl Difference for Snapshot {
    fn describe(&self) -> String {
        format!(
            "thick snapshot, {} chunks, {} COW store",
            self.chunk_size(),
            self.size()
        )
    }

    fn state(&self) -> Result<State, Error> {
        match self.fill() {
            Ok(cow) => Ok(State {
                cow: Some(cow),
                invalid: None,
            }),
            Err(error @ (storage::Error::SnapshotLost { .. } | storage::Error::NotAsAsked { .. })) => Ok(State {
                cow: None,
                invalid: Some(error.to_string()),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn undo(self) -> Result<(), Error> {
        Ok(self.remove()?)
    }
}
