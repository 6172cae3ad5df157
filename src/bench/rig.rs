//! The rig: storage, server and data that both sides of a comparison share.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::progress::step;
use super::{Difference, Error, Setup, State};
use crate::server::{Server, ServerOptions};
use crate::settings::{Settings, Size};
use crate::storage::{self, LogicalVolume, Lvm, Mounted, Snapshot, SnapshotBuilder, VolumeGroup, group_size};
use crate::workload::Connect;

const GROUP: &str = "vgtest";
const VOLUME: &str = "datalv";
const DATABASE: &str = "sbtest";

/// Marks the container of a run.
const RUN_LABEL: &str = "org.snaptax.run";

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
}

impl Rig {
    pub(super) fn build(setup: &Setup, settings: &Settings, stop: &AtomicBool) -> Result<Self, Error> {
        let directory = RunDirectory::create(&settings.work_dir)?;
        let lvm = Lvm::isolated(directory.0.join("lvm"))?;

        let volume_size = settings.volume_size.unwrap_or(setup.volume_size);
        let spare = settings.snapshot_size.or(setup.spare);
        let group = step("volume group", || {
            VolumeGroup::on_file(&lvm, GROUP, directory.0.join(format!("{GROUP}.pv")))
                .size(group_size(volume_size, spare))
                .progress(|_| match stop.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
                .create()
        })?;
        let mounted = step("filesystem", || {
            let volume = group.volume(VOLUME).size(volume_size).create()?;
            volume.format(setup.filesystem)?.mount(&directory.0.join("origin"))
        })?;
        super::check(stop)?;

        let server = step("server", || {
            // Not the filesystem's root: an initialisation refuses a directory with `lost+found` in it.
            let data = mounted.path().join("mysql");
            let mut options = ServerOptions::new(&settings.image, data, directory.0.join("run"));
            options.mysqld = setup.mysqld(settings);
            options.labels = BTreeMap::from([(RUN_LABEL.to_owned(), lvm.run_id().to_string())]);
            Server::start(options, stop)
        })?;
        Ok(Self {
            server,
            mounted,
            group,
            lvm,
            directory,
            settings: settings.clone(),
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

    pub(super) fn connect(&self) -> Connect {
        Connect::socket(self.server.socket()).user("root").database(DATABASE)
    }

    pub(super) fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    pub(super) fn group(&self) -> &VolumeGroup {
        &self.group
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
            .and(cleared)
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
            Err(error @ storage::Error::SnapshotLost { .. }) => Ok(State {
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

/// A directory for all files of a run. Removed when dropped, but for what somebody else put there.
#[derive(Debug)]
struct RunDirectory(PathBuf);

impl RunDirectory {
    fn create(work_dir: &Path) -> Result<Self, Error> {
        let path = work_dir.join(format!("snaptax-{}", storage::RunId::current()));
        fs::create_dir_all(work_dir)
            .and_then(|()| fs::create_dir(&path))
            .map_err(|source| Error::Directory {
                doing: "create",
                path: path.clone(),
                source,
            })?;
        Ok(Self(path))
    }

    fn remove(self) -> Result<(), Error> {
        self.clear().map_err(|source| Error::Directory {
            doing: "remove",
            path: self.0.clone(),
            source,
        })
    }

    /// Never by descending into it: the origin might still be mounted there.
    fn clear(&self) -> std::io::Result<()> {
        for part in ["lvm", "run"] {
            let part = self.0.join(part);
            if part.is_dir() {
                fs::remove_dir_all(part)?;
            }
        }
        if self.0.is_dir() {
            fs::remove_dir(&self.0)?;
        }
        Ok(())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            eprintln!("snaptax: left behind: {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_goes_away_but_for_what_is_not_its_own() {
        let work_dir = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create(work_dir.path()).unwrap();
        let path = directory.0.clone();
        fs::create_dir_all(path.join("lvm/backup")).unwrap();
        fs::write(path.join("other"), "").unwrap();
        assert!(directory.remove().is_err());
        assert!(path.join("other").is_file() && !path.join("lvm").exists());
    }
}
