use std::env;

use rstest::rstest;
use snaptax::command::Command;
use snaptax::storage::udevd_runs;

use crate::require_guest;

/// A whole group with its volumes, in a process of its own.
const GROUP: &str = "storage::volume_group::a_group_goes_up_and_down_and_leaves_nothing";

/// A daemon that answers nobody until this is dropped.
struct StoppedUdevd;

impl StoppedUdevd {
    fn stop() -> Self {
        signal("STOP");
        Self
    }
}

impl Drop for StoppedUdevd {
    fn drop(&mut self) {
        signal("CONT");
    }
}

fn signal(name: &str) {
    let kill = Command::new("pkill").args(["--exact", "--signal", name, "systemd-udevd"]);
    kill.run().unwrap();
}

#[rstest]
#[case::that_sees_none_of_its_semaphores(&["unshare", "--ipc"], false)]
#[case::that_was_stopped(&["env"], true)]
#[ignore = "needs root and device-mapper"]
fn a_group_goes_up_and_down_beside_a_udev_daemon(#[case] in_front: &[&str], #[case] stopped: bool) {
    require_guest("this stops the machine's udev daemon");
    assert!(udevd_runs());
    let udevd = stopped.then(StoppedUdevd::stop);
    assert_eq!(udevd_runs(), !stopped);
    let group = Command::new(in_front[0]).args(&in_front[1..]);
    let group = group.arg(env::current_exe().unwrap());
    let output = group.args(["--ignored", "--exact", GROUP]).run().unwrap();
    assert!(output.stdout.contains("1 passed"), "{}", output.stdout);
    drop(udevd);
    Command::new("udevadm").args(["settle", "--timeout=30"]).run().unwrap();
}
