//! Files that QEMU writes while it runs: followed, and looked at when something goes wrong.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads what is appended to a file.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    partial: Vec<u8>,
}

impl Follower {
    /// Begins at the start of a file, which is made empty.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        File::create(path)?;
        Ok(Self {
            file: File::open(path)?,
            partial: Vec::new(),
        })
    }

    /// What was appended since the last call.
    ///
    /// # Errors
    /// When reading fails.
    pub(crate) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The lines that were completed since the last call.
    ///
    /// # Errors
    /// When reading fails.
    pub(crate) fn lines(&mut self) -> io::Result<Vec<String>> {
        self.file.read_to_end(&mut self.partial)?;
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect())
    }
}

/// The last lines of a console's log, without escape sequences.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = plain(&String::from_utf8_lossy(&text));
    let all: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Whether the kernel panicked.
pub(crate) fn panicked(path: &Path) -> bool {
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).contains("Kernel panic")
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // A control sequence runs up to its final letter; firmware writes no other kind.
            while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
        } else if c == '\n' || !c.is_control() {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_completed_lines_are_given_and_each_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let mut follower = Follower::create(&path).unwrap();
        let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(follower.lines().unwrap().is_empty());
        write!(writer, "step devices\nstep do").unwrap();
        assert_eq!(follower.lines().unwrap(), ["step devices"]);
        writeln!(writer, "cker").unwrap();
        assert_eq!(follower.lines().unwrap(), ["step docker"]);
    }

    #[test]
    fn the_tail_is_plain_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        std::fs::write(
            &path,
            "\x1b[2J\x1b[01;01HSeaBIOS\r\n\r\n[    1.0] one\r\n[    2.0] Kernel panic - not syncing\r\n",
        )
        .unwrap();
        assert_eq!(tail(&path, 2), "[    1.0] one\n[    2.0] Kernel panic - not syncing");
        assert!(tail(&path, 9).starts_with("SeaBIOS\n"));
        assert!(panicked(&path));
    }
}
