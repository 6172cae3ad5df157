//! Gives experiments a machine: builds images once, boots a throw-away guest, and runs the test binary in it.

mod accelerator;
mod bound;
mod cache;
mod cargo;
mod cli;
mod exit;
mod experiments;
mod file;
mod guest;
mod image;
mod interrupt;
mod libc;
mod packages;
mod plan;
mod progress;
mod requirements;
mod run_directory;
mod runner;

use std::io::{self, Write};
use std::process::ExitCode;

use cli::{Cli, Command, Run};
use exit::Exit;
use interrupt::Interrupt;

fn main() -> ExitCode {
    let cli = Cli::from_env();
    let interrupt = match Interrupt::catch() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&format!("cannot catch signals: {error}"), Exit::Environment),
    };
    match cli.command {
        Some(Command::Guest { binary, args }) => match runner::run(&binary, &args, &interrupt) {
            Ok(code) => u8::try_from(code).unwrap_or(u8::MAX).into(),
            Err(error) => failed(&error.to_string(), Exit::Environment),
        },
        Some(Command::Bound { parent, program }) => match bound::supervise(parent, &program, &interrupt) {
            Ok(code) => code,
            Err(error) => failed(&error.to_string(), Exit::Environment),
        },
        Some(Command::ServerArchive { cache }) => match experiments::server_archive(cache.as_deref(), &interrupt) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error.to_string(), error.exit()),
        },
        Some(Command::Kills { count }) => {
            let variables = [("SNAPTAX_KILLS", count.to_string())];
            experiments(&Run::kills(count), &variables, &interrupt)
        }
        None => experiments(&cli.run, &[], &interrupt),
    }
}

fn experiments(run: &Run, variables: &[(&str, String)], interrupt: &Interrupt) -> ExitCode {
    match experiments::run(run, variables, interrupt) {
        Ok(exit) => exit.into(),
        Err(error) => failed(&error.to_string(), error.exit()),
    }
}

fn failed(message: &str, exit: Exit) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {message}");
    exit.into()
}
