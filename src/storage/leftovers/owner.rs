//! Which run a loop device or a device-mapper device belongs to.

use std::collections::BTreeMap;
use std::path::Path;

use crate::storage::report::AttachedLoop;
use crate::storage::{FoundRun, RunId, dm};

/// What losetup and the kernel put behind the path of a file that was deleted.
const DELETED: &str = " (deleted)";

/// The directory of a loop device's file, if a run would have such a file.
pub(super) fn directory_of(device: &AttachedLoop) -> Option<&Path> {
    let file = Path::new(device.file.trim_end_matches(DELETED));
    file.parent()
        .filter(|_| file.extension().is_some_and(|extension| extension == "pv"))
}

/// The run in whose directory a loop device's file lies, or lay.
pub(super) fn run_of(device: &AttachedLoop) -> Option<RunId> {
    let directory = directory_of(device)?;
    if directory.exists() {
        return Some(FoundRun::of_directory(directory)?.run);
    }
    let name = directory.file_name()?.to_str()?;
    RunId::of_name(name).filter(|run| run.name() == name)
}

/// What stands on what.
pub(super) struct Stack<'a> {
    devices: &'a [dm::Device],
    loops: BTreeMap<&'a str, RunId>,
}

impl<'a> Stack<'a> {
    pub(super) fn new(loops: &'a [AttachedLoop], devices: &'a [dm::Device]) -> Self {
        let ours = loops.iter().filter_map(|device| {
            let name = device.device.strip_prefix("/dev/")?;
            Some((name, run_of(device)?))
        });
        Self {
            devices,
            loops: ours.collect(),
        }
    }

    /// The run that a device belongs to: by its group's name, and if all it stands on, which may be nothing, belongs
    /// to that run.
    pub(super) fn run_of(&self, device: &dm::Device) -> Option<RunId> {
        let run = RunId::of_name(&dm::group_of(&device.name))?;
        self.stands_on(device, run).then_some(run)
    }

    fn stands_on(&self, device: &dm::Device, run: RunId) -> bool {
        device.below.iter().all(|below| {
            let stacked = self.devices.iter().find(|device| device.kernel_name == *below);
            match stacked {
                Some(device) => self.stands_on(device, run),
                None => self.loops.get(below.as_str()) == Some(&run),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const DEAD: &str = "4194305-7-1";

    fn attached(device: &str, file: &str) -> AttachedLoop {
        AttachedLoop {
            device: device.into(),
            file: file.into(),
            inode: Some(1),
            file_device: Some((8, 1)),
            direct_io: true,
        }
    }

    fn device(name: &str, kernel_name: &str, below: &[&str]) -> dm::Device {
        dm::Device {
            name: name.into(),
            kernel_name: kernel_name.into(),
            number: (253, 0),
            below: below.iter().map(|name| (*name).into()).collect(),
            suspended: false,
        }
    }

    #[rstest]
    #[case("/w/snaptax-4194305-7-1/vgtest.pv (deleted)", true)]
    #[case("/w/snaptax-4194305-7-1/vgtest.pv", true)]
    #[case("/w/snaptax-4194305-7-1/disk.img", false)]
    #[case("/w/snaptax-4194305-7-1-old/vgtest.pv", false)]
    #[case("/w/snaptax-4194305-7-1/sub/vgtest.pv", false)]
    #[case("/w/snaptax/vgtest.pv", false)]
    #[case("", false)]
    fn a_loop_device_is_a_runs_by_its_file(#[case] file: &str, #[case] ours: bool) {
        let found = run_of(&attached("/dev/loop0", file));
        assert_eq!(found.map(|run| run.to_string()), ours.then(|| DEAD.to_owned()));
    }

    #[test]
    fn a_device_is_a_runs_only_if_all_below_it_is() {
        let loops = [
            attached("/dev/loop0", "/w/snaptax-4194305-7-1/vgtest.pv"),
            attached("/dev/loop1", "/home/disk.img"),
        ];
        let name = |volume: &str| format!("snaptax--4194305--7--1--vgtest-{volume}");
        let devices = [
            device(&name("datalv-real"), "dm-0", &["loop0"]),
            device(&name("datalv"), "dm-1", &["dm-0"]),
            device(&name("foreign"), "dm-2", &["loop1"]),
            device(&name("mixed"), "dm-3", &["dm-0", "dm-2"]),
            device(&name("empty"), "dm-4", &[]),
            device("snaptax--notes-datalv", "dm-5", &["loop0"]),
            device("vg-root", "dm-6", &["sda1"]),
        ];
        let stack = Stack::new(&loops, &devices);
        let ours: Vec<_> = devices.iter().filter(|device| stack.run_of(device).is_some()).collect();
        let ours: Vec<_> = ours.iter().map(|device| device.kernel_name.as_str()).collect();
        assert_eq!(ours, ["dm-0", "dm-1", "dm-4"]);
    }
}
