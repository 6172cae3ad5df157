use std::path::Path;

use crate::result::CowFill;
use crate::settings::Size;
use crate::storage::logical_volume::Lv;
use crate::storage::{Error, LogicalVolume, SnapshotStatus, dm};

/// A thick snapshot (dm-snapshot). Removed when dropped.
#[derive(Debug)]
pub struct Snapshot {
    lv: Lv,
    size: Size,
    chunk_size: Size,
}

/// A thick snapshot to be made.
#[derive(Debug)]
pub struct SnapshotBuilder<'a> {
    origin: &'a LogicalVolume,
    name: String,
    size: Option<Size>,
    chunk_size: Size,
}

impl<'a> SnapshotBuilder<'a> {
    pub(super) fn new(origin: &'a LogicalVolume, name: String) -> Self {
        Self {
            origin,
            name,
            size: None,
            chunk_size: Size::kib(4),
        }
    }

    /// Size of its COW store; without it, as large as it can ever need. LVM rounds it up to whole extents of
    /// 4 MiB, and never takes more than it can need.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.size = Some(size);
        self
    }

    /// Its chunk size: a power of two from 4 KiB, which is the default, to 512 KiB.
    #[must_use]
    pub fn chunk_size(mut self, chunk_size: Size) -> Self {
        self.chunk_size = chunk_size;
        self
    }

    /// Makes it. A mounted origin is frozen for a moment.
    ///
    /// # Errors
    /// When the group has no room for it, or LVM fails or makes another than was asked for.
    pub fn create(self) -> Result<Snapshot, Error> {
        let origin = self.origin.lv();
        let most = cow_size(self.origin.size(), self.chunk_size);
        let wanted = self.size.map_or(most, |size| size.min(most));
        let size = origin.group.require_space(&format!("snapshot {}", self.name), wanted)?;
        let (bytes, chunk) = (
            format!("{}b", size.as_bytes()),
            format!("{}b", self.chunk_size.as_bytes()),
        );
        let of = origin.full_name();
        let args = ["--snapshot", "--size", &bytes, "--chunksize", &chunk, &of];
        let (lv, row) = Lv::create(&origin.group, self.name, &args)?;

        let found = lv.size(&row)?;
        // LVM's own cap may lie an extent below ours; whole origins still fit.
        if found > size || found < size.min(self.origin.size()) {
            return Err(lv.not_as_asked("COW store", size, found));
        }
        let chunk_size = row.number("chunk_size").map(Size::bytes).unwrap_or(Size::bytes(0));
        if chunk_size != self.chunk_size {
            return Err(lv.not_as_asked("chunk size", self.chunk_size, chunk_size));
        }
        Ok(Snapshot {
            lv,
            size: found,
            chunk_size,
        })
    }
}

impl Snapshot {
    /// Its name within the group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lv.name
    }

    /// Its node, below `/dev/mapper`.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.lv.path()
    }

    /// Size of its COW store, in whole extents.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Its chunk size.
    #[must_use]
    pub fn chunk_size(&self) -> Size {
        self.chunk_size
    }

    /// Its state in the kernel.
    ///
    /// # Errors
    /// When its device is gone.
    pub fn status(&self) -> Result<SnapshotStatus, Error> {
        let name = self.lv.dm_name().unwrap_or_default();
        let doing = format!("read the status of {}", self.lv.full_name());
        dm::ask(doing, &["status", &name])?.stdout.parse()
    }

    /// How full its COW store is.
    ///
    /// # Errors
    /// [`Error::SnapshotLost`] when it no longer works: then the origin's writes are no longer copied, and
    /// nothing measured under it counts. [`Error::NotAsAsked`] when somebody changed its size.
    pub fn fill(&self) -> Result<CowFill, Error> {
        let status = self.status()?;
        let (SnapshotStatus::Active(cow) | SnapshotStatus::Merging(cow)) = status else {
            return Err(Error::SnapshotLost {
                name: self.lv.full_name(),
                status,
            });
        };
        let size = Size::bytes(cow.total.saturating_mul(512));
        if size != self.size {
            return Err(self.lv.not_as_asked("COW store", self.size, size));
        }
        let chunks = cow.chunks(self.chunk_size.as_bytes());
        let chunks =
            chunks.ok_or_else(|| Error::unreadable(self.lv.full_name(), format!("its metadata in {cow:?}")))?;
        Ok(CowFill {
            percent: cow.percent(),
            chunks,
        })
    }

    /// Removes it, and verifies that it is gone.
    ///
    /// # Errors
    /// When it is in use, or LVM fails.
    pub fn remove(self) -> Result<(), Error> {
        self.lv.remove()
    }
}

/// What a COW store can need at most: each chunk of the origin, a header, and an area of metadata for as
/// many chunks as 16-byte exceptions fit into one; the kernel clears the area after a full one, too
/// (`dm-snap-persistent.c`).
fn cow_size(origin: Size, chunk: Size) -> Size {
    let chunk = chunk.as_bytes().max(512);
    let chunks = origin.as_bytes().div_ceil(chunk);
    let areas = chunks / (chunk / 16) + 1;
    Size::bytes((1 + areas + chunks).saturating_mul(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Size::mib(4), Size::kib(4), (1 + 5 + 1024) * 4096)]
    #[case(Size::kib(4), Size::kib(4), (1 + 1 + 1) * 4096)]
    #[case(Size::gib(1), Size::kib(512), (1 + 1 + 2048) << 19)]
    fn the_largest_cow_store_holds_the_origin_and_its_metadata(
        #[case] origin: Size,
        #[case] chunk: Size,
        #[case] bytes: u64,
    ) {
        assert_eq!(cow_size(origin, chunk), Size::bytes(bytes));
    }
}
