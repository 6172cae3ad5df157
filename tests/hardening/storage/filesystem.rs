use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::{Error, Filesystem, Mounted};

use super::{assert_nothing_remains, group, group_named, mounted, open_direct, work_dir, write_chunk};

/// A process in a copy of all mounts, as containers and services have one.
struct CopyOfMounts(Child);

impl CopyOfMounts {
    /// Working in this directory.
    fn hold(directory: &Path, seconds: u32) -> Self {
        let mut command = std::process::Command::new("unshare");
        let command = command.args(["--mount", "sh", "-c", "cd \"$0\" && exec sleep \"$1\""]);
        let copy = Self(command.arg(directory).arg(seconds.to_string()).spawn().unwrap());
        // It has them, and is there, once it sleeps.
        while fs::read_to_string(format!("/proc/{}/comm", copy.0.id()))
            .unwrap()
            .trim()
            != "sleep"
        {
            thread::sleep(Duration::from_millis(10));
        }
        copy
    }

    fn described(&self) -> String {
        format!("process {} (sleep)", self.0.id())
    }
}

impl Drop for CopyOfMounts {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// All together, since each takes all the time that it is given.
#[test]
#[ignore = "needs root and device-mapper; takes the 30 s that a mount is given"]
#[file_serial(storage)]
fn a_mount_in_use_here_or_in_a_copy_of_the_mounts_names_who_uses_it_and_goes_before_its_volume() {
    let directories = ["opened", "copied", "entered"].map(|name| (name, work_dir()));
    let [opened_group, copied_group, entered_group] = directories
        .each_ref()
        .map(|(name, directory)| group_named(name, directory, Size::mib(72)));
    let [(_, opened_directory), (_, copied_directory), (_, entered_directory)] = &directories;
    let free = opened_group.free().unwrap();

    // A directory that was there before stays, and with it what others have mounted there.
    let copied_at = copied_directory.path().join("mnt");
    fs::create_dir(&copied_at).unwrap();
    let copied = mounted(&copied_group, copied_directory);
    let copy = CopyOfMounts::hold(Path::new("/"), 600);
    let entered = mounted(&entered_group, entered_directory);
    let inside = CopyOfMounts::hold(entered.path(), 600);
    let opened = mounted(&opened_group, opened_directory);
    let file = File::create(opened.path().join("ibdata1")).unwrap();
    let nodes = [&copied, &entered].map(|mounted| mounted.volume().path().to_owned());

    let node = File::open(&nodes[0]).unwrap();

    let messages = thread::scope(|scope| {
        let unmount = |mounted: Mounted| scope.spawn(|| mounted.unmount().map(drop).unwrap_err().to_string());
        let unmounts = [opened, copied, entered].map(unmount);
        // The last resort tries once more, and gets it.
        thread::sleep(Duration::from_secs(32));
        drop(file);
        unmounts.map(|unmount| unmount.join().unwrap())
    });
    let told = [
        format!("process {} ", std::process::id()),
        format!("{}, as a mount at {}", copy.described(), copied_at.display()),
        format!("{}, with ", inside.described()),
    ];
    for (message, told) in messages.iter().zip(told) {
        assert!(message.contains(&told), "{told} in {message}");
    }
    assert!(messages[0].contains("ibdata1"), "{}", messages[0]);
    let has_node = messages[1].lines().any(|line| {
        let line = line.trim_start();
        line.starts_with(&format!("process {} ", std::process::id())) && line.contains(", with /dev/")
    });
    assert!(has_node, "{}", messages[1]);
    assert_eq!(opened_group.free().unwrap(), free, "the volume is gone");
    assert!(
        nodes.iter().all(|node| node.exists()),
        "nothing is taken from whoever still uses it"
    );

    drop((copy, inside, node));
    drop((opened_group, copied_group, entered_group));
    fs::remove_dir(copied_at).unwrap();
    directories
        .iter()
        .for_each(|(_, directory)| assert_nothing_remains(directory));
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_volume_is_waited_for_while_somebody_in_a_copy_of_its_mount_uses_it() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let mounted = mounted(&group, &directory);
    let mut copy = CopyOfMounts::hold(mounted.path(), 3);
    let volume = mounted.unmount().unwrap();
    assert!(copy.0.try_wait().unwrap().is_some(), "the volume was still held");
    volume.remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn an_origin_is_mounted_and_not_its_snapshot_which_has_the_same_uuid() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(32)).create().unwrap();
    let volume = volume.format(Filesystem::Ext4).unwrap();
    let snapshot = volume.thick_snapshot("snapdatalv-1").create().unwrap();
    let uuid = |node: &Path| {
        let blkid = Command::new("blkid").args(["--probe", "--match-tag", "UUID"]);
        let output = blkid.args(["--output", "value"]).arg(node).run().unwrap().stdout;
        output.trim().to_owned()
    };
    assert_eq!(uuid(volume.path()), uuid(snapshot.path()));
    assert!(!uuid(volume.path()).is_empty());

    let node = volume.path().to_owned();
    let mounted = volume.mount(&directory.path().join("mnt")).unwrap();
    assert_eq!(
        fs::metadata(mounted.path()).unwrap().dev(),
        fs::metadata(&node).unwrap().rdev()
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        mounts.contains(&format!(" ext4 {} ", node.display())) && node.starts_with("/dev/mapper"),
        "{mounts}"
    );
    snapshot.remove().unwrap();
    mounted.unmount().unwrap().remove().unwrap();
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_mount_that_fails_tells_what_the_kernel_said_and_leaves_nothing() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(64));
    let volume = group.volume("datalv").size(Size::mib(32)).create().unwrap();
    let volume = volume.format(Filesystem::Ext4).unwrap();
    // Over the superblock.
    write_chunk(&open_direct(volume.path()), 0);
    let error = volume.mount(&directory.path().join("mnt")).unwrap_err();
    let Error::Mount { kernel, .. } = &error else {
        panic!("{error}");
    };
    assert!(kernel.contains("EXT4-fs"), "{error}");
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}
