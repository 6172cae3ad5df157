//! Device-mapper devices as `/sys` shows them.

use std::fs;
use std::path::Path;

use crate::command::{Command, Output};
use crate::storage::report::device_number;
use crate::storage::{Error, udevd_runs};

/// A device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Its name, as in `/dev/mapper`.
    pub(super) name: String,
    /// Its name in `/sys/block`, as `dm-0`.
    pub(super) kernel_name: String,
    /// Its major and minor number.
    pub(super) number: (u32, u32),
    /// The devices right below it, as in `/sys/block`.
    pub(super) below: Vec<String>,
    /// Whether it holds back what is read from it and written to it.
    pub(super) suspended: bool,
}

/// The names of all device-mapper devices.
pub(super) fn names() -> Result<Vec<String>, Error> {
    Ok(devices()?.into_iter().map(|device| device.name).collect())
}

/// All device-mapper devices.
pub(super) fn devices() -> Result<Vec<Device>, Error> {
    let directory = Path::new("/sys/block");
    let entries = fs::read_dir(directory).map_err(Error::file("read", directory))?;
    Ok(entries.flatten().filter_map(|entry| device(&entry.path())).collect())
}

/// `None` when it is no device-mapper device, or just gone.
fn device(directory: &Path) -> Option<Device> {
    let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let below = fs::read_dir(directory.join("slaves")).ok()?.flatten();
    Some(Device {
        name: read("dm/name")?.trim().to_owned(),
        kernel_name: directory.file_name()?.to_string_lossy().into_owned(),
        number: device_number(&read("dev")?)?,
        below: below
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect(),
        suspended: read("dm/suspended")?.trim() == "1",
    })
}

/// Runs a command of dmsetup's that changes nothing.
pub(super) fn ask(doing: impl Into<String>, args: &[&str]) -> Result<Output, Error> {
    let command = Command::new("dmsetup").args(args);
    command.run().map_err(Error::command(doing))
}

/// Runs a command of dmsetup's that changes a device, and must not wait for a udevd that is not there.
pub(super) fn change(doing: impl Into<String>, args: &[&str]) -> Result<(), Error> {
    let mut command = Command::new("dmsetup").args(args);
    if !udevd_runs() {
        command = command.env("DM_DISABLE_UDEV", "1");
    }
    command.run().map(drop).map_err(Error::command(doing))
}

/// Resumes those of these devices that are suspended.
///
/// # Errors
/// With the first that cannot be, after trying all.
pub(super) fn resume(is_one: impl Fn(&str) -> bool) -> Result<(), Error> {
    let devices = devices()?.into_iter().filter(|device| is_one(&device.name));
    let resumed = suspended(devices).into_iter().map(|name| {
        // The udev event that this would wait for may be held up by the very device.
        let resumed = change(format!("resume {name}"), &["resume", "--noudevsync", &name]);
        // Somebody else may have resumed or removed it meanwhile.
        match self::devices()?
            .iter()
            .any(|device| device.name == name && device.suspended)
        {
            true => resumed,
            false => Ok(()),
        }
    });
    resumed.fold(Ok(()), Result::and)
}

/// Those that are suspended, in the order to resume them in: the lower layers first, since a filesystem that thaws with
/// the upper one writes to them at once.
fn suspended(devices: impl Iterator<Item = Device>) -> Vec<String> {
    let mut names: Vec<_> = devices
        .filter(|device| device.suspended)
        .map(|device| device.name)
        .collect();
    names.sort_by_key(|name| !(name.ends_with("-real") || name.ends_with("-cow")));
    names
}

/// The group that a device is a volume of, were it LVM's.
pub(super) fn group_of(device: &str) -> String {
    // A hyphen that is not doubled ends the group's name.
    let single = device
        .char_indices()
        .filter(|(_, c)| *c == '-')
        .map(|(at, _)| at)
        .find(|at| !device[..*at].ends_with('-') && !device[at + 1..].starts_with('-'));
    device[..single.unwrap_or(device.len())].replace("--", "-")
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
pub(super) fn open_count(name: &str) -> Result<u64, Error> {
    let args = ["info", "--columns", "--noheadings", "--options", "open", name];
    let output = ask(format!("ask who uses {name}"), &args)?;
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
    fn only_suspended_devices_are_resumed_and_the_lower_ones_first() {
        let devices = [
            ("vgtest-datalv", true),
            ("vgtest-snap", false),
            ("vgtest-snap-cow", true),
            ("vgtest-datalv-real", true),
        ];
        let devices = devices.map(|(name, suspended)| Device {
            name: name.to_owned(),
            kernel_name: "dm-0".into(),
            number: (253, 0),
            below: Vec::new(),
            suspended,
        });
        assert_eq!(
            suspended(devices.into_iter()),
            ["vgtest-snap-cow", "vgtest-datalv-real", "vgtest-datalv"]
        );
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

    #[rstest]
    #[case("vgtest-datalv", "vgtest")]
    #[case("snaptax--1--2--vgtest-snapdatalv--1-cow", "snaptax-1-2-vgtest")]
    #[case("vgtest", "vgtest")]
    #[case("a--b", "a-b")]
    #[case("", "")]
    fn a_devices_group_ends_at_the_first_single_hyphen(#[case] device: &str, #[case] group: &str) {
        assert_eq!(group_of(device), group);
    }
}
