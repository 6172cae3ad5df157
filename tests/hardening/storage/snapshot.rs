use serial_test::file_serial;
use snaptax::bench::Difference;
use snaptax::command::Command;
use snaptax::result::CowFill;
use snaptax::settings::Size;
use snaptax::storage::{Error, LvAttr, SnapshotStatus};

use super::{assert_nothing_remains, group, mounted, open_direct, own_lvm, work_dir, write_chunk, written_file};

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_snapshot_counts_each_chunk_of_its_origin_once() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(256));
    let mounted = mounted(&group, &directory);
    let file = written_file(mounted.path(), 1000);
    let snapshot = mounted
        .volume()
        .thick_snapshot("snap")
        .chunk_size(Size::kib(4))
        .create()
        .unwrap();
    // Making it froze the filesystem, so what is copied from here on is what is written from here on; the
    // file's metadata (its modification time, the journal) adds a few chunks.
    let before = snapshot.fill().unwrap().chunks;

    (0..700).for_each(|chunk| write_chunk(&file, chunk));
    let first = snapshot.fill().unwrap().chunks - before;
    assert!((700..=716).contains(&first), "{first} chunks copied");

    (0..700).for_each(|chunk| write_chunk(&file, chunk));
    let again = snapshot.fill().unwrap().chunks - before;
    assert!(
        (first..=first + 16).contains(&again),
        "{again} chunks after writing them again"
    );
    snapshot.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn on_the_bare_volume_chunks_are_counted_exactly() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let snapshot = volume.thick_snapshot("snap").create().unwrap();
    let node = open_direct(volume.path());
    let start = snapshot.fill().unwrap().chunks;
    for (pass, expected) in [(0..300, 300), (200..600, 600), (0..600, 600)] {
        pass.for_each(|chunk| write_chunk(&node, 2 * chunk));
        assert_eq!(snapshot.fill().unwrap().chunks - start, expected);
    }
    drop(node);
    snapshot.remove().unwrap();
    volume.remove().unwrap();
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_snapshot_that_overflows_is_lost_and_says_so() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let builder = volume.thick_snapshot("snap").size(Size::mib(4));
    let snapshot = builder.chunk_size(Size::kib(512)).create().unwrap();
    let state = || {
        let name = format!("{}/snap", group.name());
        let attr = own_lvm(&directory, &["lvs", "--noheadings", "--options", "lv_attr", &name]);
        LvAttr::parse(&attr).unwrap().state
    };
    let node = open_direct(volume.path());
    // A chunk of the eight for the header and one for metadata leave six.
    (0..6).for_each(|chunk| write_chunk(&node, 128 * chunk));
    assert_eq!(
        snapshot.fill().unwrap(),
        CowFill {
            percent: 100.0,
            chunks: 6
        }
    );
    assert_eq!((snapshot.state().unwrap().invalid, state()), (None, 'a'));

    write_chunk(&node, 128 * 6);
    let status = snapshot.status().unwrap();
    assert!(
        matches!(status, SnapshotStatus::Invalid | SnapshotStatus::Overflow),
        "{status}"
    );
    let error = snapshot.fill().unwrap_err();
    assert!(matches!(error, Error::SnapshotLost { .. }), "{error}");
    assert_eq!(snapshot.state().unwrap().invalid, Some(error.to_string()));
    assert_eq!(state(), 'I');
    let origin = Command::new("dmsetup").arg("status").arg(volume.path()).run().unwrap();
    assert_eq!(origin.stdout.parse::<SnapshotStatus>().unwrap(), SnapshotStatus::Origin);
    drop(node);
    snapshot.remove().unwrap();
    volume.remove().unwrap();
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_snapshot_of_the_default_size_survives_every_chunk_being_written() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(8)).create().unwrap();
    let snapshot = volume.thick_snapshot("snap").create().unwrap();
    let node = open_direct(volume.path());
    (0..2048).for_each(|chunk| write_chunk(&node, chunk));
    assert_eq!(snapshot.fill().unwrap().chunks, 2048);
    drop(node);
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn chunk_size_and_cow_size_are_as_asked() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(128));
    let volume = group.volume("datalv").size(Size::mib(15)).create().unwrap();
    assert_eq!(volume.size(), Size::mib(16));
    for chunk_size in [Size::kib(4), Size::kib(64), Size::kib(512)] {
        let snapshot = volume
            .thick_snapshot("snap")
            .size(Size::mib(8))
            .chunk_size(chunk_size)
            .create()
            .unwrap();
        assert_eq!((snapshot.size(), snapshot.chunk_size()), (Size::mib(8), chunk_size));
        snapshot.remove().unwrap();
    }
}
