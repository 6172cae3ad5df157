use std::fs;
use std::time::Duration;

use crate::storage::stat_fields;

/// Clock ticks per second in `/proc`, which Linux fixes for programs.
const TICKS: f64 = 100.0;

/// Processor time so far, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Processor {
    /// Of all processors together, in which they did something.
    busy: f64,
    /// Of this process: the load generator.
    own: f64,
}

impl Processor {
    pub(super) fn now() -> Option<Self> {
        Some(Self {
            busy: busy(&fs::read_to_string("/proc/stat").ok()?)?,
            own: own(&fs::read_to_string("/proc/self/stat").ok()?)?,
        })
    }

    /// Shares of the processors' time in percent, all busy time first, then the load generator's.
    pub(super) fn shares(self, earlier: Self, elapsed: Duration) -> (f64, f64) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let share = |seconds: f64| (100.0 * seconds / (processors * elapsed.as_secs_f64())).min(100.0);
        (share(self.busy - earlier.busy), share(self.own - earlier.own))
    }
}

/// All but idle and iowait of the first line: proc_stat(5).
fn busy(stat: &str) -> Option<f64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    // guest and guest_nice, from the ninth on, are part of user and nice.
    Some((ticks.iter().take(8).sum::<f64>() - idle) / TICKS)
}

/// utime and stime: fields 14 and 15 of proc_pid_stat(5).
fn own(stat: &str) -> Option<f64> {
    let ticks = stat_fields(stat).skip(11).take(2);
    let ticks: Vec<f64> = ticks.map_while(|field| field.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_busy_and_a_guests_time_counts_once() {
        let stat = "cpu  100 0 50 1000 500 0 25 25 10 0\ncpu0 1 2 3\n";
        assert_eq!(busy(stat), Some(2.0));
        assert_eq!(busy("intr 5"), None);
    }

    #[test]
    fn a_programs_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 7";
        assert_eq!(own(stat), Some(2.0));
        assert_eq!(own("42 (a) S 1"), None);
    }
}
