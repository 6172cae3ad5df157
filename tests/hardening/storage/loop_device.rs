use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::{BackingFile, Error, LoopDevice};

use super::{CHUNK, assert_nothing_remains, loop_device, open_direct, work_dir, write_chunk};

/// Held by whichever snaptax is attaching a loop device.
const LOCK_FILE: &str = "/run/snaptax-loop.lock";

/// What the kernel says of a loop device, in a file of this name.
fn sys(device: &LoopDevice, name: &str) -> PathBuf {
    let kernel_name = device.path().file_name().unwrap();
    Path::new("/sys/block").join(kernel_name).join("loop").join(name)
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_loop_device_uses_direct_io_counts_its_requests_and_is_really_gone_after_removal() {
    let directory = work_dir();
    let device = loop_device(&directory, "pv", Size::mib(16));
    assert_eq!(fs::read_to_string(sys(&device, "dio")).unwrap().trim(), "1");

    let before = device.counters().unwrap();
    let node = open_direct(device.path());
    (0..10).for_each(|chunk| write_chunk(&node, 3 * chunk));
    drop(node);
    let done = device.counters().unwrap().since(&before);
    assert_eq!((done.writes, done.bytes_written), (10, 10 * CHUNK as u64));

    device.remove().unwrap();
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_dropped_loop_device_is_detached_and_its_file_deleted() {
    let directory = work_dir();
    drop(loop_device(&directory, "pv", Size::mib(4)));
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_loop_device_in_use_is_not_called_detached_and_names_who_has_it() {
    let directory = work_dir();
    let device = loop_device(&directory, "pv", Size::mib(16));
    let (node, mount) = (device.path().to_owned(), directory.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&node).run().unwrap();
    Command::new("mount").arg(&node).arg(&mount).run().unwrap();

    let error = device.remove().unwrap_err();
    Command::new("umount").arg(&mount).run().unwrap();
    fs::remove_dir(&mount).unwrap();
    assert!(matches!(error, Error::StillHeld { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("as a mount at {}", mount.display())),
        "{error}"
    );
    assert_nothing_remains(&directory);
}

/// Somebody else who attaches a loop device and detaches it, again and again, with no regard to a lock.
fn attach_and_detach(file: &Path, stop: &AtomicBool) -> usize {
    File::create(file).unwrap().set_len(1 << 20).unwrap();
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        let attach = Command::new("losetup").args(["--find", "--show"]).arg(file);
        let Ok(attached) = attach.run() else { continue };
        let device = attached.stdout.trim();
        Command::new("losetup").args(["--detach", device]).run().unwrap();
        times += 1;
    }
    fs::remove_file(file).unwrap();
    times
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn loop_devices_attached_at_the_same_time_and_beside_others_each_get_their_own_file() {
    let directory = work_dir();
    let stop = AtomicBool::new(false);
    let devices: Vec<LoopDevice> = thread::scope(|scope| {
        let others = ["other0", "other1"].map(|name| directory.path().join(name));
        let others = others.map(|file| scope.spawn(|| attach_and_detach(&{ file }, &stop)));
        let attach = |number: usize| loop_device(&directory, &format!("pv{number}"), Size::mib(4));
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || attach(number))).collect();
        let devices = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(others.map(|other| other.join().unwrap()).iter().sum::<usize>() > 0);
        devices
    });
    for device in &devices {
        let file = fs::read_to_string(sys(device, "backing_file")).unwrap();
        assert_eq!(Path::new(file.trim()), device.file().path());
    }
    devices.into_iter().for_each(|device| device.remove().unwrap());
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_loop_device_is_attached_only_when_no_other_process_is_at_it() {
    let directory = work_dir();
    let mut other = std::process::Command::new("flock");
    let mut other = other.args(["--no-fork", LOCK_FILE, "sleep", "2"]).spawn().unwrap();
    while File::open(LOCK_FILE).is_ok_and(|file| file.try_lock().is_ok()) {
        thread::sleep(Duration::from_millis(10));
    }
    let device = loop_device(&directory, "pv", Size::mib(4));
    assert!(other.try_wait().unwrap().is_some(), "it was attached at the same time");
    device.remove().unwrap();
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_loop_device_whose_file_was_deleted_is_known_by_its_inode_and_detached() {
    let directory = work_dir();
    let device = loop_device(&directory, "pv", Size::mib(4));
    fs::remove_file(device.file().path()).unwrap();
    let backing_file = sys(&device, "backing_file");
    let file = fs::read_to_string(&backing_file).unwrap();
    assert!(file.trim().ends_with(" (deleted)"), "{file}");
    device.remove().unwrap();
    assert!(!backing_file.exists());
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn on_a_disk_of_larger_sectors_a_loop_device_uses_direct_io_or_is_refused() {
    let directory = work_dir();
    let (disk, mount) = (directory.path().join("disk"), directory.path().join("mnt"));
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&mount).unwrap();
    let losetup = Command::new("losetup").args(["--find", "--show", "--sector-size", "4096"]);
    let node = losetup.arg(&disk).run().unwrap().stdout.trim().to_owned();
    Command::new("mkfs.ext4").args(["-q", "-F", &node]).run().unwrap();
    Command::new("mount").arg(&node).arg(&mount).run().unwrap();

    let file = BackingFile::write(mount.join("pv"), Size::mib(4), &mut |_| ControlFlow::Continue(())).unwrap();
    match LoopDevice::attach(file) {
        Ok(device) => {
            assert_eq!(fs::read_to_string(sys(&device, "dio")).unwrap().trim(), "1");
            device.remove().unwrap();
        }
        Err(error) => assert!(matches!(error, Error::DirectIoOff { .. }), "{error}"),
    }
    assert!(!mount.join("pv").exists());
    // It fails while a loop device is on a file in there.
    Command::new("umount").arg(&mount).run().unwrap();
    Command::new("losetup").args(["--detach", &node]).run().unwrap();
    fs::remove_dir(&mount).unwrap();
    fs::remove_file(&disk).unwrap();
    assert_nothing_remains(&directory);
}
