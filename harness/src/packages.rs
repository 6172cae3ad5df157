//! Debian packages that the host lacks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use snaptax::command::{self, Command};
use tempfile::TempDir;

use crate::bound::bound;
use crate::image::mirror;
use crate::interrupt::{self, Interrupt};

/// Packages of one source, which break each other unless they have the same version: apt is told of both.
const SIBLINGS: [&str; 2] = ["qemu-system-x86", "qemu-utils"];

/// What fetching lists may take.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// What fetching and unpacking packages may take, on the slowest of machines.
const INSTALL_DEADLINE: Duration = Duration::from_secs(3 * 60 * 60);

/// Never at the cost of a package that is there.
const INSTALL: [&str; 4] = ["install", "--yes", "--no-install-recommends", "--no-remove"];

/// Why packages were not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// apt failed.
    #[error(
        "cannot install {}: {source}\n  hint: run it by hand; if a package of another release is in the way, add \
         `-t <that release>`",
        packages.join(" ")
    )]
    Install {
        /// Packages asked for.
        packages: Vec<String>,
        /// What apt said.
        source: command::Error,
    },
    /// The list of sources could not be written.
    #[error("cannot write a list of package sources: {0}")]
    Sources(#[from] io::Error),
    /// apt could not be supervised.
    #[error(transparent)]
    Supervise(#[from] interrupt::Error),
}

/// What to ask apt for, so that these packages are there.
pub(crate) fn of<'a>(packages: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut wanted: BTreeSet<&str> = packages.collect();
    if SIBLINGS.iter().any(|sibling| wanted.contains(sibling)) {
        wanted.extend(SIBLINGS);
    }
    wanted.into_iter().map(str::to_owned).collect()
}

/// Somebody who may install packages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Administrator {
    Root,
    Sudo,
}

impl Administrator {
    /// This user, as root or by `sudo` without a password.
    pub(crate) fn of_this_user() -> Option<Self> {
        if rustix::process::geteuid().is_root() {
            return Some(Self::Root);
        }
        let sudo = Command::new("sudo").args(["-n", "true"]).run();
        sudo.is_ok().then_some(Self::Sudo)
    }

    /// Installs packages, and removes none. QEMU comes from the release's backports where there are any: under
    /// emulation, guests' kernels have been seen to panic with QEMU 7.2, and not with QEMU 10.
    ///
    /// # Errors
    /// When apt finds no way to do so, or a signal comes.
    pub(crate) fn install(self, packages: &[String], interrupt: &Interrupt) -> Result<(), Error> {
        let (siblings, others): (Vec<_>, Vec<_>) = packages
            .iter()
            .cloned()
            .partition(|package| SIBLINGS.contains(&package.as_str()));
        let from_backports = match backports() {
            Some(suite) if !siblings.is_empty() => self.install_from(&suite, &siblings, interrupt)?,
            _ => false,
        };
        let left = if from_backports { &others } else { packages };
        if left.is_empty() {
            return Ok(());
        }
        // Lists that are out of date in part may do; if not, the install says so.
        let _ = unless_interrupted(interrupt.run(&self.update()))?;
        let installed = unless_interrupted(interrupt.outlast(&self.installing(left)))?;
        installed.map_err(|source| Error::Install {
            packages: left.to_owned(),
            source,
        })
    }

    /// Whether they could be installed from this suite.
    fn install_from(self, suite: &str, packages: &[String], interrupt: &Interrupt) -> Result<bool, Error> {
        let sources = Sources::with(suite)?;
        let options = sources.options();
        let _ = unless_interrupted(interrupt.run(&self.update().args(&options)))?;
        let install = self.installing(packages).args(["-t", suite]).args(&options);
        Ok(unless_interrupted(interrupt.outlast(&install))?.is_ok())
    }

    fn update(self) -> Command {
        self.apt(bound).args(["update"]).deadline(DEADLINE)
    }

    /// Not bound to this process, and not killed within any time that it might need: packages half installed are worse
    /// than a wait.
    fn installing(self, packages: &[String]) -> Command {
        self.apt(Command::new)
            .args(INSTALL)
            .args(packages)
            .deadline(INSTALL_DEADLINE)
    }

    fn apt(self, start: impl Fn(&'static str) -> Command) -> Command {
        let command = match self {
            Self::Root => start("env"),
            Self::Sudo => start("sudo").args(["-n", "env"]),
        };
        command
            .args(["DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get"])
            .args(["-o", "DPkg::Lock::Timeout=300"])
    }
}

/// apt's own failure apart from that of watching it.
fn unless_interrupted(
    result: Result<command::Output, interrupt::Error>,
) -> Result<Result<(), command::Error>, interrupt::Error> {
    match result {
        Ok(_) => Ok(Ok(())),
        Err(interrupt::Error::Command(error)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// The backports of this Debian release.
fn backports() -> Option<String> {
    backports_of(&fs::read_to_string("/etc/os-release").ok()?)
}

fn backports_of(release: &str) -> Option<String> {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches('"'))
    };
    let codename = value("VERSION_CODENAME=")?;
    (value("ID=")? == "debian").then(|| format!("{codename}-backports"))
}

/// This host's package sources and one suite more, known to those calls alone that are told of them.
struct Sources {
    directory: TempDir,
}

impl Sources {
    fn with(suite: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("snaptax-apt-").tempdir()?;
        let parts = directory.path().join("sources.list.d");
        fs::create_dir_all(directory.path().join("lists/partial"))?;
        fs::create_dir(&parts)?;
        for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
            // What this user may not read, apt will do without.
            let _ = fs::copy(entry.path(), parts.join(entry.file_name()));
        }
        if let Some(mirror) = mirror::of_this_host() {
            fs::write(parts.join("snaptax-backports.sources"), source(&mirror, suite))?;
        }
        Ok(Self { directory })
    }

    fn options(&self) -> Vec<String> {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let settings = [
            format!("Dir::Etc::sourceparts={}", path("sources.list.d")),
            format!("Dir::State::lists={}", path("lists")),
            // As another user it would make directories that this one cannot remove.
            "APT::Sandbox::User=root".to_owned(),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["-o".to_owned(), setting])
            .collect()
    }
}

fn source(mirror: &str, suite: &str) -> String {
    format!(
        "Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["zstd"], &["zstd"])]
    #[case(&["qemu-system-x86", "zstd", "zstd"], &["qemu-system-x86", "qemu-utils", "zstd"])]
    #[case(&["qemu-utils"], &["qemu-system-x86", "qemu-utils"])]
    fn qemu_is_asked_for_as_a_whole(#[case] missing: &[&str], #[case] asked: &[&str]) {
        assert_eq!(of(missing.iter().copied()), asked);
    }

    #[rstest]
    #[case("ID=debian\nVERSION_CODENAME=bookworm\n", Some("bookworm-backports"))]
    #[case("VERSION_CODENAME=\"bookworm\"\nID=\"debian\"\n", Some("bookworm-backports"))]
    #[case("ID=ubuntu\nVERSION_CODENAME=noble\n", None)]
    #[case("ID=arch\n", None)]
    fn backports_are_those_of_a_debian_release(#[case] release: &str, #[case] suite: Option<&str>) {
        assert_eq!(backports_of(release).as_deref(), suite);
    }
}
