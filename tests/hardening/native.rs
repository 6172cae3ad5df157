//! An experiment on the machine itself, started by a user who may use `sudo`. The guest is such a machine.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use snaptax::command::{Command, Output};
use snaptax::settings::Settings;

use crate::kills::{THIS_TEST as SHORT, VICTIM, assert_nothing_is_left, victim};
use crate::require_guest;

const USER: &str = "somebody";

/// What the victim says when its server's container has been on its volume for some seconds.
const MIDWAY: &str = "server ... 16 s";

/// It takes 35 s to come to that on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(200);

fn as_user(line: &str) -> Output {
    let command = Command::new("setpriv").args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]);
    let command = command
        .args(["sh", "-c", line])
        .env("HOME", "/home/somebody")
        .env(VICTIM, "1");
    command.deadline(Duration::from_secs(200)).output().unwrap()
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
fn a_user_is_told_at_once_what_is_missing_and_with_sudo_it_runs_also_after_a_killed_one() {
    require_guest("this makes a user who may do anything");
    Command::new("useradd").args(["--create-home", USER]).run().unwrap();
    fs::write("/etc/sudoers.d/somebody", format!("{USER} ALL=(ALL) NOPASSWD: ALL\n")).unwrap();
    let binary = std::env::current_exe().unwrap();
    let experiment = format!("{} --ignored --exact --nocapture {SHORT}", binary.display());

    let began = Instant::now();
    let alone = as_user(&experiment);
    println!("told after {:.1} s", began.elapsed().as_secs_f64());
    let said = alone.stdout + &alone.stderr;
    assert!(
        !alone.status.success() && began.elapsed() < Duration::from_secs(10),
        "{said}"
    );
    assert!(
        said.contains("not root") && said.contains("cargo experiments"),
        "{said}"
    );

    let work_dir = Settings::from_env().unwrap().work_dir;
    let log = work_dir.join("native.log");
    let mut killed = victim(&log);
    let end = Instant::now() + PATIENCE;
    while !fs::read_to_string(&log).is_ok_and(|log| log.contains(MIDWAY)) {
        assert!(
            Instant::now() < end && killed.try_wait().unwrap().is_none(),
            "no server"
        );
        thread::sleep(Duration::from_millis(200));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    println!("killed; once more with sudo");
    let with_sudo = as_user(&format!("sudo -E env \"PATH=$PATH\" {experiment}"));
    let said = with_sudo.stdout + &with_sudo.stderr;
    assert!(with_sudo.status.success(), "{said}");
    assert!(said.contains("was killed; removing what it left"), "{said}");
    assert_nothing_is_left(&work_dir);
    fs::remove_file(log).unwrap();
}
