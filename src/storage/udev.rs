use std::fs;
use std::path::Path;

/// Whether a udev daemon serves this process: one that runs beside it and shares its semaphores.
///
/// LVM waits for udev through a semaphore. The socket in `/run/udev` proves nothing: in a container it can
/// be the host's, whose daemon never sees that semaphore, and LVM would wait without end.
#[must_use]
pub fn udevd_runs() -> bool {
    let mine = fs::read_link("/proc/self/ns/ipc").ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .any(|process| is_udevd(&process) && fs::read_link(process.join("ns/ipc")).ok() == mine)
}

fn is_udevd(process: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    matches!(name.trim(), "systemd-udevd" | "udevd" | "eudevd")
}
