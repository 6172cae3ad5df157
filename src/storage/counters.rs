use std::fs;
use std::time::Duration;

use crate::storage::Error;

/// What a block device has done since it appeared (the kernel's `Documentation/block/stat.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time with at least one request under way, counted in milliseconds.
    pub busy: Duration,
}

impl Counters {
    /// Reads the counters of a device, named as in `/sys/block`.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn of(device: &str) -> Result<Self, Error> {
        let path = format!("/sys/block/{device}/stat");
        let text = fs::read_to_string(&path).map_err(Error::file("read", path.as_ref()))?;
        Self::parse(&text).ok_or_else(|| Error::unreadable(path, format!("`{}`", text.trim())))
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [reads, _, sectors_read, _, writes, _, sectors_written, _, _, busy, ..] = fields[..] else {
            return None;
        };
        Some(Self {
            reads,
            bytes_read: sectors_read.saturating_mul(512),
            writes,
            bytes_written: sectors_written.saturating_mul(512),
            busy: Duration::from_millis(busy),
        })
    }

    /// What was done between `earlier` and these counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }

    /// Share of `elapsed` in which the device was busy, 0 to 100 percent.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snaptax::storage::Counters;
    ///
    /// let earlier = Counters { busy: Duration::from_secs(10), ..Counters::default() };
    /// let later = Counters { busy: Duration::from_secs(13), ..Counters::default() };
    /// assert_eq!(Counters::busy_percent(&earlier, &later, Duration::from_secs(4)), 75.0);
    /// ```
    #[must_use]
    pub fn busy_percent(earlier: &Self, later: &Self, elapsed: Duration) -> f64 {
        if elapsed.is_zero() {
            return 0.0;
        }
        // The kernel rounds busy time to its clock's ticks, so a saturated device can come out above 100.
        (later.since(earlier).busy.as_secs_f64() / elapsed.as_secs_f64() * 100.0).min(100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::linux_4_20("  10 1 80 5 20 2 160 7 0 1500 12 0 0 0 0\n")]
    #[case::linux_5_5("  10 1 80 5 20 2 160 7 0 1500 12 0 0 0 0 3 4\n")]
    #[case::old("  10 1 80 5 20 2 160 7 0 1500 12\n")]
    fn the_kernels_columns_are_read(#[case] text: &str) {
        let expected = Counters {
            reads: 10,
            bytes_read: 40_960,
            writes: 20,
            bytes_written: 81_920,
            busy: Duration::from_millis(1500),
        };
        assert_eq!(Counters::parse(text), Some(expected));
    }

    #[rstest]
    #[case("")]
    #[case("1 2 3 4 5 6 7 8 9")]
    #[case("1 2 3 4 5 6 7 8 9 ten 11")]
    fn other_text_is_refused(#[case] text: &str) {
        assert_eq!(Counters::parse(text), None);
    }

    #[test]
    fn a_missing_device_is_an_error_that_names_its_file() {
        let message = Counters::of("no-such-device").unwrap_err().to_string();
        assert!(message.contains("/sys/block/no-such-device/stat"), "{message}");
    }

    proptest! {
        #[test]
        fn busy_is_a_percentage(from in 0u64..u64::MAX / 2, ticks in 0u64..1 << 40, elapsed in 0u64..1 << 40) {
            let earlier = Counters { busy: Duration::from_millis(from), ..Counters::default() };
            let later = Counters { busy: Duration::from_millis(from + ticks), ..Counters::default() };
            let percent = Counters::busy_percent(&earlier, &later, Duration::from_millis(elapsed));
            prop_assert!((0.0..=100.0).contains(&percent));
        }
    }
}
