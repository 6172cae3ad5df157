use std::fs;
use std::path::Path;

use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::{Error, LoopDevice};

use super::{CHUNK, assert_nothing_remains, loop_device, open_direct, work_dir, write_chunk};

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn a_loop_device_uses_direct_io_counts_its_requests_and_is_really_gone_after_removal() {
    let directory = work_dir();
    let device = loop_device(&directory, "pv", Size::mib(16));
    let name = device.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        fs::read_to_string(format!("/sys/block/{name}/loop/dio"))
            .unwrap()
            .trim(),
        "1"
    );

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

#[test]
#[ignore = "needs root and loop devices"]
#[file_serial(storage)]
fn loop_devices_attached_at_the_same_time_each_get_their_own_file() {
    let directory = work_dir();
    let devices: Vec<LoopDevice> = std::thread::scope(|scope| {
        let attach = |number: usize| loop_device(&directory, &format!("pv{number}"), Size::mib(4));
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || attach(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for device in &devices {
        let name = device.path().file_name().unwrap().to_str().unwrap().to_owned();
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap();
        assert_eq!(Path::new(file.trim()), device.file().path());
    }
    devices.into_iter().for_each(|device| device.remove().unwrap());
    assert_nothing_remains(&directory);
}
