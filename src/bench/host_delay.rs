//! How long processors were wanted but not given: to a guest by its host, to a machine by its hypervisor.
//!
//! An emulated guest cannot see that its host has other things to do; everything in it only takes longer. So
//! `cargo experiments` tells it, once a second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::host;

/// Names the file in which a guest keeps the newest line that its host sent: `<seconds> <seconds waited>`, the first of
/// the host's clock, the second summed up over QEMU's threads.
const FILE: &str = "SNAPTAX_HOST_DELAY";

/// The largest share, in percent, that does not disturb a guest. With two processors on a host of two, one came to 8.5
/// to 13 % under the default load when it was alone there, half of it because QEMU's other threads were in its
/// processors' way, and to 30 to 73 % beside compilers (`nice -n 10`) that took one of the two.
const MOST_OF_A_GUEST: f64 = 25.0;

/// The same of a machine, from which nothing is taken unless others want it.
const MOST_OF_A_MACHINE: f64 = 10.0;

/// In less time, a share says nothing: lines come once a second.
const LEAST: Duration = Duration::from_secs(5);

/// How often a file is read that is just being written, and the pause between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Processors that are waited for, from when this was made.
#[derive(Debug)]
pub(super) struct HostDelay {
    source: Source,
    processors: usize,
    began: Option<Reading>,
}

/// Who tells.
#[derive(Debug)]
enum Source {
    /// A guest's host.
    Guest(PathBuf),
    /// The machine itself, with a clock.
    Machine(Instant),
}

/// What was waited so far, in seconds, and when that was.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    at: f64,
    waited: f64,
}

impl HostDelay {
    /// Begins, with what there is on this machine.
    pub(super) fn begin() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        match env::var_os(FILE) {
            Some(path) => Self::of_a_guest(path.into(), processors),
            // What is stolen from a machine is told of one processor.
            None => Self::of(Source::Machine(Instant::now()), 1),
        }
    }

    pub(super) fn of_a_guest(path: PathBuf, processors: usize) -> Self {
        Self::of(Source::Guest(path), processors)
    }

    fn of(source: Source, processors: usize) -> Self {
        Self {
            began: source.now(),
            source,
            processors,
        }
    }

    /// Share of the time in which a processor was waited for, on average over all of them, in percent. `None` where
    /// nobody tells, or not for long enough.
    pub(super) fn percent(&self) -> Option<f64> {
        self.source.now()?.percent(self.began?, self.processors)
    }

    /// What there is to say about a share, if it is one that disturbs.
    pub(super) fn disturbance(&self, percent: f64) -> Option<String> {
        let (what, most) = match self.source {
            Source::Guest(_) => ("host's processors were busy: the guest's", MOST_OF_A_GUEST),
            Source::Machine(_) => ("hypervisor's processors were busy: this machine's", MOST_OF_A_MACHINE),
        };
        (percent > most)
            .then(|| format!("the {what} waited for one {percent:.0} % of the time, and more than {most:.0} % disturb"))
    }
}

impl Source {
    fn now(&self) -> Option<Reading> {
        match self {
            Self::Guest(path) => newest(path),
            Self::Machine(began) => Some(Reading {
                at: began.elapsed().as_secs_f64(),
                waited: host::stolen()?.as_secs_f64(),
            }),
        }
    }
}

/// The line in this file. The shell that writes it empties it first.
fn newest(path: &Path) -> Option<Reading> {
    for _ in 0..TRIES {
        if let Some(reading) = Reading::parse(&fs::read_to_string(path).ok()?) {
            return Some(reading);
        }
        thread::sleep(PAUSE);
    }
    None
}

impl Reading {
    /// Reads a whole line.
    fn parse(line: &str) -> Option<Self> {
        let (at, waited) = line.strip_suffix('\n')?.split_once(' ')?;
        let seconds = |text: &str| text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        Some(Self {
            at: seconds(at)?,
            waited: seconds(waited)?,
        })
    }

    fn percent(self, earlier: Self, processors: usize) -> Option<f64> {
        let elapsed = self.at - earlier.at;
        let waited = (self.waited - earlier.waited).max(0.0);
        (elapsed >= LEAST.as_secs_f64()).then(|| 100.0 * waited / (elapsed * processors as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::whole("12.500 3.25\n", Some((12.5, 3.25)))]
    #[case::emptied("", None)]
    #[case::cut("12.500 3.2", None)]
    #[case::one_number("12.500\n", None)]
    #[case::three_numbers("12.500 3.25 1\n", None)]
    #[case::no_number("12.500 NaN\n", None)]
    fn only_a_whole_line_is_read(#[case] line: &str, #[case] expected: Option<(f64, f64)>) {
        let read = Reading::parse(line).map(|reading| (reading.at, reading.waited));
        assert_eq!(read, expected);
    }

    #[rstest]
    #[case::idle((20.0, 7.0), Some(0.0))]
    #[case::a_tenth((20.0, 9.0), Some(10.0))]
    #[case::nothing_newer((10.0, 7.0), None)]
    #[case::too_short((14.0, 9.0), None)]
    #[case::stolen_time_that_went_back((20.0, 6.9), Some(0.0))]
    fn the_share_is_of_all_processors(#[case] now: (f64, f64), #[case] percent: Option<f64>) {
        let reading = |(at, waited)| Reading { at, waited };
        assert_eq!(reading(now).percent(reading((10.0, 7.0)), 2), percent);
    }

    #[test]
    fn a_file_that_is_just_being_written_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let writer = thread::spawn(move || {
            thread::sleep(2 * PAUSE);
            fs::write(path, "1 2\n").unwrap();
        });
        let read = newest(file.path());
        writer.join().unwrap();
        assert_eq!(read, Some(Reading { at: 1.0, waited: 2.0 }));
    }

    #[test]
    fn where_nobody_tells_nothing_is_known() {
        let delay = HostDelay::of_a_guest("/no/such/file".into(), 2);
        assert_eq!(delay.percent(), None);
    }

    #[rstest]
    #[case::guest(Source::Guest("/no/such/file".into()), 24.0, 44.0, "the guest's waited for one 44 % of the time")]
    #[case::machine(
        Source::Machine(Instant::now()),
        9.0,
        12.0,
        "this machine's waited for one 12 % of the time"
    )]
    fn a_guest_waits_for_its_emulator_too_and_a_machine_does_not(
        #[case] source: Source,
        #[case] quiet: f64,
        #[case] busy: f64,
        #[case] words: &str,
    ) {
        let delay = HostDelay::of(source, 2);
        assert_eq!(delay.disturbance(quiet), None);
        assert!(delay.disturbance(busy).unwrap().contains(words));
    }

    #[test]
    fn a_machine_tells_of_itself() {
        let began = Reading { at: -10.0, waited: 0.0 };
        let machine = Source::Machine(Instant::now());
        assert!(machine.now().unwrap().percent(began, 1).is_some());
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "[0-9. einfNa+-]{0,30}\n?") {
            if let Some(reading) = Reading::parse(&line) {
                let _ = reading.percent(reading, 0);
            }
        }
    }
}
