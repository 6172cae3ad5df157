use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use snaptax::command::{self, Command};
use snaptax::settings::Size;
use snaptax::storage::{Error, LogicalVolume, Lvm, SnapshotStatus, VolumeGroup};
use tempfile::TempDir;

use super::{assert_nothing_remains, group, mounted, own_lvm, remains, run_with_lvm, work_dir};

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_group_goes_up_and_down_and_leaves_nothing() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(256));
    let mounted = mounted(&group, &directory);
    fs::write(mounted.path().join("file"), "rows").unwrap();
    mounted.freeze_and_thaw().unwrap();
    fs::write(mounted.path().join("file"), "more rows").unwrap();
    assert!(group.disk().unwrap().bytes_written > 0);
    assert!(!remains(directory.path()).is_empty());

    let snapshot = mounted
        .volume()
        .thick_snapshot("snapdatalv-1")
        .size(Size::mib(16))
        .create()
        .unwrap();
    assert!(matches!(snapshot.status().unwrap(), SnapshotStatus::Active(_)));
    snapshot.remove().unwrap();
    mounted.unmount().unwrap().remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}

/// LVM's option against activation by the host came with 2.03.12.
#[test]
#[ignore = "needs root and device-mapper"]
fn a_group_is_made_by_an_lvm_that_cannot_keep_it_from_being_activated() {
    run_with_lvm(
        "case $* in *--setautoactivation*) exit 3 ;; esac; exec lvm \"$@\"",
        "volume_group::a_group_goes_up_and_down_and_leaves_nothing",
    );
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn formatting_leaves_neither_holes_nor_unwritten_extents_in_the_file_below() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(256));
    let mounted = mounted(&group, &directory);
    let path = group.device().file().path();
    let file = fs::metadata(path).unwrap();
    assert!(file.blocks() * 512 >= file.size());
    let extents = Command::new("filefrag").arg("-v").arg(path).run().unwrap().stdout;
    assert!(
        extents.contains("physical_offset") && !extents.contains("unwritten"),
        "{extents}"
    );
    drop(mounted);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn what_the_group_has_no_room_for_is_refused_in_numbers_and_leaves_the_rest_alone() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(64));
    let free = group.free().unwrap();
    let error = group.volume("datalv").size(Size::gib(1)).create().unwrap_err();
    assert!(
        matches!(error, Error::NotEnoughSpace { asked, free: found, .. } if asked == Size::gib(1) && found == free)
    );
    assert!(matches!(
        group.volume("datalv").size(Size::bytes(0)).create(),
        Err(Error::TooSmall { .. })
    ));

    let volume = group.volume("datalv").size(Size::mib(32)).create().unwrap();
    assert!(matches!(
        group.volume("datalv").size(Size::mib(4)).create(),
        Err(Error::Exists { .. })
    ));
    assert!(matches!(
        volume.thick_snapshot("snap").create(),
        Err(Error::NotEnoughSpace { .. })
    ));
    assert!(matches!(
        volume
            .thick_snapshot("snap")
            .chunk_size(Size::bytes(5000))
            .size(Size::mib(4))
            .create(),
        Err(Error::Command { .. })
    ));
    assert!(volume.path().exists());
    volume.remove().unwrap();
    assert_eq!(group.free().unwrap(), free);
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn groups_of_others_are_neither_seen_nor_touched() {
    let directory = work_dir();
    let foreign = crate::storage::group(&directory, Size::mib(16));
    let other = TempDir::new_in(directory.path()).unwrap();
    let lvm = Lvm::isolated(other.path().join("lvm")).unwrap();
    let seen = || own_lvm(&other, &["vgs", "--noheadings", "--options", "vg_name"]);
    assert_eq!(seen(), "");
    let group = VolumeGroup::on_file(&lvm, "own", other.path().join("own.pv"))
        .size(Size::mib(16))
        .create()
        .unwrap();
    assert_eq!(seen(), group.name());
    group.remove().unwrap();
    foreign.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_panic_in_the_middle_of_a_build_leaves_nothing() {
    let directory = work_dir();
    let panicked = std::panic::catch_unwind(|| {
        let group = group(&directory, Size::mib(256));
        let mounted = mounted(&group, &directory);
        let _snapshot = mounted
            .volume()
            .thick_snapshot("snap")
            .size(Size::mib(16))
            .create()
            .unwrap();
        assert!(group.name().is_empty(), "in the middle");
    });
    assert!(panicked.is_err());
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn handles_may_be_dropped_in_any_order() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(256));
    let mounted = mounted(&group, &directory);
    let snapshot = mounted
        .volume()
        .thick_snapshot("snap")
        .size(Size::mib(16))
        .create()
        .unwrap();
    drop(group);
    drop(mounted);
    drop(snapshot);
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_group_or_origin_that_is_still_needed_is_not_removed() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(64));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let snapshot = volume.thick_snapshot("snap").create().unwrap();
    assert!(matches!(group.remove(), Err(Error::StillHeld { .. })));
    let error = volume.remove().unwrap_err();
    assert!(error.to_string().contains("snapshot snap"), "{error}");
    drop(snapshot);
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_program_that_cannot_be_killed_does_not_outlast_its_deadline_by_much() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let mounted = mounted(&group, &directory);
    let fsfreeze = |what: &str| Command::new("fsfreeze").arg(what).arg(mounted.path()).run();
    fsfreeze("--freeze").unwrap();
    let started = Instant::now();
    let result = Command::new("touch")
        .arg(mounted.path().join("file"))
        .deadline(Duration::from_secs(1))
        .run();
    let elapsed = started.elapsed();
    fsfreeze("--unfreeze").unwrap();
    assert!(matches!(result, Err(command::Error::Deadline { .. })), "{result:?}");
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    mounted.unmount().unwrap().remove().unwrap();
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn an_origin_left_suspended_by_a_failed_command_runs_again_and_others_stay_as_they_are() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let other_directory = TempDir::new_in(directory.path()).unwrap();
    let other_group = crate::storage::group_named("other", &other_directory, Size::mib(32));
    let other = other_group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let dmsetup = |args: &[&str], volume: &LogicalVolume| {
        let command = Command::new("dmsetup").env("DM_DISABLE_UDEV", "1").args(args);
        command.arg(volume.path()).run().unwrap().stdout.trim().to_owned()
    };
    let suspended = |volume| dmsetup(&["info"], volume).contains("SUSPENDED");
    dmsetup(&["suspend"], &volume);
    dmsetup(&["suspend"], &other);
    assert!(suspended(&volume) && suspended(&other));

    let builder = volume.thick_snapshot("snap").size(Size::mib(4));
    let error = builder.chunk_size(Size::bytes(5000)).create().unwrap_err();
    assert!(matches!(error, Error::Command { .. }), "{error}");
    assert!(!suspended(&volume) && suspended(&other));

    dmsetup(&["resume"], &other);
    other.remove().unwrap();
    other_group.remove().unwrap();
    volume.remove().unwrap();
    group.remove().unwrap();
}
