//! LVM on a loop device: built, checked and removed again, without touching the host's own LVM.
//!
//! Everything is made by a run itself, carries the run's id in its name, and is removed in reverse order:
//! explicitly by `remove` (which verifies that nothing is left), or by `Drop` as the last resort. A handle
//! keeps what it stands on alive: a volume its group, a mount its volume. To leave everything behind and look
//! at it, `std::mem::forget` the handles.
//!
//! ```no_run
//! use std::path::Path;
//! use snaptax::settings::Size;
//! use snaptax::storage::{Filesystem, Lvm, VolumeGroup};
//!
//! let lvm = Lvm::isolated("/var/tmp/run/lvm")?;
//! let group = VolumeGroup::on_file(&lvm, "vgtest", "/var/tmp/run/vgtest.pv").size(Size::gib(2)).create()?;
//! let volume = group.volume("datalv").size(Size::gib(1)).create()?;
//! let mounted = volume.format(Filesystem::Ext4)?.mount(Path::new("/var/tmp/run/mnt"))?;
//!
//! let snapshot = mounted.volume().thick_snapshot("snapdatalv-1").chunk_size(Size::kib(4)).create()?;
//! println!("{} chunks copied", snapshot.fill()?.chunks);
//!
//! snapshot.remove()?;
//! mounted.unmount()?.remove()?;
//! group.remove()?;
//! # Ok::<(), snaptax::storage::Error>(())
//! ```

mod backing_file;
mod calibration;
mod counters;
mod dm;
mod error;
mod filesystem;
mod holders;
mod leftovers;
mod lock;
mod logical_volume;
mod loop_device;
mod lvm;
mod report;
mod run;
mod snapshot;
mod status;
mod udev;
mod volume_group;

pub use backing_file::{BackingFile, free_space};
pub use counters::Counters;
pub use error::Error;
pub use filesystem::{Filesystem, Mounted};
pub use leftovers::{Leftovers, Mount};
pub(crate) use lock::lock;
pub use logical_volume::{LogicalVolume, VolumeBuilder};
pub use loop_device::LoopDevice;
pub use lvm::Lvm;
pub use report::{AttachedLoop, LvAttr, Row, loop_devices, rows};
pub use run::{FoundRun, Life, NoRunId, RunDirectory, RunId};
pub use snapshot::{Snapshot, SnapshotBuilder};
pub use status::{CowSectors, SnapshotStatus};
pub use udev::udevd_runs;
pub use volume_group::{VolumeGroup, VolumeGroupBuilder, group_size};

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::text;

/// How long to wait until something that is on its way out has really gone.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);

/// Says that something goes wrong, if there is anybody to hear it: a panic, while another one unwinds, would end the
/// process with all of its devices.
pub(crate) fn complain(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "snaptax: {text}");
}

/// A path as one line, without what a terminal would obey: others may have named it.
fn printable(path: &Path) -> String {
    text::printable(&path.to_string_lossy())
}

/// The fields of proc_pid_stat(5) from the third on; the second may contain blanks and parentheses.
pub(crate) fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Asks again until the answer is yes; `Ok(false)` when it still is no at the deadline.
fn wait_until<E>(deadline: Duration, mut done: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(5);
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
