//! Who holds a device or a mount.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::storage::report::device_number;
use crate::storage::{printable, stat_fields};

/// Major and minor number of a device node.
pub(super) fn number_of(node: &Path) -> Option<(u32, u32)> {
    let device = fs::metadata(node).ok()?.rdev();
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Who holds a device: other devices on top of it, every mount of it in any mount namespace, and processes that have
/// it open, or that work in or have open something on it. The latter may be in a mount that is gone from every
/// namespace: removing a directory takes off what others have mounted there.
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
        let text = mountinfo(&process);
        let mounts = mounts(&text).filter(|(device, _)| *device == number);
        holders.extend(mounts.map(|(_, at)| format!("{}, as a mount at {}", describe(&process), printable(&at))));
    }
    holders.extend(using(|link| is_on(link, number)));
    holders
}

/// Whether what a link in `/proc` leads to lies on a device, or is the device itself.
fn is_on(link: &Path, number: (u32, u32)) -> bool {
    // A network filesystem is not asked anew: it may not answer.
    let stat = rustix::fs::statx(rustix::fs::CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    stat.is_ok_and(|stat| {
        let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let is_block = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice;
        (stat.stx_dev_major, stat.stx_dev_minor) == number || is_block && device == number
    })
}

/// Processes that work in, or have open, a file or something below a directory.
pub(super) fn of_directory(directory: &Path) -> Vec<String> {
    using(|link| fs::read_link(link).is_ok_and(|used| used.starts_with(directory)))
}

/// Processes that work in, or have open, what is asked for; each with the first that is.
fn using(is_meant: impl Fn(&Path) -> bool) -> Vec<String> {
    processes()
        .filter_map(|process| {
            let open = fs::read_dir(process.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path());
            let links = ["cwd", "root"].map(|name| process.join(name)).into_iter().chain(open);
            let used = fs::read_link(links.into_iter().find(|link| is_meant(link))?).unwrap_or_default();
            Some(format!("{}, with {}", describe(&process), printable(&used)))
        })
        .collect()
}

/// Whether a device is mounted in this process's mount namespace.
pub(super) fn is_mounted(number: (u32, u32)) -> bool {
    mounts_here().iter().any(|(device, _)| *device == number)
}

/// Every mount in this process's mount namespace: the device's number, and where it is.
pub(super) fn mounts_here() -> Vec<((u32, u32), PathBuf)> {
    mounts(&mountinfo(Path::new("/proc/self"))).collect()
}

/// A path in it that is not UTF-8 is somebody else's, and must not hide the others.
fn mountinfo(process: &Path) -> String {
    let bytes = fs::read(process.join("mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Programs of this kind that were started for something of this name: it is in an argument or in the environment.
/// The kind is known by the program's name; this process and those that started it do not count.
pub(super) fn working_for(name: &str, programs: &[&str]) -> Vec<String> {
    let own = ancestors();
    let of_kind = |process: &PathBuf| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        programs.contains(&name.trim())
    };
    // A device-mapper device's name has every hyphen twice.
    let names = [name.to_owned(), name.replace('-', "--")];
    let is_for = |process: &PathBuf| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = fs::read(process.join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            names.iter().any(|name| mentions(&text, name))
        })
    };
    let found = processes().filter(|process| !own.contains(process));
    let found = found.filter(of_kind).filter(is_for);
    found.map(|process| describe(&process)).collect()
}

/// Whether a text contains this name and not just a longer one.
fn mentions(text: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    text.match_indices(name).any(|(at, _)| ends(&text[at + name.len()..]))
}

/// This process, the one that started it, and so on.
fn ancestors() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut process = PathBuf::from(format!("/proc/{}", std::process::id()));
    while found.insert(process.clone()) {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        process = Path::new("/proc").join(stat_fields(&stat).nth(1).unwrap_or("0"));
    }
    found
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
    format!("process {id} ({})", printable(name.trim().as_ref()))
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
    use std::time::Duration;

    use crate::storage::wait_until;
    use proptest::prelude::*;
    use rstest::rstest;

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
    fn a_longer_name_is_another_one() {
        assert!(mentions("LVM_SYSTEM_DIR=/w/snaptax-1-2-3/lvm", "snaptax-1-2-3"));
        assert!(!mentions("/w/snaptax-1-2-34/x", "snaptax-1-2-3"));
        assert!(mentions("/w/snaptax-1-2-34/x snaptax-1-2-3", "snaptax-1-2-3"));
    }

    #[test]
    fn a_process_counts_itself_and_its_parent_among_its_ancestors() {
        let ancestors = ancestors();
        let parent = std::os::unix::process::parent_id();
        for process in [std::process::id(), parent] {
            assert!(ancestors.contains(&PathBuf::from(format!("/proc/{process}"))));
        }
    }

    #[rstest]
    #[case::by_its_directory("/w/snaptax-4194305-9-1/vgtest.pv")]
    #[case::by_its_device("/dev/mapper/snaptax--4194305--9--1--vgtest-datalv")]
    fn a_program_that_works_for_a_run_is_found_by_its_arguments(#[case] argument: &str) {
        let mut program = std::process::Command::new("sh")
            .args(["-c", "read line", argument])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let kinds = ["sh"];
        let me = format!("process {} (sh)", program.id());
        // Between fork and exec it is still this program.
        let found = wait_until(Duration::from_secs(5), || {
            Ok::<_, ()>(working_for("snaptax-4194305-9-1", &kinds).contains(&me))
        });
        assert_eq!(found, Ok(true));
        assert!(!working_for("snaptax-4194305-9-12", &kinds).contains(&me));
        assert!(!working_for("snaptax-4194305-9-1", &["lvm"]).contains(&me));
        program.kill().unwrap();
        program.wait().unwrap();
    }

    #[test]
    fn a_character_device_of_the_same_number_is_another_one() {
        let null = Path::new("/dev/null");
        assert!(!is_on(null, number_of(null).unwrap()));
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
    fn a_process_that_has_a_file_open_on_a_device_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ibdata1");
        let open = fs::File::create(&path).unwrap();
        let device = open.metadata().unwrap().dev();
        let holders = of_device((rustix::fs::major(device), rustix::fs::minor(device)));
        let me = format!("process {} ", std::process::id());
        assert!(holders.iter().any(|holder| holder.starts_with(&me)), "{holders:?}");
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
