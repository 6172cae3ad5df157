//! Writes a cpio archive in the "newc" format, which the Linux kernel unpacks as an initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive being written.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    writer: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, entries: 0 }
    }

    /// Adds a directory; parents come first.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    /// Adds a file with these permissions.
    ///
    /// # Errors
    /// When writing fails, or the file is larger than 4 GiB.
    pub(crate) fn file(&mut self, name: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | permissions, data)
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entries = u32::MAX;
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.writer)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::Error::other("too large for an initramfs"))?;
        let name_size = u32::try_from(name.len() + 1).map_err(|_| io::Error::other("name too long"))?;
        self.entries = self.entries.wrapping_add(1);
        let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
        write!(self.writer, "070701")?;
        // Zero: owner, group and time; then the numbers of two devices, and a checksum that this format lacks.
        for field in [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0] {
            write!(self.writer, "{field:08x}")?;
        }
        self.writer.write_all(name.as_bytes())?;
        self.writer.write_all(&[0])?;
        // The header is 110 bytes long; name and data each end on a multiple of four.
        self.pad(110 + name.len() + 1)?;
        self.writer.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.writer.write_all(&[0; 3][..(4 - written % 4) % 4])
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", b"")]
    #[case("ab", b"x")]
    #[case("abc", b"xy")]
    #[case("modules/ext4.ko", b"xyz")]
    #[case("init", b"wxyz")]
    fn entries_are_aligned_and_their_header_tells_the_sizes(#[case] name: &str, #[case] data: &[u8]) {
        let mut archive = Archive::new(Vec::new());
        archive.file(name, 0o755, data).unwrap();
        let entry = archive.entries;
        let bytes = archive.writer;
        assert_eq!((entry, bytes.len() % 4), (1, 0));
        let field = |index: usize| {
            let digits = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        assert_eq!((field(1), field(6), field(11)), (0o100_755, data.len(), name.len() + 1));
        let start = (110 + name.len() + 1).next_multiple_of(4);
        assert_eq!(&bytes[110..110 + name.len()], name.as_bytes());
        assert_eq!(&bytes[start..start + data.len()], data);
    }

    #[test]
    fn an_archive_ends_with_the_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("modules").unwrap();
        let bytes = archive.finish().unwrap();
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
