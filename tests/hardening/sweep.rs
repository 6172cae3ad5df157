//! What a sweep removes on real devices, and what it must not touch.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rstest::{fixture, rstest};
use serial_test::file_serial;
use snaptax::command::Command;
use snaptax::settings::Settings;
use snaptax::storage::RunId;
use snaptax::sweep;
use tempfile::TempDir;

/// A run of another process namespace.
const ELSEWHERE: &str = "4194305-7-1";

/// A run of this process namespace whose process cannot be: `number` is beyond the largest.
fn dead(number: u32) -> String {
    let current = RunId::current().to_string();
    let (_, namespace) = current.rsplit_once('-').unwrap();
    format!("{}-7-{namespace}", 4_194_305 + number)
}

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

    /// What a sweep begun now would find of such a run.
    fn dead(&self, run: &str) -> Vec<sweep::Remains> {
        let mut found = sweep::dead(self.0.path()).unwrap();
        found.retain(|remains| remains.run().to_string() == run);
        found
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
#[case::as_it_was("")]
#[case::with_its_file_deleted("file")]
#[case::with_its_directory_deleted("directory")]
#[case::with_all_devices_suspended("suspended")]
#[case::with_its_filesystem_frozen("frozen")]
#[case::of_another_process_namespace("elsewhere")]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn all_that_a_dead_run_left_is_removed(place: Place, #[case] state: &str) {
    let run_id = match state {
        "elsewhere" => ELSEWHERE.to_owned(),
        _ => dead(0),
    };
    let directory = place.run_directory(&format!("snaptax-{run_id}"));
    let (file, name) = (directory.join("vgtest.pv"), format!("snaptax-{run_id}-vgtest"));
    let mount = if state == "directory" {
        place.0.path().join("mnt")
    } else {
        directory.join("origin")
    };
    group(&name, &attach(&file), &mount);
    let devices_of_it = || {
        devices()
            .lines()
            .filter(|device| device.contains("4194305"))
            .map(str::to_owned)
            .collect()
    };
    let mut writer = None;
    match state {
        "file" => fs::remove_file(&file).unwrap(),
        "directory" => fs::remove_dir_all(&directory).unwrap(),
        "suspended" => {
            let devices: Vec<String> = devices_of_it();
            // The upper layers first, as LVM does.
            let (upper, lower): (Vec<_>, Vec<_>) = devices
                .iter()
                .partition(|device| !device.ends_with("-real") && !device.ends_with("-cow"));
            for device in upper.iter().chain(&lower) {
                run(&format!("dmsetup suspend {device}"));
            }
        }
        "frozen" => {
            run(&format!("fsfreeze --freeze {}", mount.display()));
            // Somebody waits for it, as the server would.
            let path = mount.join("waiting");
            writer = Some(std::thread::spawn(move || {
                File::create(path).and_then(|mut file| file.write_all(b"x"))
            }));
        }
        _ => {}
    }

    let found = place.dead(&run_id);
    assert_eq!(found.len(), 1);
    let told = found[0].to_string();
    for thing in ["mount ", "vgtest-snap\n", "loop device /dev/loop"] {
        assert!(told.contains(thing), "{told}");
    }
    found[0].remove().unwrap();
    assert_eq!(place.dead(&run_id), []);
    assert!(!directory.exists() && !Path::new("/dev").join(&name).exists());
    assert_eq!(devices_of_it(), Vec::<String>::new());
    assert!(!loops().contains("4194305"));
    if let Some(writer) = writer {
        // It may have written before the unmount, or not; it must not wait any more.
        let _ = writer.join().unwrap();
    }
}

#[rstest]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_dead_runs_container_is_removed_and_no_other(place: Place) {
    let image = std::env::var("SNAPTAX_IMAGE").unwrap_or_else(|_| "mysql:8.4".into());
    let start = |name: &str, label: &str| {
        run(&format!(
            "docker run --detach --name {name} --label {label} --network none {image} sleep 600"
        ))
    };
    let container = start(
        &format!("snaptax-{}-1", dead(1)),
        &format!("org.snaptax.run={}", dead(1)),
    );
    let others = [
        start("mine", "org.snaptax.run=mine"),
        start("another", &format!("org.snaptax.other={}", dead(1))),
        // As one from an image that was committed from a run's container.
        start("heir", &format!("org.snaptax.run={}", dead(1))),
        start(
            &format!("snaptax-{ELSEWHERE}-1"),
            &format!("org.snaptax.run={ELSEWHERE}"),
        ),
    ];
    assert_eq!(place.dead(ELSEWHERE), [], "its directory is out of sight");
    place
        .dead(&dead(1))
        .iter()
        .for_each(|remains| remains.remove().unwrap());
    let left = run("docker ps --no-trunc --quiet");
    assert!(
        !left.contains(&container) && others.iter().all(|other| left.contains(other)),
        "{left}"
    );
    run(&format!("docker rm --force {}", others.join(" ")));
}

#[rstest]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn look_alikes_kept_runs_and_living_ones_are_left_alone(place: Place) {
    // A group of a run's name on a disk that is nobody's run's.
    let foreign_device = attach(&place.0.path().join("disk.img"));
    let mount = place.0.path().join("mnt");
    let foreign_group = format!("snaptax-{}-vgtest", dead(2));
    group(&foreign_group, &foreign_device, &mount);
    // Loop devices in directories of similar names, and of somebody else's.
    let similar = place.run_directory(&format!("snaptax-{}-old", dead(3)));
    let notes = place.0.path().join(format!("snaptax-{}", dead(3)));
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("notes.txt"), "mine").unwrap();
    let others = place.run_directory(&format!("snaptax-{}", dead(4)));
    run(&format!("chown 65534 {}", others.display()));
    let similar_devices = [&similar, &notes, &others].map(|directory| attach(&directory.join("vgtest.pv")));
    // A living run, by its lock, and a kept one.
    let living = place.run_directory(&format!("snaptax-{}", dead(5)));
    let lock = File::open(living.join("run.lock")).unwrap();
    lock.lock().unwrap();
    let kept = place.run_directory(&format!("snaptax-{}", dead(6)));
    fs::write(kept.join("kept"), "").unwrap();

    for number in 2..=6 {
        let found = place.dead(&dead(number));
        assert_eq!(
            found,
            [],
            "{}",
            found.iter().map(ToString::to_string).collect::<String>()
        );
    }
    let found = sweep::find(place.0.path()).unwrap();
    let kept_run = found
        .iter()
        .find(|remains| remains.run().to_string() == dead(6))
        .unwrap();
    assert!(kept_run.is_kept());
    kept_run.remove().unwrap();
    assert!(living.exists() && similar.exists() && notes.join("notes.txt").exists() && others.exists());
    assert!(!kept.exists());

    run(&format!("umount {}", mount.display()));
    run(&format!("lvm vgremove --yes --force {foreign_group}"));
    for device in similar_devices.iter().chain([&foreign_device]) {
        run(&format!("losetup --detach {device}"));
    }
}
