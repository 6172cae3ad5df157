//! Who holds a device or a mount.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::storage::report::device_number;

/// Major and minor number of a device node.
pub(super) fn number_of(node: &Path) -> Option<(u32, u32)> {
    let device = fs::metadata(node).ok()?.rdev();
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Who holds a device: other devices on top of it, and every mount of it in any mount namespace.
pub(super) fn of_device(number: (u32, u32)) -> Vec<String> {
    let (major, minor) = number;
    let stacked = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"))
        .into_iter()
        .flatten()
        .flatten();
    let mut holders: Vec<String> = stacked
        .map(|entry| format!("device {}", entry.file_name().to_string_lossy()))
        .collect();

    let mut seen = BTreeSet::new();
    for process in processes() {
        let namespace = fs::read_link(process.join("ns/mnt")).unwrap_or_default();
        if !seen.insert(namespace) {
            continue;
        }
        let text = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        let mounts = mounts(&text).filter(|(device, _)| *device == number);
        holders.extend(mounts.map(|(_, at)| format!("{}, as a mount at {}", describe(&process), at.display())));
    }
    holders
}

/// Processes that work in, or have open, something below `directory`.
pub(super) fn of_directory(directory: &Path) -> Vec<String> {
    processes()
        .filter_map(|process| {
            let open = fs::read_dir(process.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path());
            let links = ["cwd", "root"].map(|name| process.join(name)).into_iter().chain(open);
            let used = links
                .filter_map(|link| fs::read_link(link).ok())
                .find(|used| used.starts_with(directory))?;
            Some(format!("{}, with {}", describe(&process), used.display()))
        })
        .collect()
}

/// Whether a device is mounted in this process's mount namespace.
pub(super) fn is_mounted(number: (u32, u32)) -> bool {
    mounts_here().iter().any(|(device, _)| *device == number)
}

/// Every mount in this process's mount namespace: the device's number, and where it is.
pub(super) fn mounts_here() -> Vec<((u32, u32), PathBuf)> {
    mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()).collect()
}

/// Processes that were started for something of this name: it is in an argument or in the environment.
pub(super) fn working_for(name: &str) -> Vec<String> {
    let own = Path::new("/proc").join(std::process::id().to_string());
    let mentions = |process: &PathBuf| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = fs::read(process.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(name)
        })
    };
    let found = processes().filter(|process| *process != own).filter(mentions);
    found.map(|process| describe(&process)).collect()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let is_process = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok())
    };
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_process)
}

fn describe(process: &Path) -> String {
    let id = process.file_name().unwrap_or_default().to_string_lossy();
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    format!("process {id} ({})", name.trim())
}

/// Device numbers and mount points of a `mountinfo` (proc_pid_mountinfo(5)).
fn mounts(text: &str) -> impl Iterator<Item = ((u32, u32), PathBuf)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let number = device_number(fields.next()?)?;
        Some((number, PathBuf::from(unescaped(fields.nth(1)?))))
    })
}

/// The kernel writes blanks, tabs, newlines and backslashes in octal.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mountinfo_is_read_with_optional_fields_and_blanks() {
        let text = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                    40 35 253:2 / /var/tmp/a\\040b rw - ext4 /dev/mapper/x rw\nbroken\n";
        let found: Vec<_> = mounts(text).collect();
        assert_eq!(
            found,
            [
                ((98, 0), PathBuf::from("/mnt2")),
                ((253, 2), PathBuf::from("/var/tmp/a b"))
            ]
        );
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let _open = fs::File::create(directory.path().join("ibdata1")).unwrap();
        let holders = of_directory(&directory.path().canonicalize().unwrap());
        let me = format!("process {} ", std::process::id());
        assert!(
            holders
                .iter()
                .any(|holder| holder.starts_with(&me) && holder.ends_with("ibdata1")),
            "{holders:?}"
        );
    }

    #[test]
    fn the_root_filesystem_is_held_by_a_mount() {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let (number, _) = mounts(&text).next().unwrap();
        assert!(is_mounted(number));
        assert!(!of_device(number).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            mounts(&text).for_each(drop);
        }
    }
}
