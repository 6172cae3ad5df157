//! Device-mapper devices as `/sys` shows them.

use std::fs;
use std::path::Path;

use crate::storage::{Error, Lvm};

/// The names of all device-mapper devices.
pub(super) fn names() -> Result<Vec<String>, Error> {
    let directory = Path::new("/sys/block");
    let entries = fs::read_dir(directory).map_err(Error::file("read", directory))?;
    let name = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("dm/name")).ok();
    Ok(entries
        .flatten()
        .filter_map(name)
        .map(|name| name.trim().to_owned())
        .collect())
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
