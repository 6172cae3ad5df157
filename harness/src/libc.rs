//! Which version of the GNU C library a program needs.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader as _};

/// A version of the C library, as `2.41`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32);

impl FromStr for Version {
    type Err = ();

    /// Reads `2.41`, `2.2.5` or `2.41+1`; what follows the second number does not matter here.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .map(|number| number.parse().map_err(|_| ()));
        Ok(Self(numbers.next().ok_or(())??, numbers.next().ok_or(())??))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The newest version of the C library whose symbols this program asks for; `None` when it is linked statically.
///
/// # Errors
/// When the file cannot be read or is no 64-bit ELF file.
pub(crate) fn needed(program: &Path) -> io::Result<Option<Version>> {
    let data = std::fs::read(program)?;
    newest(&data).map_err(io::Error::other)
}

fn newest(data: &[u8]) -> object::Result<Option<Version>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((mut needs, strings)) = sections.gnu_verneed(endian, data)? else {
        return Ok(None);
    };
    let strings = sections.section(strings)?.strings(endian, data)?.unwrap_or_default();
    let mut newest = None;
    while let Some((_, mut versions)) = needs.next()? {
        while let Some(version) = versions.next()? {
            let name = String::from_utf8_lossy(version.name(endian, strings)?).into_owned();
            let version = name.strip_prefix("GLIBC_").and_then(|text| text.parse().ok());
            newest = newest.max(version);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2.36", "2.41")]
    #[case("2.9", "2.10")]
    #[case("2.2.5", "2.4")]
    #[case("2.36+dfsg1", "2.41")]
    fn versions_are_ordered_as_numbers(#[case] older: &str, #[case] newer: &str) {
        assert!(older.parse::<Version>().unwrap() < newer.parse().unwrap());
    }

    #[test]
    fn this_program_needs_a_version_the_host_has() {
        let needed = needed(&std::env::current_exe().unwrap()).unwrap().unwrap();
        let host = snaptax::command::Command::new("getconf")
            .arg("GNU_LIBC_VERSION")
            .run()
            .unwrap()
            .stdout;
        let host: Version = host.trim().strip_prefix("glibc ").unwrap().parse().unwrap();
        // Rust's standard library itself asks for 2.17 or later.
        assert!(
            needed >= Version(2, 17) && needed <= host,
            "needs {needed}, host has {host}"
        );
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(needed(Path::new("/etc/hosts")).is_err());
    }
}
