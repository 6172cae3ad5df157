//! What the guest is told of its host.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::delay::Delay;
use super::pipe::Pipe;

/// How often it is told.
const EVERY: Duration = Duration::from_secs(1);

/// The host, as one guest is told of it.
#[derive(Debug)]
pub(crate) struct Host {
    pipe: Pipe,
    delay: Delay,
    began: Instant,
    next: Instant,
}

impl Host {
    /// Makes the pipe of a port at this path, to a guest with so many processors.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn create(path: &Path, processors: usize) -> io::Result<Self> {
        Ok(Self {
            pipe: Pipe::create(path)?,
            delay: Delay::new(processors),
            began: Instant::now(),
            next: Instant::now(),
        })
    }

    /// Once a second, tells how long the threads of this QEMU waited for a processor so far: nothing where that is
    /// unknown, and nothing to a guest that does not listen.
    pub(crate) fn tell(&mut self, qemu: u32) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        if let Some(waited) = self.delay.of(qemu) {
            self.pipe.send(&line(now - self.began, waited));
        }
    }
}

/// Seconds of a clock that nobody sets, and seconds waited.
fn line(now: Duration, waited: Duration) -> String {
    format!("{:.3} {:.6}\n", now.as_secs_f64(), waited.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{BufRead, BufReader};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_line_has_two_numbers() {
        let waited = Duration::from_micros(61_000_250);
        assert_eq!(line(Duration::from_millis(1250), waited), "1.250 61.000250\n");
    }

    #[test]
    fn it_is_told_when_it_is_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut host = Host::create(&directory.path().join("host"), 2).unwrap();
        let this = std::process::id();
        host.tell(this);
        assert!(host.next > host.began + EVERY / 2);

        let later = Instant::now() + Duration::from_secs(3600);
        host.next = later;
        host.tell(this);
        assert_eq!(host.next, later);

        host.next = Instant::now();
        host.tell(this);
        if host.delay.of(this).is_none() {
            return;
        }
        let reader = File::open(directory.path().join("host.in")).unwrap();
        let numbers = |line: io::Result<String>| -> Vec<f64> {
            line.unwrap().split(' ').map(|number| number.parse().unwrap()).collect()
        };
        let lines: Vec<_> = BufReader::new(reader).lines().take(2).map(numbers).collect();
        assert!(lines[1][0] >= lines[0][0] && lines[1][1] >= lines[0][1], "{lines:?}");
    }

    #[test]
    fn the_guests_init_keeps_the_newest_line() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        let (_, rest) = include_str!("../../guest/init").split_once("    until read").unwrap();
        let (script, _) = rest.split_once("\n) <\"$(port host)\"").unwrap();
        let script = format!("until read{script}").replace("/run/snaptax-host", kept.to_str().unwrap());

        let mut pipe = Pipe::create(&directory.path().join("host")).unwrap();
        assert!(pipe.send("1.000 0.5\n") && pipe.send("2.000 0.75\n"));
        let reader = File::open(directory.path().join("host.in")).unwrap();
        // The script ends with its input.
        drop(pipe);
        let status = Command::new("sh").args(["-c", &script]).stdin(reader).status();
        assert!(status.is_ok_and(|status| status.success() || status.code() == Some(1)));
        assert_eq!(fs::read_to_string(kept).unwrap(), "2.000 0.75\n");
    }
}
