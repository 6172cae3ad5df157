//! A throw-away virtual machine that runs one job.

pub(crate) mod console;
pub(crate) mod delay;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod pipe;
pub(crate) mod qemu;
pub(crate) mod returned;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use console::Follower;
use event::Event;
use host::Host;
use job::Job;
use qemu::{CommandLine, Drive, End, Machine, Port, Qemu};

use rustix::process::Signal;

use crate::file;
use crate::image::initramfs::Kernel;
use crate::interrupt::Interrupt;
use crate::progress::{Progress, Step};

/// Kernel argument: the guest gets a network card and an address.
pub(crate) const NETWORK: &str = "snaptax.network";
/// Kernel argument: Docker's disk is left clean at the end.
pub(crate) const KEEP_DOCKER: &str = "snaptax.keep-docker";

/// How often a guest whose kernel panics before its init runs is booted. Multi-threaded TCG has been seen to
/// panic in one boot of ten, while the kernel patches its own code; and QEMU, once, to abort
/// over a write to a device's registers (an assertion in `msix_table_mmio_write`).
const BOOTS: u32 = 3;

/// How often files are looked at.
const POLL: Duration = Duration::from_millis(30);

/// How much longer than the job the host waits: the guest ends a job that takes too long, in two ways, and then
/// sends what there is.
const GRACE: Duration = Duration::from_secs(150);

/// How long the guest may take to power off after it has sent everything.
const POWER_OFF: Duration = Duration::from_secs(30);

/// Lines of the console shown with an error.
const TAIL: usize = 25;

/// The step that runs the job, as the guest calls it.
const RUN: &str = "run";

/// What to boot.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    /// The virtual machine.
    pub(crate) machine: Machine,
    /// The kernel.
    pub(crate) kernel: &'a Kernel,
    /// Kernel arguments: [`NETWORK`], [`KEEP_DOCKER`].
    pub(crate) arguments: &'a [&'a str],
    /// Its disks, but the job's.
    pub(crate) drives: Vec<Drive>,
    /// What it is to do.
    pub(crate) job: &'a Job,
    /// Directory for files that nobody needs afterwards.
    pub(crate) scratch: &'a Path,
    /// Where the console's log goes.
    pub(crate) console: &'a Path,
    /// Put before the names of steps that are shown.
    pub(crate) prefix: &'a str,
    /// How long the job may take.
    pub(crate) timeout: Duration,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its exit code.
    pub(crate) code: i32,
    /// The tar it sent back.
    pub(crate) archive: PathBuf,
    /// QEMU's command line.
    pub(crate) command: String,
}

/// Why a job did not end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
    /// A step took too long.
    #[error("the guest was still at \"{step}\" after {} s and was ended\n{}", deadline.as_secs(), quoted(tail))]
    Deadline {
        /// The step.
        step: String,
        /// The time it had.
        deadline: Duration,
        /// The console's last lines.
        tail: String,
    },
    /// The guest ended by itself.
    #[error("the guest ended during \"{step}\" (QEMU ended with {status})\n{}", quoted(tail))]
    Ended {
        /// The step.
        step: String,
        /// How QEMU ended: in order, where the guest's kernel panicked.
        status: ExitStatus,
        /// QEMU's errors and the console's last lines.
        tail: String,
    },
    /// The guest gave up.
    #[error("the guest gave up: {reason}\n{}", quoted(tail))]
    Failed {
        /// Why.
        reason: String,
        /// The console's last lines.
        tail: String,
    },
}

fn quoted(tail: &str) -> String {
    tail.lines()
        .fold("  the console's last lines:".to_owned(), |text, line| {
            text + "\n  | " + line
        })
}

