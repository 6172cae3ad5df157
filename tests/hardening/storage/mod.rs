mod calibration;
mod filesystem;
mod host;
mod logical_volume;
mod loop_device;
mod snapshot;
mod udev;
mod volume_group;

use std::env;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use snaptax::command::Command;
use snaptax::settings::{Settings, Size};
use snaptax::storage::{BackingFile, Filesystem, LoopDevice, Lvm, Mounted, VolumeGroup, loop_devices};
use tempfile::TempDir;

const CHUNK: usize = 4096;

fn work_dir() -> TempDir {
    let work_dir = Settings::from_env().unwrap().work_dir;
    tempfile::Builder::new()
        .prefix("snaptax-test-")
        .tempdir_in(work_dir)
        .unwrap()
}

/// Everything of ours that a test could leave behind: loop devices, device-mapper devices, mounts.
fn remains(directory: &Path) -> Vec<String> {
    let output = Command::new("losetup")
        .args(["--list", "--json", "--output", "NAME,BACK-FILE"])
        .run()
        .unwrap();
    let loops = loop_devices(&output.stdout).unwrap();
    let of_ours = |text: &str| text.contains(&*directory.to_string_lossy());
    let mut remains: Vec<_> = loops
        .into_iter()
        .filter(|found| of_ours(&found.file))
        .map(|found| found.device)
        .collect();
    let names = fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("dm/name"));
    let names = names.filter_map(|name| fs::read_to_string(name).ok());
    remains.extend(names.filter(|name| name.starts_with("snaptax")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    remains.extend(mounts.lines().filter(|line| of_ours(line)).map(str::to_owned));
    remains
}

fn assert_nothing_remains(directory: &TempDir) {
    assert_eq!(remains(directory.path()), [] as [String; 0]);
    let files: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(files.iter().all(|name| name == "lvm"), "{files:?}");
}

fn group(directory: &TempDir, size: Size) -> VolumeGroup {
    group_named("vgtest", directory, size)
}

fn group_named(name: &str, directory: &TempDir, size: Size) -> VolumeGroup {
    let lvm = Lvm::isolated(directory.path().join("lvm")).unwrap();
    VolumeGroup::on_file(&lvm, name, directory.path().join(format!("{name}.pv")))
        .size(size)
        .create()
        .unwrap()
}

/// What LVM prints with a group's own configuration.
fn own_lvm(directory: &TempDir, args: &[&str]) -> String {
    let command = Command::new("lvm").args(args);
    let command = command.env("LVM_SYSTEM_DIR", directory.path().join("lvm"));
    command.run().unwrap().stdout.trim().to_owned()
}

/// Set for tests that [`run_with_lvm`] runs.
const ANOTHER_LVM: &str = "HARDENING_LVM";

/// Runs one of these tests in a process of its own, whose `lvm` is this script; in there, `lvm` is LVM's own. The
/// environment of a test cannot be changed safely.
fn run_with_lvm(script: &str, test: &str) {
    let directory = work_dir();
    let lvm = directory.path().join("lvm");
    fs::write(&lvm, format!("#!/bin/sh\nPATH=${{PATH#*:}}\n{script}\n")).unwrap();
    fs::set_permissions(&lvm, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), env::var("PATH").unwrap());
    let test = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact"])
        .arg(format!("storage::{test}"));
    let output = test.env("PATH", path).env(ANOTHER_LVM, "1").run().unwrap();
    assert!(output.stdout.contains("1 passed"), "{}", output.stdout);
}

fn has_another_lvm() -> bool {
    env::var_os(ANOTHER_LVM).is_some()
}

/// A mounted ext4 of 64 MiB.
fn mounted(group: &VolumeGroup, directory: &TempDir) -> Mounted {
    let volume = group.volume("datalv").size(Size::mib(64)).create().unwrap();
    volume
        .format(Filesystem::Ext4)
        .unwrap()
        .mount(&directory.path().join("mnt"))
        .unwrap()
}

/// A file whose blocks are written, so that overwriting them allocates nothing.
fn written_file(directory: &Path, chunks: usize) -> File {
    let file = open_direct(&directory.join("data"));
    (0..chunks).for_each(|chunk| write_chunk(&file, chunk));
    file.sync_all().unwrap();
    file
}

fn write_chunk(file: &File, chunk: usize) {
    let buffer = vec![b'x'; 2 * CHUNK];
    let start = buffer.as_ptr().align_offset(CHUNK);
    file.write_all_at(&buffer[start..start + CHUNK], (chunk * CHUNK) as u64)
        .unwrap();
}

fn loop_device(directory: &TempDir, name: &str, size: Size) -> LoopDevice {
    let path = directory.path().join(name);
    LoopDevice::attach(BackingFile::write(path, size, &mut |_| ControlFlow::Continue(())).unwrap()).unwrap()
}

/// Opens a file, which is made if missing, or a device.
fn open_direct(path: &Path) -> File {
    let direct = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(direct)
        .open(path)
        .unwrap()
}
