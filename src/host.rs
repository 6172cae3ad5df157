//! What this machine can do, and every reason why an experiment cannot run here, each with its fix.
//!
//! ```no_run
//! use snaptax::settings::Settings;
//!
//! for reason in snaptax::host::check(&Settings::default()) {
//!     println!("{reason}");
//! }
//! ```

mod docker;
mod kernel;
mod steal;
mod work_dir;

use std::fmt;
use std::path::Path;

pub use steal::stolen;

use crate::settings::Settings;
use crate::storage;

/// The way round whatever the kernel lacks.
const IN_A_GUEST: &str = "run `cargo experiments`, which brings a kernel of its own in a guest";

/// Set by `cargo experiments` for what is to be run in its guest, and not in there.
const PLAN: &str = "SNAPTAX_PLAN";

/// Why an experiment cannot run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What is missing.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl Reason {
    fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  fix: {}", self.what, self.fix)
    }
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is as it should be.
    Good(String),
    /// It is worth knowing, but hinders nothing.
    Note(String),
    /// Experiments need it, and it is missing.
    Missing(Reason),
}

impl From<Result<String, Reason>> for Finding {
    fn from(result: Result<String, Reason>) -> Self {
        result.map_or_else(Self::Missing, Self::Good)
    }
}

/// Every reason why experiments cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("experiments cannot run here:{}", reasons.iter().map(|reason| format!("\n- {reason}")).collect::<String>())]
pub struct Error {
    /// The reasons, at least one.
    pub reasons: Vec<Reason>,
}

/// Looks at everything experiments need.
#[must_use]
pub fn survey(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![root().into()];
    if std::env::var_os(PLAN).is_some() {
        findings.push(Finding::Missing(outside_of_guest()));
    }
    findings.extend(kernel::survey());
    findings.extend(PROGRAMS.iter().map(|(name, package)| program(name, package).into()));
    findings.push(udev());
    findings.push(docker::answers().into());
    findings.extend(work_dir::survey(settings));
    findings
}

/// Collects every reason why experiments cannot run here; none when they can.
#[must_use]
pub fn check(settings: &Settings) -> Vec<Reason> {
    let reason = |finding| {
        if let Finding::Missing(reason) = finding {
            Some(reason)
        } else {
            None
        }
    };
    survey(settings).into_iter().filter_map(reason).collect()
}

/// What an experiment calls before it builds anything.
///
/// # Errors
/// When it cannot run here, with every reason.
pub fn require(settings: &Settings) -> Result<(), Error> {
    let reasons = check(settings);
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(Error { reasons })
    }
}

fn outside_of_guest() -> Reason {
    Reason::new(
        "`cargo experiments` wanted its guest, but cargo started the tests on this machine",
        "remove what sets another target runner in cargo's configuration",
    )
}

fn root() -> Result<String, Reason> {
    if rustix::process::geteuid().is_root() {
        return Ok("runs as root".into());
    }
    Err(Reason::new(
        "not root, which loop devices, LVM and mounts need",
        "use sudo, or run `cargo experiments`, which needs no root",
    ))
}

/// What is started, and the package it comes in.
const PROGRAMS: &[(&str, &str)] = &[
    ("lvm", "lvm2"),
    ("dmsetup", "dmsetup, or lvm2"),
    ("losetup", "util-linux"),
    ("mount", "util-linux, or mount"),
    ("umount", "util-linux, or mount"),
    ("fsfreeze", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    // What a killed run left of containers is removed with it.
    ("docker", "docker-cli, or docker.io"),
];

fn program(name: &str, package: &str) -> Result<String, Reason> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
    {
        return Ok(format!("{name} is {}", found.display()));
    }
    for directory in ["/usr/sbin", "/sbin", "/usr/local/sbin"] {
        if Path::new(directory).join(name).is_file() {
            return Err(Reason::new(
                format!("{name} is in {directory}, which is not in PATH"),
                "add it to PATH",
            ));
        }
    }
    Err(Reason::new(
        format!("{name} is not installed"),
        format!("install the package {package}"),
    ))
}

fn udev() -> Finding {
    if storage::udevd_runs() {
        return Finding::Good("udevd runs".into());
    }
    Finding::Note("udevd does not run here: LVM will make its device nodes itself".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_every_reason_with_its_fix() {
        let reasons = vec![
            Reason::new("no lvm", "install lvm2"),
            Reason::new("no docker", "start dockerd"),
        ];
        assert_eq!(
            Error { reasons }.to_string(),
            "experiments cannot run here:\n- no lvm\n  fix: install lvm2\n- no docker\n  fix: start dockerd"
        );
    }

    #[test]
    fn a_check_is_the_missing_part_of_a_survey_and_has_no_blank_words() {
        let settings = Settings {
            work_dir: "/no/such/directory".into(),
            ..Settings::default()
        };
        let missing = survey(&settings)
            .iter()
            .filter(|finding| matches!(finding, Finding::Missing(_)))
            .count();
        let reasons = check(&settings);
        assert_eq!(reasons.len(), missing);
        assert!(
            reasons
                .iter()
                .all(|reason| !reason.what.is_empty() && !reason.fix.is_empty())
        );
        assert!(
            reasons.iter().any(|reason| reason.what.contains("/no/such/directory")),
            "{reasons:?}"
        );
        assert_eq!(require(&settings), Err(Error { reasons }));
    }

    #[test]
    fn a_program_that_is_missing_names_its_package() {
        let reason = program("no-such-program", "that-package").unwrap_err();
        assert_eq!(
            reason.to_string(),
            "no-such-program is not installed\n  fix: install the package that-package"
        );
        assert!(program("sh", "dash").is_ok());
    }
}
