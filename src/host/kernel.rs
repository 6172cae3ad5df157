use std::fs;
use std::path::Path;

use crate::command::Command;
use crate::host::{Finding, IN_A_GUEST, Reason};

/// A device-mapper target and its module.
type Target = (&'static str, &'static str);

/// What thick snapshots are made of.
const SNAPSHOT: Target = ("snapshot", "dm-snapshot");

/// What thin snapshots are made of, which no experiment makes yet.
const THIN_POOL: Target = ("thin-pool", "dm-thin-pool");

pub(super) fn survey() -> Vec<Finding> {
    let mut findings = vec![loop_devices().into()];
    let device_mapper = device_mapper();
    if device_mapper.is_ok() {
        let loaded = Command::new("dmsetup")
            .arg("targets")
            .run()
            .map(|output| output.stdout)
            .unwrap_or_default();
        findings.push(target(&loaded, SNAPSHOT).into());
        findings.push(noted(target(&loaded, THIN_POOL)));
    }
    findings.insert(0, device_mapper.into());
    findings
}

fn device_mapper() -> Result<String, Reason> {
    let misc = fs::read_to_string("/proc/misc").unwrap_or_default();
    let registered = misc
        .lines()
        .any(|line| line.split_whitespace().nth(1) == Some("device-mapper"));
    if registered && Path::new("/dev/mapper/control").exists() {
        return Ok("the kernel has device-mapper".into());
    }
    if registered {
        return Err(Reason::new(
            "/dev/mapper/control is missing, although the kernel has device-mapper",
            format!("run `dmsetup mknodes`; in a container, share /dev with the host; or {IN_A_GUEST}"),
        ));
    }
    if can_load("dm_mod") {
        return Err(Reason::new(
            "device-mapper is not loaded",
            format!("run `modprobe dm_mod` as root, or {IN_A_GUEST}"),
        ));
    }
    Err(Reason::new(
        "the kernel has no device-mapper, which LVM is made of",
        IN_A_GUEST,
    ))
}

/// A target that is not loaded yet is when LVM asks for it, if there is a module.
fn target(loaded: &str, (name, module): Target) -> Result<String, Reason> {
    if is_listed(loaded, name) {
        return Ok(format!("device-mapper has the target {name}"));
    }
    if can_load(module) {
        return Ok(format!("device-mapper can load the target {name}"));
    }
    Err(Reason::new(
        format!("device-mapper has no target {name}, and there is no module {module}"),
        format!("install the kernel's extra modules, or {IN_A_GUEST}"),
    ))
}

/// For what nothing needs yet.
fn noted(result: Result<String, Reason>) -> Finding {
    result.map_or_else(
        |reason| Finding::Note(format!("{}; only thin snapshots would need it", reason.what)),
        Finding::Good,
    )
}

fn is_listed(targets: &str, name: &str) -> bool {
    targets.lines().any(|line| line.split_whitespace().next() == Some(name))
}

fn loop_devices() -> Result<String, Reason> {
    if Path::new("/dev/loop-control").exists() {
        return Ok("the kernel has loop devices".into());
    }
    let fix = if can_load("loop") {
        format!("run `modprobe loop` as root, or {IN_A_GUEST}")
    } else {
        format!("share /dev with the host when in a container, or {IN_A_GUEST}")
    };
    Err(Reason::new("/dev/loop-control is missing", fix))
}

/// Whether there is such a module; it is not loaded.
fn can_load(module: &str) -> bool {
    Command::new("modprobe")
        .args(["--dry-run", "--quiet", module])
        .run()
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_told_from_those_that_begin_alike() {
        let targets = "thin-pool        v1.23.0\nsnapshot-origin  v1.9.0\nlinear           v1.4.0\n";
        assert!(is_listed(targets, "thin-pool"));
        assert!(!is_listed(targets, "snapshot") && !is_listed(targets, "thin"));
    }

    #[test]
    fn a_missing_target_offers_the_guest() {
        let reason = target("linear v1.4.0\n", ("no-such", "dm-no-such")).unwrap_err();
        assert!(reason.fix.contains("cargo experiments"), "{reason}");
    }

    #[test]
    fn what_nothing_needs_yet_is_noted_but_not_missing() {
        let finding = noted(target("snapshot v1.16.0\n", ("no-such", "dm-no-such")));
        assert!(
            matches!(finding, Finding::Note(ref text) if text.contains("no-such")),
            "{finding:?}"
        );
    }

    #[test]
    fn the_target_of_thick_snapshots_stays_required() {
        let about = |finding: &&Finding, target: &str| format!("{finding:?}").contains(&format!("target {target}"));
        let findings = survey();
        if matches!(findings[0], Finding::Missing(_)) {
            return;
        }
        let snapshot = findings.iter().find(|finding| about(finding, "snapshot")).unwrap();
        let thin_pool = findings.iter().find(|finding| about(finding, "thin-pool")).unwrap();
        assert!(!matches!(snapshot, Finding::Note(_)) && !matches!(thin_pool, Finding::Missing(_)));
    }

    #[test]
    fn without_device_mapper_its_targets_are_not_complained_about_too() {
        let about_targets = |finding: &Finding| format!("{finding:?}").contains("target");
        let findings = survey();
        let missing = matches!(findings[0], Finding::Missing(_));
        assert_eq!(findings.iter().any(about_targets), !missing, "{findings:?}");
    }
}
