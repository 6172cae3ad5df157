//! What the host must have, and installing what it lacks.

use std::path::Path;

use snaptax::settings::Size;

use crate::interrupt::Interrupt;
use crate::packages::{self, Administrator};
use crate::progress::Progress;

/// Programs the harness starts, with the Debian package of each.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("mmdebstrap", "mmdebstrap"),
    ("mksquashfs", "squashfs-tools"),
    ("unsquashfs", "squashfs-tools"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("setpriv", "util-linux"),
];

/// Files it reads.
const FILES: &[(&str, &str)] = &[(
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "debian-archive-keyring",
)];

/// Programs that only a user other than root needs, to unpack packages in a user namespace.
const PROGRAMS_WITHOUT_ROOT: &[(&str, &str)] = &[("newuidmap", "uidmap")];

/// Why the host does not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A machine that cannot run the guest's programs.
    #[error("experiments need an x86_64 Linux machine, whose programs the guest can run; this is {arch} {os}")]
    Machine {
        /// The processor.
        arch: &'static str,
        /// The system.
        os: &'static str,
    },
    /// Something is missing and cannot be installed from here.
    #[error("this machine lacks {}\n  hint: {hint}", missing.join(", "))]
    Missing {
        /// What is missing.
        missing: Vec<String>,
        /// What to do.
        hint: String,
    },
    /// They could not be installed.
    #[error(transparent)]
    Packages(#[from] packages::Error),
}

/// Makes sure that the guest can run what is built here.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_machine(arch: &'static str, os: &'static str) -> Result<(), Error> {
    match (arch, os) {
        ("x86_64", "linux") => Ok(()),
        _ => Err(Error::Machine { arch, os }),
    }
}

/// Makes sure that every requirement is met, installing Debian packages where this user may.
///
/// # Errors
/// When something is missing that cannot be installed; it names everything.
pub(crate) fn ensure(progress: &Progress, interrupt: &Interrupt) -> Result<(), Error> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = packages::of(missing.iter().map(|(_, package)| *package));
    let names = || missing.iter().map(|(thing, _)| (*thing).to_owned()).collect();
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !on_path("apt-get") {
        return Err(Error::Missing {
            missing: names(),
            hint: format!("install them; on Debian and its kin: {line}"),
        });
    }
    let Some(administrator) = Administrator::of_this_user() else {
        return Err(Error::Missing {
            missing: names(),
            hint: format!("run: sudo apt-get update && sudo {line}"),
        });
    };
    progress.note(&format!(
        "installing {} (needed to run experiments)",
        packages.join(" ")
    ));
    let step = progress.step("packages");
    administrator.install(&packages, interrupt)?;
    let still = self::missing();
    if !still.is_empty() {
        return Err(Error::Missing {
            missing: still.iter().map(|(thing, _)| (*thing).to_owned()).collect(),
            hint: "apt-get installed their packages, but they are still not there; is PATH complete?".to_owned(),
        });
    }
    step.done();
    Ok(())
}

fn missing() -> Vec<(&'static str, &'static str)> {
    let without_root = if rustix::process::geteuid().is_root() {
        &[]
    } else {
        PROGRAMS_WITHOUT_ROOT
    };
    let programs = PROGRAMS
        .iter()
        .chain(without_root)
        .filter(|(program, _)| !on_path(program));
    let files = FILES.iter().filter(|(file, _)| !Path::new(file).exists());
    programs.chain(files).copied().collect()
}

/// The machine's memory.
pub(crate) fn memory() -> Option<Size> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Size::mib(kib >> 10))
}

/// Whether a program of this name is in PATH.
fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("x86_64", "linux", true)]
    #[case("aarch64", "linux", false)]
    #[case("x86_64", "macos", false)]
    fn only_machines_whose_programs_the_guest_runs_will_do(
        #[case] arch: &'static str,
        #[case] os: &'static str,
        #[case] will_do: bool,
    ) {
        let checked = check_machine(arch, os);
        assert_eq!(checked.is_ok(), will_do);
        if let Err(error) = checked {
            assert!(error.to_string().ends_with(&format!("this is {arch} {os}")));
        }
    }

    #[test]
    fn a_program_is_looked_for_in_path() {
        assert!(on_path("sh") && !on_path("no-such-program"));
    }
}
