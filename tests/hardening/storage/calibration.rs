use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::result::Calibration;
use snaptax::settings::Size;
use snaptax::storage::{Error, Filesystem, LogicalVolume};

use super::{assert_nothing_remains, group, work_dir};

fn calibrate(volume: &mut LogicalVolume) -> Calibration {
    let found = volume.calibrate(&AtomicBool::new(false)).unwrap();
    println!("{found:?}");
    for figure in [found.iops, found.write_mib_per_second, found.flush_milliseconds] {
        assert!(figure.is_finite() && figure > 0.0, "{found:?}");
    }
    found
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_volume_is_calibrated_within_seconds_and_looks_like_nothing_afterwards() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let mut volume = group.volume("datalv").size(Size::mib(64)).create().unwrap();
    let began = Instant::now();
    let found = calibrate(&mut volume);
    // Three seconds of it are measured; the rest is for what must be flushed first.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(found.iops > 10.0 && found.write_mib_per_second > 0.5, "{found:?}");

    let signatures = Command::new("wipefs").arg(volume.path()).run().unwrap().stdout;
    assert_eq!(signatures, "");
    let mounted = volume.format(Filesystem::Ext4).unwrap();
    let mounted = mounted.mount(&directory.path().join("mnt")).unwrap();
    mounted.unmount().unwrap().remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}

/// Puts a delay of this many milliseconds below a volume.
fn delay(volume: &LogicalVolume, write: u32, flush: u32) {
    let name = volume.path().file_name().unwrap().to_str().unwrap();
    let dmsetup = |args: &[&str]| {
        let command = Command::new("dmsetup").env("DM_DISABLE_UDEV", "1").args(args);
        command.run().unwrap().stdout
    };
    let table = dmsetup(&["table", name]);
    let [start, length, "linear", device, offset] = table.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{table}");
    };
    let place = format!("{device} {offset}");
    let table = format!("{start} {length} delay {place} 0 {place} {write} {place} {flush}");
    dmsetup(&["suspend", name]);
    dmsetup(&["load", name, "--table", &table]);
    dmsetup(&["resume", name]);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_slower_device_has_slower_figures() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let mut volume = group.volume("datalv").size(Size::mib(64)).create().unwrap();
    let before = calibrate(&mut volume);
    delay(&volume, 80, 160);
    let delayed = calibrate(&mut volume);
    // Eight threads, and a delay that the kernel counts in ticks of up to 10 ms.
    assert!((10.0..=8.0 / 0.070).contains(&delayed.iops), "{delayed:?}");
    assert!(delayed.write_mib_per_second <= 1.0 / 0.070, "{delayed:?}");
    assert!((150.0..1500.0).contains(&delayed.flush_milliseconds), "{delayed:?}");
    assert!(before.iops > 1.5 * delayed.iops, "{before:?}, {delayed:?}");
    assert!(
        before.write_mib_per_second > delayed.write_mib_per_second,
        "{before:?}, {delayed:?}"
    );
    assert!(
        before.flush_milliseconds < delayed.flush_milliseconds,
        "{before:?}, {delayed:?}"
    );
    volume.remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_volume_that_is_mounted_is_not_written_to() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(64)).create().unwrap();
    let mut volume = volume.format(Filesystem::Ext4).unwrap();
    let mount = directory.path().join("elsewhere");
    fs::create_dir(&mount).unwrap();
    Command::new("mount").arg(volume.path()).arg(&mount).run().unwrap();
    fs::write(mount.join("file"), "kept").unwrap();

    let error = volume.calibrate(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, Error::File { doing: "calibrate", .. }), "{error}");
    assert!(error.to_string().contains(&*volume.path().to_string_lossy()), "{error}");

    Command::new("umount").arg(&mount).run().unwrap();
    Command::new("mount").arg(volume.path()).arg(&mount).run().unwrap();
    assert_eq!(fs::read_to_string(mount.join("file")).unwrap(), "kept");
    Command::new("umount").arg(&mount).run().unwrap();
    fs::remove_dir(&mount).unwrap();
    volume.remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}
