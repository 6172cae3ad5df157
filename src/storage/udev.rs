use std::fs;
use std::path::Path;

use crate::storage::stat_fields;

/// Whether a udev daemon serves this process: one that runs beside it, shares its semaphores, and is not stopped.
///
/// LVM waits for udev through a semaphore. The socket in `/run/udev` proves nothing: in a container it can
/// be the host's, whose daemon never sees that semaphore, and LVM would wait without end.
#[must_use]
pub fn udevd_runs() -> bool {
    let mine = fs::read_link("/proc/self/ns/ipc").ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|process| is_udevd(process) && fs::read_link(process.join("ns/ipc")).ok() == mine)
        .any(|process| !is_stopped(&fs::read_to_string(process.join("stat")).unwrap_or_default()))
}

fn is_udevd(process: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    matches!(name.trim(), "systemd-udevd" | "udevd" | "eudevd")
}

/// Whether a process was stopped, by a signal or a debugger.
fn is_stopped(stat: &str) -> bool {
    stat_fields(stat)
        .next()
        .is_some_and(|state| ["T", "t"].contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::sleeping("212 (systemd-udevd) S 1 212 212 0", false)]
    #[case::stopped("212 (systemd-udevd) T 1 212 212 0", true)]
    #[case::traced("212 (systemd-udevd) t 1 212 212 0", true)]
    #[case::of_an_odd_name("212 (a) T) S 1 212 212 0", false)]
    #[case::gone("", false)]
    fn a_stopped_process_is_told_from_a_waiting_one(#[case] stat: &str, #[case] stopped: bool) {
        assert_eq!(is_stopped(stat), stopped);
    }
}
