//! Programs that end when the harness does, with all that they started, however it ends.
//!
//! The kernel can tell a process of its parent's death, but not that process's children, and some programs pass a signal
//! on to none of theirs. So a process of this very program stands between: it hears of the harness's end, and ends its
//! process group.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpgrp, getppid, kill_process_group};
use snaptax::command;

use crate::interrupt::Interrupt;

/// The subcommand that is the process in between.
const SUPERVISOR: &str = "__bound";

/// How long a program and its children may take to tidy up.
const GRACE: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(50);

/// A command that ends, with all its children, when this process does: with SIGTERM, and a little later with SIGKILL.
pub(crate) fn bound(program: &str) -> command::Command {
    let own = std::process::id().to_string();
    match env::current_exe() {
        Ok(supervisor) => command::Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(supervisor)
            .args([SUPERVISOR, &own, program]),
        Err(_) => command::Command::new("setpriv").args(["--pdeathsig", "TERM", "--", program]),
    }
}

/// Runs a program for the process `parent` in this process's group, which ends with it.
///
/// # Errors
/// When the program cannot be started or waited for.
pub(crate) fn supervise(parent: u32, program: &[OsString], interrupt: &Interrupt) -> io::Result<ExitCode> {
    let [program, args @ ..] = program else {
        return Err(io::Error::other("no program"));
    };
    let is_alone = || getppid().is_none_or(|now| now.as_raw_nonzero().get().cast_unsigned() != parent);
    // It may have ended before it could be said that its end is to be told.
    if is_alone() {
        return Ok(ExitCode::FAILURE);
    }
    // Should this process, too, be killed, the program at least is.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(args)
        .stdin(Stdio::null())
        .spawn()?;
    let mut told = None;
    loop {
        if let Some(status) = child.try_wait()? {
            // As a shell has it.
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return Ok(u8::try_from(code).unwrap_or(u8::MAX).into());
        }
        match told {
            None if interrupt.is_set() || is_alone() => {
                told = Some(Instant::now());
                kill_process_group(getpgrp(), Signal::TERM)?;
            }
            Some(told) if told.elapsed() > GRACE => kill_process_group(getpgrp(), Signal::KILL)?,
            _ => {}
        }
        thread::sleep(POLL);
    }
}
