//! The server's image, on a disk with Docker's data, made in a guest of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snaptax::settings::Size;

use super::initramfs::Kernel;
use super::root::Root;
use super::{Error, archive, disk};
use crate::cache::{Cache, Key, Use};
use crate::file;
use crate::guest::job::{Job, quoted};
use crate::guest::qemu::{Drive, Format, Machine};
use crate::guest::{Boot, KEEP_DOCKER, NETWORK, Outcome};
use crate::interrupt::Interrupt;
use crate::plan;
use crate::progress::Progress;

/// The image used when none is asked for.
const DEFAULT: &str = "mysql:8.4";
/// The name of the image that is made from Debian packages where the default cannot be pulled.
const DEBIAN: &str = "snaptax/mysql:debian";

/// Where programs are in it, as in images that a Dockerfile made.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Docker's disk grows with what is written; this is only its limit.
const DISK: Size = Size::gib(12);

const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Exit code of the job when the image cannot be pulled.
const NOT_PULLED: i32 = 10;

/// A disk with a server image.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Docker's disk.
    pub(crate) disk: PathBuf,
    /// What is on it.
    pub(crate) manifest: Manifest,
}

/// What is on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The image's name, for `docker run`.
    pub(crate) image: String,
    /// Where it came from.
    pub(crate) source: String,
}

/// What is needed to make a disk.
#[derive(Debug)]
pub(crate) struct Workshop<'a> {
    /// The cache.
    pub(crate) cache: &'a Cache,
    /// Ends what takes long.
    pub(crate) interrupt: &'a Interrupt,
    /// Shows what takes long.
    pub(crate) progress: &'a Progress,
    /// The virtual machine to prepare it in.
    pub(crate) machine: Machine,
    /// Its kernel.
    pub(crate) kernel: &'a Kernel,
    /// Its root.
    pub(crate) root: &'a Root,
    /// Where the console's log goes.
    pub(crate) console: &'a Path,
}

/// The disk with this server image, or with the default one: pulled, or else made from Debian packages.
///
/// # Errors
/// When the image asked for cannot be had.
pub(crate) fn ensure(asked: Option<&str>, workshop: &Workshop<'_>) -> Result<Server, Error> {
    let directory = match asked {
        Some(DEBIAN) => workshop.debian()?,
        Some(name) => workshop.pulled(name)?,
        None => match cached(None, workshop.cache) {
            Some(directory) => directory,
            None => workshop.default_image()?,
        },
    };
    let path = directory.join("manifest.json");
    let manifest = plan::read(&path).map_err(file::error("read", &path))?;
    Ok(Server {
        disk: directory.join("docker.qcow2"),
        manifest,
    })
}

/// The directory in the cache, if the image is there.
pub(crate) fn cached(asked: Option<&str>, cache: &Cache) -> Option<PathBuf> {
    let find = |name: &str| {
        let (entry, key) = entry(name);
        cache.get(&entry, &key)
    };
    let (default, key) = entry(DEFAULT);
    match asked {
        Some(name) => find(name),
        // Damaged, it is made anew, and not replaced by another server.
        None if cache.has(&default, &key) => find(DEFAULT),
        None => find(DEBIAN),
    }
}

fn entry(image: &str) -> (String, Key) {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let name = format!("server-{}", image.chars().map(plain).collect::<String>());
    let recipe = match image {
        DEBIAN => Key::of(&[image, archive::key().as_str(), &import_script("")]),
        _ => Key::of(&[image, &pull_script(image)]),
    };
    (name, recipe)
}

fn pull_script(image: &str) -> String {
    let image = quoted(image.as_ref());
    format!(
        "timeout 1500 docker pull {} || exit {NOT_PULLED}\n",
        String::from_utf8_lossy(&image)
    )
}

fn import_script(source: &str) -> String {
    format!(
        "for serial in /sys/block/vd*/serial; do\n\
             [ \"$(cat \"$serial\")\" = import ] && disk=${{serial%/serial}}\n\
         done\n\
         docker import -c 'LABEL org.snaptax.source=\"{source}\"' -c 'ENV PATH={PATH}' - {DEBIAN} <\"/dev/${{disk##*/}}\"\n"
    )
}

