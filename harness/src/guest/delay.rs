//! How long QEMU had to wait for the host's processors, which its guest cannot see.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use snaptax::host;

/// What the threads of a process waited, summed up while they come and go.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    processors: u32,
    threads: HashMap<OsString, u64>,
    nanoseconds: u64,
}

impl Delay {
    /// Of a guest with so many processors.
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            processors: processors as u32,
            ..Self::default()
        }
    }

    /// Time so far in which the threads of this process were ready to run and did not, and in which the machine's own
    /// hypervisor took as many of its processors away as the guest has. It only grows. `None` where the kernel does not tell.
    pub(crate) fn of(&mut self, process: u32) -> Option<Duration> {
        let threads = run_delays(process)?;
        let increases = threads.iter().map(|(thread, now)| {
            let before = self.threads.get(thread).copied().unwrap_or(0);
            // Less than before is another thread of the same number.
            now.checked_sub(before).unwrap_or(*now)
        });
        self.nanoseconds += increases.sum::<u64>();
        self.threads = threads;
        Some(Duration::from_nanos(self.nanoseconds) + self.processors * host::stolen()?)
    }
}

/// Of each thread, in nanoseconds.
fn run_delays(process: u32) -> Option<HashMap<OsString, u64>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let threads: HashMap<_, _> = tasks
        .flatten()
        .filter_map(|task| {
            // It may have ended by now.
            let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name(), run_delay(&schedstat)?))
        })
        .collect();
    (!threads.is_empty()).then_some(threads)
}

/// The second of three numbers (the kernel's `Documentation/scheduler/sched-stats.rst`). All three are zero where the
/// kernel was told not to count, and of a thread that has not run yet.
fn run_delay(schedstat: &str) -> Option<u64> {
    let numbers: Vec<u64> = schedstat
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [0, 0, 0] => None,
        [_, delay, _] => Some(delay),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;
    use std::thread;
    use std::time::Instant;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_a_thread_that_ran("1204500 2056039 17\n", Some(2_056_039))]
    #[case::that_never_waited("1204500 0 17\n", Some(0))]
    #[case::that_is_not_counted("0 0 0\n", None)]
    #[case::of_another_form("1204500 2056039\n", None)]
    #[case::without_numbers("run delay none\n", None)]
    #[case::none("", None)]
    fn the_run_delay_is_the_second_number(#[case] schedstat: &str, #[case] delay: Option<u64>) {
        assert_eq!(run_delay(schedstat), delay);
    }

    #[test]
    fn what_ended_threads_waited_stays_in_the_sum() {
        let mut delay = Delay {
            threads: HashMap::from([("ended".into(), 40_000_000_000)]),
            nanoseconds: 60_000_000_000,
            ..Delay::default()
        };
        let Some(first) = delay.of(std::process::id()) else {
            return;
        };
        assert!(first >= Duration::from_secs(60) && !delay.threads.contains_key(OsStr::new("ended")));
        assert!(delay.of(std::process::id()) >= Some(first));
    }

    #[test]
    fn a_number_that_another_thread_has_by_now_takes_nothing_away() {
        let mut delay = Delay::default();
        if delay.of(std::process::id()).is_none() {
            return;
        }
        let before = delay.nanoseconds;
        delay.threads.values_mut().for_each(|waited| *waited = u64::MAX);
        assert!(delay.of(std::process::id()).is_some() && delay.nanoseconds >= before);
    }

    #[test]
    fn of_a_process_that_is_gone_nothing_is_known() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        assert_eq!(Delay::default().of(process), None);
    }

    #[test]
    fn twice_as_many_busy_threads_as_processors_wait_half_of_the_time() {
        let mut delay = Delay::default();
        // Some kernels do not tell.
        let Some(before) = delay.of(std::process::id()) else {
            return;
        };
        let processors = thread::available_parallelism().map_or(1, usize::from) as u32;
        let busy = Duration::from_secs(1);
        let end = Instant::now() + busy;
        let waited = thread::scope(|scope| {
            for _ in 0..2 * processors {
                scope.spawn(|| while Instant::now() < end {});
            }
            // A little before they end, and what they waited goes with them.
            thread::sleep(busy * 4 / 5);
            delay.of(std::process::id()).unwrap() - before
        });
        // It would be 0.8 s for each processor.
        assert!(waited > busy * processors / 4, "only {waited:?}");
    }
}
