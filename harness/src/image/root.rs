//! The guest's root file system: Debian with LVM and Docker, as a squashfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snaptax::command::Command;

use super::{Error, mirror, mmdebstrap};
use crate::bound::bound;
use crate::cache::{Cache, Key, Use};
use crate::file;
use crate::interrupt::Interrupt;
use crate::plan;

const SUITE: &str = "trixie";

const PACKAGES: &[&str] = &[
    "busybox-static",
    "ca-certificates",
    "dmsetup",
    "docker-cli",
    "docker.io",
    "e2fsprogs",
    "fdisk",
    "iproute2",
    "iptables",
    "kmod",
    "linux-image-amd64",
    "lvm2",
    "mount",
    "procps",
    "sudo",
    "thin-provisioning-tools",
    "udev",
    "util-linux",
    "xfsprogs",
];

/// What no experiment needs, and would only make the image larger.
const EXCLUDED: &[&str] = &[
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/lib/modules/*/kernel/drivers/gpu/*",
    "/usr/lib/modules/*/kernel/drivers/media/*",
    "/usr/lib/modules/*/kernel/drivers/net/wireless/*",
    "/usr/lib/modules/*/kernel/sound/*",
];

const SQUASHFS_OPTIONS: &[&str] = &[
    "-tar",
    "-comp",
    "zstd",
    "-Xcompression-level",
    "3",
    "-noappend",
    "-no-progress",
    "-quiet",
];

/// Packages whose versions the manifest names.
const NAMED: &[&str] = &["docker.io"];

const DEADLINE: Duration = Duration::from_secs(30 * 60);

const HINT: &str =
    "mmdebstrap needs a Debian mirror (the one that apt uses here is tried) and, without root, user namespaces";

/// A built root file system.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// Its directory in the cache.
    pub(crate) directory: PathBuf,
    /// Its key.
    pub(crate) key: Key,
    /// What is in it.
    pub(crate) manifest: Manifest,
}

/// What is in a root file system.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The C library's version, as `2.41`.
    pub(crate) libc: String,
    /// Versions of packages that results name and the guest cannot tell as easily.
    pub(crate) packages: BTreeMap<String, String>,
}

impl Root {
    /// Docker's version, as Debian's package has it.
    pub(crate) fn docker_version(&self) -> Option<&str> {
        self.manifest.packages.get("docker.io").map(String::as_str)
    }

    /// The squashfs.
    pub(crate) fn squashfs(&self) -> PathBuf {
        self.directory.join("root.squashfs")
    }
}

/// The root file system, built if need be.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn ensure(cache: &Cache, interrupt: &Interrupt) -> Result<Root, Error> {
    let key = key();
    let directory = cache.get_or_build("root", &key, Use::Read, |directory| build(directory, interrupt))?;
    let path = directory.join("manifest.json");
    let manifest = plan::read(&path).map_err(file::error("read", &path))?;
    Ok(Root {
        directory,
        key,
        manifest,
    })
}

/// Whether it is in the cache.
pub(crate) fn is_cached(cache: &Cache) -> bool {
    cache.get("root", &key()).is_some()
}

fn key() -> Key {
    Key::of(&[
        SUITE,
        &PACKAGES.join(" "),
        &EXCLUDED.join(" "),
        &SQUASHFS_OPTIONS.join(" "),
    ])
}

fn build(directory: &Path, interrupt: &Interrupt) -> Result<(), Error> {
    let tar = directory.join("root.tar");
    let mut command = mmdebstrap(directory)
        // Debian's own initramfs is not used, and making it takes long.
        .env("INITRD", "No")
        .args(["--variant=minbase", "--mode=auto", "--format=tar"])
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .args(EXCLUDED.iter().map(|path| format!("--dpkgopt=path-exclude={path}")))
        .arg(SUITE)
        .arg(&tar);
    if let Some(mirror) = mirror::of_this_host() {
        command = command.arg(mirror);
    }
    interrupt
        .run(&command)
        .map_err(|source| Error::debootstrap("guest image", HINT, source))?;
    let squashfs = directory.join("root.squashfs");
    let compress = bound("sh")
        .args([
            "-c",
            r#"tar=$1 squashfs=$2; shift 2; exec mksquashfs - "$squashfs" "$@" <"$tar""#,
            "sh",
        ])
        .arg(&tar)
        .arg(&squashfs)
        .args(SQUASHFS_OPTIONS)
        .deadline(DEADLINE);
    interrupt.run(&compress)?;
    fs::remove_file(&tar).map_err(file::error("remove", &tar))?;
    write_manifest(directory, &squashfs)
}

fn write_manifest(directory: &Path, squashfs: &Path) -> Result<(), Error> {
    let status = Command::new("unsquashfs")
        .arg("-cat")
        .arg(squashfs)
        .arg("var/lib/dpkg/status")
        .run()?
        .stdout;
    let versions = versions(&status);
    let libc = versions.get("libc6").ok_or_else(|| Error::Lacks {
        image: "the guest image",
        what: "libc6".to_owned(),
    })?;
    let manifest = Manifest {
        libc: libc.split('-').next().unwrap_or_default().to_owned(),
        packages: versions
            .into_iter()
            .filter(|(name, _)| NAMED.contains(&name.as_str()))
            .collect(),
    };
    let path = directory.join("manifest.json");
    Ok(plan::write(&path, &manifest).map_err(file::error("write", &path))?)
}

/// Versions by package, from dpkg's status file.
fn versions(status: &str) -> BTreeMap<String, String> {
    let field = |paragraph: &str, name: &str| {
        let value = paragraph
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map(str::to_owned)
    };
    status
        .split("\n\n")
        .filter_map(|paragraph| Some((field(paragraph, "Package")?, field(paragraph, "Version")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_dpkgs_status() {
        let status = "Package: libc6\nStatus: install ok installed\nVersion: 2.41-12\nDepends: libgcc-s1\n\n\
                      Package: lvm2\nDescription: x\n Version: no\nVersion: 2.03.31-2\n";
        let versions = versions(status);
        assert_eq!(versions["libc6"], "2.41-12");
        assert_eq!(versions["lvm2"], "2.03.31-2");
    }
}
