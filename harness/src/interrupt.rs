//! Signals that end a run: a flag that every wait polls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use snaptax::command::{self, Command, Output};

/// Whether a signal asked the run to end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// Why a supervised program gave no output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The program failed.
    #[error(transparent)]
    Command(#[from] command::Error),
    /// The thread that waits for the program could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl Interrupt {
    /// Sets the flag on INT, TERM and HUP from now on.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub(crate) fn catch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs a long program to its end, or until a signal comes.
    ///
    /// # Errors
    /// When the program fails or a signal comes.
    pub(crate) fn run(&self, command: Command) -> Result<Output, Error> {
        let waiter = thread::Builder::new()
            .spawn(move || command.run())
            .map_err(Error::Thread)?;
        while !waiter.is_finished() {
            if self.is_set() {
                return Err(Error::Interrupted);
            }
            thread::sleep(Duration::from_millis(20));
        }
        waiter
            .join()
            .map_err(|_| Error::Thread(io::Error::other("it panicked")))?
            .map_err(Error::Command)
    }
}

/// A command that ends, with SIGTERM, when this process does.
pub(crate) fn bound(program: &str) -> Command {
    Command::new("setpriv").args(["--pdeathsig", "TERM", "--", program])
}
