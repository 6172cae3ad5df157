//! Named pipes to a guest, which never keep the harness waiting.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

/// The harness's end of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe(File);

impl Pipe {
    /// Makes the two pipes that QEMU wants for one path, in place of earlier ones: what one guest has not read is not
    /// for the next.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let [to_guest, from_guest] = ["in", "out"].map(|direction| end(path, direction));
        for pipe in [&to_guest, &from_guest] {
            if pipe.exists() {
                fs::remove_file(pipe)?;
            }
            mkfifoat(CWD, pipe, Mode::RUSR | Mode::WUSR)?;
        }
        // Open for reading too, it neither waits for QEMU nor fails when QEMU has ended.
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(to_guest)
            .map(Self)
    }

    /// Sends a line of at most a page, all of it or, when nobody has read for long, nothing. Whether it did.
    pub(crate) fn send(&mut self, line: &str) -> bool {
        self.0.write_all(line.as_bytes()).is_ok()
    }
}

fn end(path: &Path, direction: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(direction);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn what_is_sent_arrives_also_when_it_is_read_later() {
        let directory = tempfile::tempdir().unwrap();
        let mut pipe = Pipe::create(&directory.path().join("host")).unwrap();
        assert!(pipe.send("1 0\n") && pipe.send("2 0\n"));
        let reader = File::open(directory.path().join("host.in")).unwrap();
        let lines: Vec<_> = BufReader::new(reader).lines().take(2).map(Result::unwrap).collect();
        assert_eq!(lines, ["1 0", "2 0"]);
    }

    #[test]
    fn whole_lines_are_dropped_when_nobody_reads() {
        let directory = tempfile::tempdir().unwrap();
        let mut pipe = Pipe::create(&directory.path().join("host")).unwrap();
        let line = "1234567890 1234567890";
        let sent = (0..).take_while(|_| pipe.send(&format!("{line}\n"))).count();
        let reader = File::open(directory.path().join("host.in")).unwrap();
        let mut lines = BufReader::new(reader).lines().take(sent);
        assert!(sent > 100 && lines.all(|read| read.unwrap() == line));
    }

    #[test]
    fn a_guest_is_sent_nothing_of_an_earlier_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host");
        assert!(Pipe::create(&path).unwrap().send("1 0\n"));
        let mut pipe = Pipe::create(&path).unwrap();
        assert!(pipe.send("2 0\n"));
        let mut line = String::new();
        let reader = File::open(directory.path().join("host.in")).unwrap();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert_eq!(line, "2 0\n");
    }
}
