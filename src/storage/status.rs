use std::fmt;
use std::str::FromStr;

use crate::storage::Error;

/// State of a thick snapshot as the kernel reports it (`dmsetup status`; dm-snap.c, `snapshot_status`).
/// Sectors are of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotStatus {
    /// It works.
    Active(CowSectors),
    /// It is being merged into its origin; merged when all that is used is metadata.
    Merging(CowSectors),
    /// Its data is lost: the COW store was full, or could not be written.
    Invalid,
    /// The COW store is full.
    Overflow,
    /// Merging it failed.
    MergeFailed,
    /// The kernel cannot tell.
    Unknown,
    /// No snapshot at all, but an origin that has some.
    Origin,
}

/// How much of a COW store is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CowSectors {
    /// Sectors in use, metadata included.
    pub used: u64,
    /// All sectors.
    pub total: u64,
    /// Sectors used for metadata; kernels before 2.6.32 do not say.
    pub metadata: Option<u64>,
}

impl FromStr for SnapshotStatus {
    type Err = Error;

    /// Reads a line of `dmsetup status`, with or without the device's name in front.
    fn from_str(line: &str) -> Result<Self, Error> {
        let unreadable = || Error::unreadable("the snapshot's status", format!("`{}`", line.trim()));
        let words: Vec<_> = line.split_whitespace().collect();
        let words = match words.as_slice() {
            [name, rest @ ..] if name.ends_with(':') => rest,
            all => all,
        };
        let [start, length, target, rest @ ..] = words else {
            return Err(unreadable());
        };
        if start.parse::<u64>().is_err() || length.parse::<u64>().is_err() {
            return Err(unreadable());
        }
        match (*target, rest) {
            ("snapshot-origin", []) => Ok(Self::Origin),
            ("snapshot" | "snapshot-merge", ["Invalid"]) => Ok(Self::Invalid),
            ("snapshot" | "snapshot-merge", ["Overflow"]) => Ok(Self::Overflow),
            ("snapshot" | "snapshot-merge", ["Merge", "failed"]) => Ok(Self::MergeFailed),
            ("snapshot" | "snapshot-merge", ["Unknown"]) => Ok(Self::Unknown),
            ("snapshot", fill) => CowSectors::read(fill).map(Self::Active).ok_or_else(unreadable),
            ("snapshot-merge", fill) => CowSectors::read(fill).map(Self::Merging).ok_or_else(unreadable),
            _ => Err(unreadable()),
        }
    }
}

impl CowSectors {
    fn read(words: &[&str]) -> Option<Self> {
        let (fill, metadata) = match words {
            [fill] => (fill, None),
            [fill, metadata] => (fill, Some(metadata.parse().ok()?)),
            _ => return None,
        };
        let (used, total) = fill.split_once('/')?;
        Some(Self {
            used: used.parse().ok()?,
            total: total.parse().ok()?,
            metadata,
        })
    }

    /// Share in use, metadata included, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.total == 0 {
            return 100.0;
        }
        self.used as f64 / self.total as f64 * 100.0
    }

    /// Exceptions: chunks copied so far. `None` when the kernel does not tell the metadata apart.
    #[must_use]
    pub fn chunks(&self, chunk_bytes: u64) -> Option<u64> {
        let data = self.used.checked_sub(self.metadata?)?;
        data.checked_div(chunk_bytes / 512)
    }
}

impl fmt::Display for SnapshotStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(cow) => write!(f, "active, {:.1} % full", cow.percent()),
            Self::Merging(cow) => write!(f, "merging, {:.1} % full", cow.percent()),
            Self::Invalid => write!(f, "invalid"),
            Self::Overflow => write!(f, "overflown"),
            Self::MergeFailed => write!(f, "merge failed"),
            Self::Unknown => write!(f, "state unknown"),
            Self::Origin => write!(f, "an origin, not a snapshot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn cow(used: u64, total: u64, metadata: impl Into<Option<u64>>) -> CowSectors {
        CowSectors {
            used,
            total,
            metadata: metadata.into(),
        }
    }

    #[rstest]
    #[case(
        "0 8388608 snapshot 397896/2097152 1560",
        SnapshotStatus::Active(cow(397_896, 2_097_152, 1560))
    )]
    #[case("0 204800 snapshot 16/204800", SnapshotStatus::Active(cow(16, 204_800, None)))]
    #[case(
        "vg-snap--1: 0 8192 snapshot 16/8192 16\n",
        SnapshotStatus::Active(cow(16, 8192, 16))
    )]
    #[case("0 8388608 snapshot Invalid", SnapshotStatus::Invalid)]
    #[case("0 8388608 snapshot Merge failed", SnapshotStatus::MergeFailed)]
    #[case("0 8388608 snapshot Overflow", SnapshotStatus::Overflow)]
    #[case("0 8388608 snapshot Unknown", SnapshotStatus::Unknown)]
    #[case(
        "0 8388608 snapshot-merge 16/2097152 16",
        SnapshotStatus::Merging(cow(16, 2_097_152, 16))
    )]
    #[case("0 8388608 snapshot-merge Invalid", SnapshotStatus::Invalid)]
    #[case("0 8388608 snapshot-origin", SnapshotStatus::Origin)]
    #[case("0 8388608 snapshot-origin ", SnapshotStatus::Origin)]
    fn every_form_the_kernel_prints_is_read(#[case] line: &str, #[case] status: SnapshotStatus) {
        assert_eq!(line.parse::<SnapshotStatus>().unwrap(), status);
    }

    #[rstest]
    #[case("")]
    #[case("0 8388608")]
    #[case("0 8388608 linear")]
    #[case("0 8388608 snapshot")]
    #[case("0 8388608 snapshot 1/2 3 4")]
    #[case("0 8388608 snapshot 1-2 3")]
    #[case("0 8388608 snapshot -1/2 3")]
    #[case("x 8388608 snapshot Invalid")]
    #[case("0 8388608 snapshot Merge")]
    fn anything_else_is_refused_and_shown(#[case] line: &str) {
        let message = line.parse::<SnapshotStatus>().unwrap_err().to_string();
        assert!(message.contains(line.trim()), "{message}");
    }

    #[test]
    fn the_fill_is_what_lvs_shows() {
        assert_eq!(format!("{:.2}", cow(397_896, 2_097_152, 1560).percent()), "18.97");
    }

    #[rstest]
    #[case(cow(16, 8192, 16), Some(0))]
    #[case(cow(397_896, 2_097_152, 1560), Some(49_542))]
    #[case(cow(16, 8192, None), None)]
    #[case(cow(16, 8192, 24), None)]
    fn chunks_leave_out_metadata(#[case] sectors: CowSectors, #[case] chunks: Option<u64>) {
        assert_eq!(sectors.chunks(4096), chunks);
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(line in "\\PC*") {
            let _ = line.parse::<SnapshotStatus>();
        }

        #[test]
        fn no_status_makes_the_figures_panic(used: u64, total: u64, metadata: Option<u64>, chunk: u64) {
            let sectors = cow(used, total, metadata);
            let line = match metadata {
                Some(metadata) => format!("0 9 snapshot {used}/{total} {metadata}"),
                None => format!("0 9 snapshot {used}/{total}"),
            };
            prop_assert_eq!(line.parse::<SnapshotStatus>().unwrap(), SnapshotStatus::Active(sectors));
            let _ = (sectors.percent(), sectors.chunks(chunk));
        }
    }
}
