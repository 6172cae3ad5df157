//! Shows that the machine has what experiments need.

use snaptax::command::Command;

fn output(program: &str, args: &[&str]) -> String {
    Command::new(program).args(args).run().unwrap().stdout
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
fn device_mapper_has_the_targets_of_snapshots() {
    let targets = output("dmsetup", &["targets"]);
    for target in ["snapshot ", "snapshot-origin ", "thin-pool ", "thin ", "delay "] {
        assert!(
            targets.lines().any(|line| line.starts_with(target)),
            "no target {target}in:\n{targets}"
        );
    }
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
fn a_loop_device_is_announced_by_udev() {
    let directory = std::env::var_os("SNAPTAX_WORK_DIR").unwrap_or_else(|| "/var/tmp".into());
    let file = tempfile::NamedTempFile::new_in(directory).unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    let path = file.path().to_str().unwrap();
    let device = output("losetup", &["--find", "--show", "--direct-io=on", path]);
    let device = device.trim();
    output("udevadm", &["settle", "--timeout=30"]);
    let properties = output("udevadm", &["info", "--query=property", device]);
    let direct = output("losetup", &["--noheadings", "--output", "DIO", device]);
    output("losetup", &["--detach", device]);
    assert!(
        properties.contains("USEC_INITIALIZED="),
        "udev does not know {device}:\n{properties}"
    );
    assert_eq!(direct.trim(), "1", "direct I/O is off");
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
fn docker_runs_the_server_image() {
    let image = std::env::var("SNAPTAX_IMAGE").unwrap_or_else(|_| "mysql:8.4".into());
    let args = [
        "run",
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "mysqld",
        &image,
        "--version",
    ];
    let version = output("docker", &args);
    assert!(version.contains("Ver "), "{version}");
}