impl Boot<'_> {
    /// Boots the guest, runs the job, and gives what it prints to `output` at once.
    ///
    /// # Errors
    /// When the guest cannot be started, gives up, ends, or takes too long.
    pub(crate) fn run(
        &self,
        progress: &Progress,
        interrupt: &Interrupt,
        mut output: impl FnMut(&[u8]),
    ) -> Result<Outcome, Error> {
        let job = self.scratch.join("job.tar");
        self.job.write(&job, self.timeout).map_err(file::error("write", &job))?;
        let mut drives = self.drives.clone();
        drives.push(Drive::read_only("job", &job));
        let ports = [
            ("status", End::File),
            ("output", End::File),
            ("archive", End::File),
            ("host", End::Pipe),
        ];
        let ports = ports.map(|(name, end)| Port {
            name,
            end,
            path: self.scratch.join(name),
        });
        let command = CommandLine::new(
            &self.machine,
            self.kernel,
            self.arguments,
            &drives,
            &ports,
            self.console,
        );
        let [status, live, archive, host] = ports.map(|port| port.path);
        let errors = self.scratch.join("qemu.log");

        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut watch = Watch {
                boot: self,
                progress,
                interrupt,
                status: Follower::create(&status).map_err(file::error("create", &status))?,
                live: Follower::create(&live).map_err(file::error("create", &live))?,
                host: Host::create(&host, self.machine.processors).map_err(file::error("create", &host))?,
                step: progress.step(&format!("{}boot", self.prefix)),
                name: "boot".to_owned(),
                began: Instant::now(),
            };
            fs::write(self.console, "").map_err(file::error("create", self.console))?;
            let mut qemu = command
                .start(&errors)
                .map_err(file::error("start", Path::new("qemu-system-x86_64")))?;
            match watch.until_exit(&mut qemu, &mut output) {
                Ok(code) => {
                    // A disk image that is kept is complete only when QEMU has closed it.
                    if !ended_within(&mut qemu, POWER_OFF) && self.arguments.contains(&KEEP_DOCKER) {
                        return Err(Error::Deadline {
                            step: "power off".to_owned(),
                            deadline: POWER_OFF,
                            tail: console::tail(self.console, TAIL),
                        });
                    }
                    watch.step.done();
                    return Ok(Outcome {
                        code,
                        archive,
                        command: command.to_string(),
                    });
                }
                Err(Error::Ended { step, status, .. })
                    if step == "boot" && attempt < BOOTS && is_emulators(status, console::panicked(self.console)) =>
                {
                    progress.note("the guest's kernel panicked while booting, or QEMU aborted; booting again");
                }
                Err(Error::Ended { step, status, tail }) => {
                    let said = fs::read_to_string(&errors).unwrap_or_default();
                    let tail = format!("{}\n{tail}", said.trim()).trim().to_owned();
                    return Err(Error::Ended { step, status, tail });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a boot failed for the emulator's sake, so that another one may succeed. QEMU that somebody killed, or that
/// does not like its command line, is another matter.
fn is_emulators(status: ExitStatus, panicked: bool) -> bool {
    panicked || status.signal() == Some(Signal::ABORT.as_raw())
}

fn ended_within(qemu: &mut Qemu, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if matches!(qemu.ended(), Ok(Some(_))) {
            return true;
        }
        thread::sleep(POLL);
    }
    false
}

struct Watch<'a> {
    boot: &'a Boot<'a>,
    progress: &'a Progress,
    interrupt: &'a Interrupt,
    status: Follower,
    live: Follower,
    host: Host,
    step: Step,
    name: String,
    began: Instant,
}

impl Watch<'_> {
    fn until_exit(&mut self, qemu: &mut Qemu, output: &mut impl FnMut(&[u8])) -> Result<i32, Error> {
        loop {
            // Asked before the files are read: what it wrote before its end is then still seen.
            let ended = qemu
                .ended()
                .map_err(file::error("wait for", Path::new("qemu-system-x86_64")))?;
            let lines = self
                .status
                .lines()
                .map_err(file::error("read", Path::new("the status port")))?;
            let printed = self
                .live
                .bytes()
                .map_err(file::error("read", Path::new("the output port")))?;
            if !printed.is_empty() {
                self.progress.printing(&printed);
                output(&printed);
            }
            for line in lines {
                match line.parse() {
                    Ok(Event::Step(name)) => self.next(name),
                    Ok(Event::Warning(text)) => self.progress.note(&format!("guest: {text}")),
                    Ok(Event::Exit(code)) => return Ok(code),
                    Ok(Event::Failed(reason)) => {
                        let tail = console::tail(self.boot.console, TAIL);
                        return Err(Error::Failed { reason, tail });
                    }
                    Err(line) => self.progress.note(&format!("guest: {line}")),
                }
            }
            if let Some(status) = ended {
                return Err(Error::Ended {
                    step: self.name.clone(),
                    status,
                    tail: console::tail(self.boot.console, TAIL),
                });
            }
            if self.interrupt.is_set() {
                return Err(Error::Interrupted);
            }
            self.check_deadline()?;
            self.host.tell(qemu.process());
            thread::sleep(POLL);
        }
    }

    fn next(&mut self, name: String) {
        let shown = format!("{}{name}", self.boot.prefix);
        let next = self.progress.step(&shown);
        let silent = self.name == RUN && self.boot.prefix.is_empty();
        let before = std::mem::replace(&mut self.step, next);
        if silent {
            before.done_silently();
        } else {
            before.done();
        }
        if name == RUN && self.boot.prefix.is_empty() {
            self.step.prints();
        }
        self.name = name;
        self.began = Instant::now();
    }

    fn check_deadline(&self) -> Result<(), Error> {
        let deadline = match self.name.as_str() {
            "boot" | "devices" => Duration::from_secs(120),
            "docker" | "results" => Duration::from_secs(180),
            _ => self.boot.timeout + GRACE,
        };
        if self.began.elapsed() < deadline {
            return Ok(());
        }
        Err(Error::Deadline {
            step: self.name.clone(),
            deadline,
            tail: console::tail(self.boot.console, TAIL),
        })
    }
}

/// Opens the tar of an outcome.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn open_archive(outcome: &Outcome) -> Result<File, Error> {
    Ok(File::open(&outcome.archive).map_err(file::error("open", &outcome.archive))?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::in_order_after_a_panic(0, true, true)]
    #[case::in_order(0, false, false)]
    #[case::aborted(6, false, true)]
    #[case::killed(9, false, false)]
    #[case::of_a_wrong_command_line(256, false, false)]
    fn another_boot_is_for_what_the_emulator_did(#[case] wait: i32, #[case] panicked: bool, #[case] again: bool) {
        assert_eq!(is_emulators(ExitStatus::from_raw(wait), panicked), again);
    }
}
