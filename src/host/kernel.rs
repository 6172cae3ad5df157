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
    let loaded = || Command::new("dmsetup").arg("targets").run();
    judged(device_mapper(), loop_devices(), || {
        loaded().map(|output| output.stdout).unwrap_or_default()
    })
}

/// What these come to; without device-mapper nobody asks for its targets.
fn judged(
    device_mapper: Result<String, Reason>,
    loop_devices: Result<String, Reason>,
    loaded: impl Fn() -> String,
) -> Vec<Finding> {
    let has_targets = device_mapper.is_ok();
    let mut findings = vec![device_mapper.into(), loop_devices.into()];
    if has_targets {
        let loaded = loaded();
        findings.push(target(&loaded, SNAPSHOT).into());
        findings.push(noted(target(&loaded, THIN_POOL)));
    }
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

    fn good() -> Result<String, Reason> {
        Ok(String::new())
    }

    #[test]
    fn the_target_of_thick_snapshots_is_required_and_that_of_thin_ones_is_not() {
        let findings = judged(good(), good(), String::new);
        assert!(!matches!(findings[2], Finding::Note(_)), "{findings:?}");
        assert!(!matches!(findings[3], Finding::Missing(_)), "{findings:?}");
        let loaded = || "snapshot v1.16.0\nthin-pool v1.23.0\n".to_owned();
        let findings = judged(good(), good(), loaded);
        assert!(
            findings.iter().all(|finding| matches!(finding, Finding::Good(_))),
            "{findings:?}"
        );
    }

    #[test]
    fn without_device_mapper_its_targets_are_not_complained_about_too() {
        let findings = judged(Err(Reason::new("none", "get it")), good(), || {
            panic!("asked for targets")
        });
        assert!(
            matches!(findings[..], [Finding::Missing(_), Finding::Good(_)]),
            "{findings:?}"
        );
    }
}
