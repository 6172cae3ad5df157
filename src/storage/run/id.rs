use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use super::Life;
use crate::storage::stat_fields;

/// What every name begins with that a run gives to anything.
const PREFIX: &str = "snaptax-";

/// A run's name in everything it makes: its process, when that started, in clock ticks since boot, and the boot and
/// process namespace in which it has that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId {
    process: u32,
    started: u64,
    namespace: u64,
}

impl RunId {
    /// The id of this process.
    #[must_use]
    pub fn current() -> Self {
        let process = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            process,
            started: start_time(&stat).unwrap_or(0),
            namespace: namespace(),
        }
    }

    /// Whether it lives, by its process alone. One of another process namespace has another number here, if it can be
    /// seen at all, and one of another machine, or of this machine's last boot, none.
    #[must_use]
    pub fn life(&self) -> Life {
        if self.namespace != namespace() {
            return Life::OutOfSight;
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        if start_time(&stat) == Some(self.started) {
            Life::Running
        } else {
            Life::Ended
        }
    }

    /// The run that made something of this name, `snaptax-<run>` or `snaptax-<run>-<more>`.
    ///
    /// ```
    /// use snaptax::storage::RunId;
    ///
    /// let run = RunId::of_name("snaptax-812-90417-4026531836-vgtest").map(|run| run.to_string());
    /// assert_eq!(run.as_deref(), Some("812-90417-4026531836"));
    /// assert_eq!(RunId::of_name("snaptax-notes"), None);
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
        let id: Vec<&str> = parts.by_ref().take(3).collect();
        id.join("-").parse().ok()
    }

    /// The name of its directory, and what the names of all its other things begin with.
    pub(crate) fn name(&self) -> String {
        format!("{PREFIX}{self}")
    }
}

/// Field 22 of proc_pid_stat(5).
fn start_time(stat: &str) -> Option<u64> {
    stat_fields(stat).nth(19)?.parse().ok()
}

/// This process's namespace of processes (pid_namespaces(7)), and this boot of this machine: the first namespace has
/// the same number everywhere.
pub(super) fn namespace() -> u64 {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    namespace ^ u64::from(boot.unwrap_or(0))
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.process, self.started, self.namespace)
    }
}

/// A text is not of the form `<process>-<start time>-<namespace>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a run, as in 812-90417-4026531836")]
pub struct NoRunId;

impl FromStr for RunId {
    type Err = NoRunId;

    fn from_str(text: &str) -> Result<Self, NoRunId> {
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or(NoRunId);
        let run = Self {
            process: part()?.parse().map_err(|_| NoRunId)?,
            started: part()?.parse().map_err(|_| NoRunId)?,
            namespace: part()?.parse().map_err(|_| NoRunId)?,
        };
        // As it would write it itself: no signs, no leading zeros.
        if run.to_string() == text { Ok(run) } else { Err(NoRunId) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("7 (a b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2", Some(98_765))]
    #[case("7 (x) S 1", None)]
    #[case("", None)]
    fn the_start_time_is_found_behind_any_name(#[case] stat: &str, #[case] started: Option<u64>) {
        assert_eq!(start_time(stat), started);
    }

    #[test]
    fn a_run_keeps_its_id_and_knows_that_it_runs() {
        let run = RunId::current();
        assert_eq!(run, RunId::current());
        assert_eq!(run.life(), Life::Running);
        let reused = RunId {
            started: run.started + 1,
            ..run
        };
        assert_eq!(reused.life(), Life::Ended, "another process of the same number");
        let elsewhere = RunId { namespace: 1, ..run };
        assert_eq!(elsewhere.life(), Life::OutOfSight);
    }

    #[rstest]
    #[case("snaptax-1-2-3", true)]
    #[case("snaptax-1-2-3-vgtest", true)]
    #[case("snaptax-1-2-3-vg-test", true)]
    #[case("snaptax-1-2", false)]
    #[case("snaptax-01-2-3", false)]
    #[case("snaptax-+1-2-3", false)]
    #[case("snaptax-1-2-3x", false)]
    #[case("snaptax-one-two-three", false)]
    #[case("my-snaptax-1-2-3", false)]
    fn a_name_is_a_runs_only_if_a_run_would_write_it_so(#[case] name: &str, #[case] ours: bool) {
        assert_eq!(RunId::of_name(name).is_some(), ours);
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written(process: u32, started: u64, namespace: u64) {
            let run = RunId { process, started, namespace };
            prop_assert_eq!(run.to_string().parse(), Ok(run));
            prop_assert_eq!(RunId::of_name(&format!("snaptax-{run}-x")), Some(run));
        }

        #[test]
        fn no_name_makes_it_panic(name in ".{0,40}") {
            let _ = RunId::of_name(&name);
        }
    }
}
