//! Whether KVM boots guests here. That `/dev/kvm` opens, and even makes a virtual machine, proves nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cache::{self, Cache};
use crate::file;
use crate::guest::qemu::{Accelerator, CommandLine, Machine};
use crate::image::initramfs::Kernel;
use crate::interrupt::Interrupt;
use crate::plan;
use crate::progress::Progress;

/// Kernel argument: the initramfs says [`SIGN`] on the console and powers off.
const PROBE: &str = "snaptax.probe";

/// What it says.
const SIGN: &str = "snaptax: user space runs";

/// How long a guest may take to get there. With KVM it takes about one second, more beside a build.
const PATIENCE: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(30);

/// Memory of the guest that is tried.
const MEMORY_MIB: u64 = 512;

/// Why it could not be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
}

/// What was found, and under which circumstances it holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Finding {
    /// The host's boot.
    boot: String,
    /// The guest's kernel.
    kernel: PathBuf,
    /// QEMU's version.
    qemu: Option<String>,
    works: bool,
}

/// KVM if it boots this kernel, else emulation. Tried once in each boot of the host.
///
/// # Errors
/// When the guest's files cannot be written, or a signal comes.
pub(crate) fn best(
    processors: usize,
    kernel: &Kernel,
    qemu: Option<String>,
    cache: &Cache,
    progress: &Progress,
    interrupt: &Interrupt,
) -> Result<Accelerator, Error> {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accelerator::Tcg);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = cache.directory().join("kvm.json");
    let known: Option<Finding> = plan::read(&memory).ok();
    let known = known.filter(|known| known.boot == boot && known.kernel == kernel.vmlinuz && known.qemu == qemu);
    let works = match known {
        Some(known) => {
            if !known.works {
                progress.note(&format!(
                    "/dev/kvm boots no guest here, as was found earlier; emulation is used (--accel kvm insists, and \
                     without {} it is tried again)",
                    memory.display()
                ));
            }
            known.works
        }
        None => {
            let step = progress.step("kvm");
            let works = boots(processors, kernel, cache, interrupt)?;
            if works {
                step.done();
            } else {
                step.done_with("boots no guest here; emulation is used (--accel kvm insists)");
            }
            let kernel = kernel.vmlinuz.clone();
            let finding = Finding {
                boot,
                kernel,
                qemu,
                works,
            };
            plan::write(&memory, &finding).map_err(file::error("write", &memory))?;
            works
        }
    };
    Ok(if works { Accelerator::Kvm } else { Accelerator::Tcg })
}

fn boots(processors: usize, kernel: &Kernel, cache: &Cache, interrupt: &Interrupt) -> Result<bool, Error> {
    let scratch = cache.scratch()?;
    let console = scratch.path().join("console");
    fs::write(&console, "").map_err(file::error("create", &console))?;
    let machine = Machine {
        accelerator: Accelerator::Kvm,
        processors,
        memory_mib: MEMORY_MIB,
    };
    let mut qemu = CommandLine::new(&machine, kernel, &[PROBE], &[], &[], &console)
        .start(&scratch.path().join("qemu.log"))
        .map_err(file::error("start", Path::new("qemu-system-x86_64")))?;
    let end = Instant::now() + PATIENCE;
    loop {
        let ended = qemu.ended().is_ok_and(|ended| ended.is_some());
        let said = fs::read(&console).map_err(file::error("read", &console))?;
        if String::from_utf8_lossy(&said).contains(SIGN) {
            return Ok(true);
        }
        if ended || Instant::now() >= end {
            return Ok(false);
        }
        if interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initramfs_gives_the_sign_that_is_waited_for() {
        let init = include_str!("../guest/initramfs-init");
        assert!(init.contains(PROBE) && init.contains(SIGN));
    }
}
