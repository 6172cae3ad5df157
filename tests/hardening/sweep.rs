//! What a sweep removes on real devices, and what it must not touch.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rstest::{fixture, rstest};
use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Settings;
use snaptax::sweep;
use tempfile::TempDir;

/// No process can have this number.
const DEAD: &str = "4194305-7";

fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let command = Command::new(words.next().unwrap()).args(words);
    command.run().unwrap().stdout.trim().to_owned()
}

/// A work directory of its own, so that sweeps see these runs only.
struct Place(TempDir);

#[fixture]
fn place() -> Place {
    let parent = Settings::from_env().unwrap().work_dir;
    Place(
        tempfile::Builder::new()
            .prefix("sweep-test-")
            .tempdir_in(parent)
            .unwrap(),
    )
}

impl Place {
    /// A directory as a run makes it.
    fn run_directory(&self, name: &str) -> PathBuf {
        let directory = self.0.path().join(name);
        fs::create_dir_all(directory.join("lvm")).unwrap();
        File::create(directory.join("run.lock")).unwrap();
        directory
    }

    /// What a sweep begun now would find.
    fn dead(&self) -> Vec<sweep::Remains> {
        sweep::dead(self.0.path()).unwrap()
    }
}

/// A loop device on a new file.
fn attach(file: &Path) -> String {
    File::create(file).unwrap().set_len(64 << 20).unwrap();
    run(&format!("losetup --find --show {}", file.display()))
}

/// A group with a mounted volume and a snapshot of it.
fn group(name: &str, device: &str, mount: &Path) {
    run(&format!("lvm vgcreate --yes {name} {device}"));
    run(&format!("lvm lvcreate --yes --size 16m --name datalv {name}"));
    run(&format!("mkfs.ext4 -q -F /dev/{name}/datalv"));
    fs::create_dir_all(mount).unwrap();
    run(&format!("mount /dev/{name}/datalv {}", mount.display()));
    run(&format!(
        "lvm lvcreate --yes --snapshot --size 8m --name snap {name}/datalv"
    ));
}

fn loops() -> String {
    run("losetup --list --noheadings --output NAME,BACK-FILE")
}

fn devices() -> String {
    run("dmsetup info --columns --noheadings --options name")
}

#[rstest]
#[case::as_it_was(false, false)]
#[case::with_its_file_deleted(true, false)]
#[case::with_devices_suspended(false, true)]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn all_that_a_dead_run_left_is_removed(place: Place, #[case] deleted: bool, #[case] suspended: bool) {
    let directory = place.run_directory(&format!("snaptax-{DEAD}"));
    let (file, name) = (directory.join("vgtest.pv"), format!("snaptax-{DEAD}-vgtest"));
    group(&name, &attach(&file), &directory.join("origin"));
    if deleted {
        fs::remove_file(&file).unwrap();
    }
    if suspended {
        run("dmsetup suspend snaptax--4194305--7--vgtest-datalv");
    }

    let found = place.dead();
    assert_eq!(found.len(), 1);
    let told = found[0].to_string();
    for thing in [
        "mount ",
        "device snaptax--4194305--7--vgtest-snap\n",
        "loop device /dev/loop",
        "directory ",
    ] {
        assert!(told.contains(thing), "{told}");
    }
    found[0].remove().unwrap();
    assert_eq!(place.dead(), []);
    assert!(!directory.exists() && !Path::new("/dev").join(&name).exists());
    assert!(!devices().contains("4194305") && !loops().contains("4194305"));
}

#[rstest]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_dead_runs_container_is_removed_and_no_other(place: Place) {
    let image = std::env::var("SNAPTAX_IMAGE").unwrap_or_else(|_| "mysql:8.4".into());
    let create = |label: &str| run(&format!("docker create --label {label} --network none {image} true"));
    let dead = create(&format!("org.snaptax.run={DEAD}"));
    let others = [
        create("org.snaptax.run=mine"),
        create(&format!("org.snaptax.other={DEAD}")),
    ];
    for remains in place.dead() {
        remains.remove().unwrap();
    }
    let left = run("docker ps --all --no-trunc --quiet");
    assert!(
        !left.contains(&dead) && others.iter().all(|other| left.contains(other)),
        "{left}"
    );
    run(&format!("docker rm {} {}", others[0], others[1]));
}

#[rstest]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn look_alikes_kept_runs_and_living_ones_are_left_alone(place: Place) {
    // A group of a run's name on a disk that is nobody's run's.
    let foreign = place.0.path().join("disk.img");
    let foreign_device = attach(&foreign);
    let mount = place.0.path().join("mnt");
    group(&format!("snaptax-{DEAD}-vgtest"), &foreign_device, &mount);
    // Loop devices in directories of similar names.
    let similar = place.run_directory(&format!("snaptax-{DEAD}-old"));
    let notes = place.0.path().join("snaptax-4194306-7");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("notes.txt"), "mine").unwrap();
    let similar_devices = [attach(&similar.join("vgtest.pv")), attach(&notes.join("vgtest.pv"))];
    // A living run, by its lock, and a kept one.
    let living = place.run_directory("snaptax-4194307-7");
    let lock = File::open(living.join("run.lock")).unwrap();
    lock.lock().unwrap();
    let kept = place.run_directory("snaptax-4194308-7");
    fs::write(kept.join("kept"), "").unwrap();

    let dead = place.dead();
    assert_eq!(dead, [], "{}", dead.iter().map(ToString::to_string).collect::<String>());
    let kept_runs = sweep::find(place.0.path())
        .unwrap()
        .into_iter()
        .filter(sweep::Remains::is_kept);
    assert_eq!(
        kept_runs.map(|remains| remains.remove()).filter(Result::is_ok).count(),
        1
    );
    assert!(living.exists() && similar.exists() && notes.join("notes.txt").exists() && !kept.exists());

    run(&format!("umount {}", mount.display()));
    run(&format!("lvm vgremove --yes --force snaptax-{DEAD}-vgtest"));
    for device in similar_devices.iter().chain([&foreign_device]) {
        run(&format!("losetup --detach {device}"));
    }
}
