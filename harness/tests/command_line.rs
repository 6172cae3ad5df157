//! The command line as a user meets it, without a guest.

use assert_cmd::Command;
use rstest::rstest;

fn harness() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snaptax-harness"));
    for name in [
        "MEMORY", "IOPS", "DISK", "CACHE", "ACCEL", "TIMEOUT", "PLAN", "OUTPUT", "WORK_DIR",
    ] {
        command.env_remove(format!("SNAPTAX_{name}"));
    }
    command
}

#[test]
fn help_has_examples_and_exit_codes_and_no_inner_workings() {
    let output = harness().arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("cargo experiments thick") && text.contains("Exit codes:"));
    assert!(text.contains("SNAPTAX_MEMORY") && !text.contains("__"), "{text}");
    assert!(
        text.contains("--test <NAME>") && text.contains("cargo experiments --test hardening"),
        "{text}"
    );
}

#[rstest]
#[case(&["--iops", "none"], "none")]
#[case(&["--nope"], "--nope")]
fn a_wrong_command_line_is_told_from_a_failed_run(#[case] args: &[&str], #[case] named: &str) {
    let output = harness().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(named));
}

#[test]
fn a_setting_in_the_environment_is_checked_like_an_option() {
    let output = harness().env("SNAPTAX_ACCEL", "hax").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tcg, kvm"));
}

#[test]
fn an_empty_setting_counts_as_not_given() {
    let empty = ["ACCEL", "CACHE", "DISK", "IOPS", "MEMORY", "TIMEOUT"];
    let mut command = harness();
    empty.iter().for_each(|name| {
        command.env(format!("SNAPTAX_{name}"), "");
    });
    // It comes as far as a setting that is refused.
    let output = command.env("SNAPTAX_OUTPUT", "/somewhere").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("SNAPTAX_OUTPUT"), "{stderr}");
}

#[rstest]
#[case("--disk", "512m", "SNAPTAX_VOLUME_SIZE", "1g", "--disk")]
#[case("--memory", "1g", "SNAPTAX_BUFFER_POOL", "2g", "--memory")]
#[case("--timeout", "60", "SNAPTAX_BUDGET", "90", "raise that to 300")]
#[case("--timeout", "60", "SNAPTAX_KEEP", "1", "thrown away")]
fn a_scale_beyond_the_guest_is_refused_before_anything_is_built(
    #[case] option: &str,
    #[case] value: &str,
    #[case] name: &str,
    #[case] setting: &str,
    #[case] hint: &str,
) {
    let output = harness().args([option, value]).env(name, setting).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(name) && stderr.contains(hint), "{stderr}");
}

#[rstest]
#[case("SNAPTAX_OUTPUT")]
#[case("SNAPTAX_WORK_DIR")]
fn a_setting_for_runs_without_a_guest_is_refused(#[case] name: &str) {
    let output = harness().env(name, "/somewhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(name) && stderr.contains("hint:"), "{stderr}");
}

#[test]
fn the_runner_refuses_to_run_alone() {
    let output = harness().args(["__guest", "/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cargo experiments"));
}
