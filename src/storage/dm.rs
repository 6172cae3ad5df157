//! Device-mapper devices as `/sys` shows them.

use std::fs;
use std::path::Path;

use crate::storage::{Error, Lvm};

/// The names of all device-mapper devices.
pub(super) fn names() -> Result<Vec<String>, Error> {
    Ok(devices()?.into_iter().map(|(name, _)| name).collect())
}

/// The names of all device-mapper devices, and whether each is suspended.
fn devices() -> Result<Vec<(String, bool)>, Error> {
    let directory = Path::new("/sys/block");
    let entries = fs::read_dir(directory).map_err(Error::file("read", directory))?;
    let read = |entry: &fs::DirEntry, file| fs::read_to_string(entry.path().join("dm").join(file)).ok();
    let device = |entry: fs::DirEntry| {
        let suspended = read(&entry, "suspended").is_some_and(|text| text.trim() == "1");
        Some((read(&entry, "name")?.trim().to_owned(), suspended))
    };
    Ok(entries.flatten().filter_map(device).collect())
}

/// Resumes those of a group's devices that are suspended.
///
/// # Errors
/// With the first that cannot be, after trying all.
pub(super) fn resume(lvm: &Lvm, group: &str) -> Result<(), Error> {
    let suspended = to_resume(devices()?, group);
    let resumed = suspended.iter().map(|name| {
        // The udev event that this would wait for may be held up by the very device.
        let args = ["resume", "--noudevsync", name];
        lvm.dmsetup(format!("resume {name}"), &args).map(drop)
    });
    resumed.fold(Ok(()), Result::and)
}

/// The lower layers first: a filesystem that thaws with the upper one writes to them at once.
fn to_resume(devices: Vec<(String, bool)>, group: &str) -> Vec<String> {
    let mut names: Vec<_> = devices
        .into_iter()
        .filter(|(name, suspended)| *suspended && belongs_to(name, group))
        .map(|(name, _)| name)
        .collect();
    names.sort_by_key(|name| !(name.ends_with("-real") || name.ends_with("-cow")));
    names
}

/// Whether a device is one of a group's volumes. Hyphens inside a name are doubled, and no volume's name
/// begins with one.
pub(super) fn belongs_to(device: &str, group: &str) -> bool {
    let volume = device
        .strip_prefix(&group.replace('-', "--"))
        .and_then(|rest| rest.strip_prefix('-'));
    volume.is_some_and(|volume| !volume.starts_with('-'))
}

/// How often a device is open, mounts included.
pub(super) fn open_count(lvm: &Lvm, name: &str) -> Result<u64, Error> {
    let args = ["info", "--columns", "--noheadings", "--options", "open", name];
    let output = lvm.dmsetup(format!("ask who uses {name}"), &args)?;
    let count = output.stdout.trim();
    count
        .parse()
        .map_err(|error| Error::unreadable(format!("the open count of {name}"), format!("`{count}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn only_suspended_devices_of_the_group_are_resumed_and_the_lower_ones_first() {
        let devices = [
            ("vgtest-datalv", true),
            ("vgtest-snap", false),
            ("vgtest-snap-cow", true),
            ("other-datalv-real", true),
            ("vgtest-datalv-real", true),
        ];
        let devices = devices.map(|(name, suspended)| (name.to_owned(), suspended));
        let resumed = to_resume(devices.into(), "vgtest");
        assert_eq!(resumed, ["vgtest-snap-cow", "vgtest-datalv-real", "vgtest-datalv"]);
    }

    #[rstest]
    #[case("vgtest-datalv", "vgtest", true)]
    #[case("vgtest-snap--1-cow", "vgtest", true)]
    #[case("vgtest--2-datalv", "vgtest", false)]
    #[case("vgtest--2-datalv", "vgtest-2", true)]
    #[case("vgtest2-datalv", "vgtest", false)]
    #[case("vgtest", "vgtest", false)]
    fn a_groups_devices_are_told_from_those_of_a_similar_name(
        #[case] device: &str,
        #[case] group: &str,
        #[case] belongs: bool,
    ) {
        assert_eq!(belongs_to(device, group), belongs);
    }
}
