//! What the host must have, and installing what it lacks.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use snaptax::command::{self, Command};

use crate::interrupt::{self, Interrupt, bound};
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

/// What dpkg and apt may take.
const INSTALL_DEADLINE: Duration = Duration::from_secs(15 * 60);

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
    /// apt failed.
    #[error("cannot install {}: {source}\n  hint: {hint}", packages.join(" "))]
    Install {
        /// Packages asked for.
        packages: Vec<String>,
        /// What apt said.
        source: command::Error,
        /// What to do.
        hint: &'static str,
    },
    /// A program could not be supervised.
    #[error(transparent)]
    Supervise(#[from] interrupt::Error),
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
    let packages: Vec<String> = missing
        .iter()
        .map(|(_, package)| (*package).to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
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

/// Whether a program of this name is in PATH.
fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .any(|directory| directory.join(program).is_file())
}

/// Somebody who may install packages.
#[derive(Debug, Clone, Copy)]
enum Administrator {
    Root,
    Sudo,
}

impl Administrator {
    fn of_this_user() -> Option<Self> {
        if rustix::process::geteuid().is_root() {
            return Some(Self::Root);
        }
        let sudo = Command::new("sudo").args(["-n", "true"]).run();
        sudo.is_ok().then_some(Self::Sudo)
    }

    fn apt(self, args: &[&str]) -> Command {
        let command = match self {
            Self::Root => bound("env"),
            Self::Sudo => bound("sudo").args(["-n", "env"]),
        };
        command
            .args(["DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get"])
            .args(args)
            .deadline(INSTALL_DEADLINE)
    }

    fn install(self, packages: &[String], interrupt: &Interrupt) -> Result<(), Error> {
        // Lists that are out of date in part may do; if not, the install says so.
        match interrupt.run(self.apt(&["update"])) {
            Ok(_) | Err(interrupt::Error::Command(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let mut args = vec!["install", "--yes", "--no-install-recommends"];
        args.extend(packages.iter().map(String::as_str));
        let Err(error) = interrupt.run(self.apt(&args)) else {
            return Ok(());
        };
        let interrupt::Error::Command(source) = error else {
            return Err(error.into());
        };
        // Packages that came from backports break older ones of the same source.
        if let Some(suite) = backports() {
            args.extend(["-t", &suite]);
            if interrupt.run(self.apt(&args)).is_ok() {
                return Ok(());
            }
        }
        Err(Error::Install {
            packages: packages.to_owned(),
            source,
            hint: "run it by hand; if a package installed from backports is in the way, add `-t <codename>-backports`",
        })
    }
}

/// This release's backports suite, if apt knows it.
fn backports() -> Option<String> {
    let release = std::fs::read_to_string("/etc/os-release").ok()?;
    let policy = Command::new("apt-cache").arg("policy").run().ok()?.stdout;
    backports_in(&release, &policy)
}

fn backports_in(release: &str, policy: &str) -> Option<String> {
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let suite = format!("{}-backports", codename.trim_matches('"'));
    let known = policy
        .split([',', ' ', '\n'])
        .any(|word| word == format!("n={suite}") || word == format!("a={suite}"));
    known.then_some(suite)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("VERSION_CODENAME=bookworm\n", Some("bookworm-backports"))]
    #[case("VERSION_CODENAME=\"bookworm\"\n", Some("bookworm-backports"))]
    #[case("VERSION_CODENAME=trixie\n", None)]
    #[case("ID=arch\n", None)]
    fn backports_are_used_only_where_apt_knows_them(#[case] release: &str, #[case] suite: Option<&str>) {
        let policy = " 100 http://mirror.example/debian oldstable-backports/main amd64 Packages\n\
                      \x20    release o=Debian Backports,a=oldstable-backports,n=bookworm-backports,l=Debian Backports,c=main\n";
        assert_eq!(backports_in(release, policy).as_deref(), suite);
    }

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
