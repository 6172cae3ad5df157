//! A server made from Debian packages, as a tar: for guests, and for Docker on the host, where no registry is
//! reachable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snaptax::command::Command;

use super::{Error, mirror, mmdebstrap};
use crate::cache::{Cache, Key, Use};
use crate::file;
use crate::interrupt::Interrupt;
use crate::plan;

const SUITE: &str = "unstable";
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libc-bin",
    "mysql-client-core",
    "mysql-server-core",
    "sed",
];
const EXCLUDED: &[&str] = &["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"];

const HINT: &str = "the server is made from Debian unstable where its default image cannot be pulled; \
                    SNAPTAX_IMAGE names another one";

/// A tar in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Archive {
    /// The tar, compressed with zstd.
    pub(crate) path: PathBuf,
    /// Which packages are in it.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    source: String,
}

/// The tar, made if need be.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn ensure(cache: &Cache, interrupt: &Interrupt) -> Result<Archive, Error> {
    let directory = cache.get_or_build("mysql-archive", &key(), Use::Read, |directory| {
        build(directory, interrupt)
    })?;
    let path = directory.join("manifest.json");
    let manifest: Manifest = plan::read(&path).map_err(file::error("read", &path))?;
    Ok(Archive {
        path: tar(&directory),
        source: manifest.source,
    })
}

/// What the tar depends on.
pub(crate) fn key() -> Key {
    Key::of(&[SUITE, &PACKAGES.join(" "), &EXCLUDED.join(" ")])
}

fn tar(directory: &Path) -> PathBuf {
    directory.join("mysql.tar.zst")
}

fn build(directory: &Path, interrupt: &Interrupt) -> Result<(), Error> {
    let mut command = mmdebstrap(directory)
        .args(["--variant=extract", "--mode=auto", "--format=tar"])
        .arg(format!("--include={}", PACKAGES.join(",")))
        // A mirror's copy of a suite that changes daily is often a little old.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .args(EXCLUDED.iter().map(|path| format!("--dpkgopt=path-exclude={path}")))
        .arg(r#"--extract-hook=ls "$1/var/cache/apt/archives" >&2"#)
        .arg(SUITE)
        .arg(tar(directory));
    if let Some(mirror) = mirror::of_this_host() {
        command = command.arg(mirror);
    }
    let output = interrupt
        .run(&command)
        .map_err(|source| Error::debootstrap("server image", HINT, source))?;
    let version = server_package(&output.stderr).unwrap_or("of unknown version");
    let manifest = Manifest {
        source: format!("Debian packages mysql-server-core {version}"),
    };
    let path = directory.join("manifest.json");
    Ok(plan::write(&path, &manifest).map_err(file::error("write", &path))?)
}

impl Archive {
    /// Writes the tar without compression.
    ///
    /// # Errors
    /// When zstd fails.
    pub(crate) fn decompress(&self, to: &Path) -> Result<(), Error> {
        Command::new("zstd")
            .args(["--decompress", "--quiet", "-o"])
            .arg(to)
            .arg(&self.path)
            .run()?;
        Ok(())
    }
}

/// `9.7.4-1`, from a listing of package files.
fn server_package(listing: &str) -> Option<&str> {
    listing
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("mysql-server-core")?
                .rsplit_once('_')
                .map(|(rest, _)| rest)
        })
        .and_then(|rest| rest.rsplit_once('_'))
        .map(|(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_version_is_read_from_its_package_file() {
        let listing = "lock\nmysql-client-core_9.7.4-2_amd64.deb\nmysql-server-core_9.7.4-2_amd64.deb\n";
        assert_eq!(server_package(listing), Some("9.7.4-2"));
        assert_eq!(server_package("I: success\n"), None);
    }
}
