use std::fmt;
use std::str::FromStr;

/// A size in bytes, written as LVM does.
///
/// ```
/// use snaptax::settings::Size;
///
/// let size: Size = "10G".parse()?;
/// assert_eq!(size, Size::gib(10));
/// assert_eq!(size.to_string(), "10 GiB");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many KiB.
    #[must_use]
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// So many MiB.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// So many GiB.
    #[must_use]
    pub const fn gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size::Config::new()
            .with_binary()
            .parse_size(text.trim())
            .map(Self)
            .map_err(|error| format!("{error}; a size is a number with a unit, such as 512m or 10G"))
    }
}

impl fmt::Display for Size {
    /// The largest unit that leaves no fraction, so that no digit is lost.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let whole = |(shift, _): &&(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match units.iter().find(whole) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("10G", Size::gib(10))]
    #[case("10g", Size::gib(10))]
    #[case("20 GiB", Size::gib(20))]
    #[case("512m", Size::mib(512))]
    #[case("4k", Size::kib(4))]
    #[case("4096", Size::bytes(4096))]
    fn sizes_are_read_in_lvms_manner(#[case] text: &str, #[case] size: Size) {
        assert_eq!(text.parse(), Ok(size));
    }

    #[rstest]
    #[case(Size::gib(10), "10 GiB")]
    #[case(Size::mib(1536), "1536 MiB")]
    #[case(Size::bytes(1000), "1000 B")]
    #[case(Size::bytes(0), "0 B")]
    fn sizes_are_shown_without_losing_a_digit(#[case] size: Size, #[case] text: &str) {
        assert_eq!(size.to_string(), text);
    }
}