impl Workshop<'_> {
    fn default_image(&self) -> Result<PathBuf, Error> {
        match self.pulled(DEFAULT) {
            Err(Error::Pull { said, .. }) => {
                let last = said.trim().lines().last().unwrap_or_default().to_owned();
                self.progress.note(&format!(
                    "cannot pull {DEFAULT} ({last}); making {DEBIAN} from Debian packages instead"
                ));
                self.debian()
            }
            other => other,
        }
    }

    fn pulled(&self, image: &str) -> Result<PathBuf, Error> {
        let (name, key) = entry(image);
        self.cache.get_or_build(&name, &key, Use::Read, |directory| {
            let (outcome, said) = self.boot(directory, pull_script(image), None)?;
            if outcome.code != 0 {
                return Err(Error::Pull {
                    name: image.to_owned(),
                    said,
                });
            }
            write_manifest(directory, image, "registry")
        })
    }

    fn debian(&self) -> Result<PathBuf, Error> {
        let (name, key) = entry(DEBIAN);
        self.cache.get_or_build(&name, &key, Use::Read, |directory| {
            let step = self.progress.step("server packages");
            let archive = archive::ensure(self.cache, self.interrupt)?;
            step.done();
            let scratch = self.cache.scratch()?;
            let tar = scratch.path().join("mysql.tar");
            archive.decompress(&tar)?;
            let (outcome, said) = self.boot(directory, import_script(&archive.source), Some(&tar))?;
            if outcome.code != 0 {
                return Err(Error::Import { said });
            }
            write_manifest(directory, DEBIAN, &archive.source)
        })
    }

    fn boot(&self, directory: &Path, script: String, import: Option<&Path>) -> Result<(Outcome, String), Error> {
        let _alone = self.cache.alone()?;
        let scratch = self.cache.scratch()?;
        let docker = directory.join("docker.qcow2");
        disk::growing(&docker, DISK)?;
        let mut drives = vec![
            Drive::read_only("root", self.root.squashfs()),
            Drive {
                serial: "docker",
                path: docker,
                format: Format::Qcow2,
                read_only: false,
                throttle: None,
            },
        ];
        drives.extend(import.map(|tar| Drive::read_only("import", tar)));
        let job = Job {
            script: script.into_bytes(),
            daemon_env: proxies(),
            ..Job::default()
        };
        let arguments: &[&str] = if import.is_some() {
            &[KEEP_DOCKER]
        } else {
            &[KEEP_DOCKER, NETWORK]
        };
        let boot = Boot {
            machine: self.machine,
            kernel: self.kernel,
            arguments,
            drives,
            job: &job,
            scratch: scratch.path(),
            console: self.console,
            prefix: "server: ",
            timeout: DEADLINE,
        };
        let mut said = Vec::new();
        let outcome = boot.run(self.progress, self.interrupt, |bytes| said.extend_from_slice(bytes))?;
        Ok((outcome, String::from_utf8_lossy(&said).into_owned()))
    }
}

/// Addresses of proxies, which Docker's daemon needs where the host does.
fn proxies() -> Vec<(OsString, OsString)> {
    let is_proxy = |name: &OsString| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        ["http_proxy", "https_proxy", "no_proxy"].contains(&name.as_str())
    };
    std::env::vars_os().filter(|(name, _)| is_proxy(name)).collect()
}

fn write_manifest(directory: &Path, image: &str, source: &str) -> Result<(), Error> {
    let manifest = Manifest {
        image: image.to_owned(),
        source: source.to_owned(),
    };
    let path = directory.join("manifest.json");
    Ok(plan::write(&path, &manifest).map_err(file::error("write", &path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_name_is_one_word_to_the_shell_that_pulls_it() {
        let script = pull_script("it's; exit");
        assert!(
            script.starts_with(r"timeout 1500 docker pull 'it'\''s; exit' ||"),
            "{script}"
        );
    }

    #[test]
    fn images_have_entries_of_their_own() {
        let names = ["mysql:8.4", "mysql:5.7", DEBIAN].map(|image| entry(image).0);
        assert_eq!(
            names,
            ["server-mysql_8.4", "server-mysql_5.7", "server-snaptax_mysql_debian"]
        );
    }
}
