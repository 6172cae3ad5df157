use std::path::Path;

use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::{Error, Filesystem, SnapshotStatus};

use super::{assert_nothing_remains, group, has_another_lvm, run_with_lvm, work_dir};

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn what_an_earlier_volume_left_on_the_same_extents_is_wiped_without_a_question() {
    let directory = work_dir();
    let group = group(&directory, Size::mib(64));
    let origin = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let scratch = || group.volume("scratch").size(Size::mib(16)).create().unwrap();
    let makers = [
        // Which makes no holes in the file below.
        "UNIX_IO_NOZEROOUT=1 mkfs.ext4 -q -F -E nodiscard \"$0\"",
        "mkswap \"$0\"",
        "echo 'label: gpt' | sfdisk --quiet \"$0\"",
    ];
    let signatures = |node: &Path| Command::new("wipefs").arg(node).run().unwrap().stdout;
    let marked = |make| {
        let volume = scratch();
        Command::new("sh").args(["-c", make]).arg(volume.path()).run().unwrap();
        assert!(!signatures(volume.path()).is_empty(), "{make}");
        volume
    };
    for make in makers {
        marked(make).remove().unwrap();
        let volume = scratch();
        assert_eq!(signatures(volume.path()), "", "{make}");
        volume.remove().unwrap();
    }
    let formatted = marked(makers[1]).format(Filesystem::Ext4).unwrap();
    formatted.remove().unwrap();
    // On the extents of this one, with the filesystem that it had.
    let snapshot = origin.thick_snapshot("snap").create().unwrap();
    assert!(matches!(snapshot.status().unwrap(), SnapshotStatus::Active(_)));
    snapshot.remove().unwrap();
    origin.remove().unwrap();
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
fn a_volume_that_a_failed_lvcreate_made_all_the_same_is_removed() {
    if !has_another_lvm() {
        run_with_lvm(
            "lvm \"$@\" && [ \"$1\" != lvcreate ]",
            "logical_volume::a_volume_that_a_failed_lvcreate_made_all_the_same_is_removed",
        );
        return;
    }
    let directory = work_dir();
    let group = group(&directory, Size::mib(32));
    let free = group.free().unwrap();
    let error = group.volume("datalv").size(Size::mib(16)).create().unwrap_err();
    assert!(matches!(error, Error::Command { .. }), "{error}");
    assert_eq!(group.free().unwrap(), free);
    group.remove().unwrap();
    assert_nothing_remains(&directory);
}
