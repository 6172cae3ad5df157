//! Signals that end a run: a flag that every wait polls.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use snaptax::command::{self, Command, Output};

const POLL: Duration = Duration::from_millis(20);

/// Whether a signal asked the run to end, or another part of it gave up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

/// Why a supervised program gave no output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The program failed.
    #[error(transparent)]
    Command(#[from] command::Error),
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
        Ok(Self {
            signal: flag,
            stop: Arc::default(),
        })
    }

    /// A handle that can be stopped without a signal; this one is not stopped by it.
    pub(crate) fn stoppable(&self) -> Self {
        Self {
            signal: Arc::clone(&self.signal),
            stop: Arc::default(),
        }
    }

    /// Ends what waits on this handle and its clones.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether a signal came, or the handle was stopped.
    pub(crate) fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Runs a long program to its end, or until a signal comes.
    ///
    /// # Errors
    /// When the program fails or a signal comes.
    pub(crate) fn run(&self, command: &Command) -> Result<Output, Error> {
        command.run_unless(|| self.is_set()).map_err(|error| match error {
            command::Error::Stopped { .. } => Error::Interrupted,
            error => Error::Command(error),
        })
    }

    /// Runs to its end, whatever signals come, a program that must not be cut short.
    ///
    /// # Errors
    /// When the program fails, or a signal came meanwhile.
    pub(crate) fn outlast(&self, command: &Command) -> Result<Output, Error> {
        let (ended, told) = (AtomicBool::new(false), format!("   {command} is left to end"));
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) && !self.is_set() {
                    thread::sleep(POLL);
                }
                if !ended.load(Ordering::Relaxed) {
                    let _ = writeln!(io::stderr(), "{told}");
                }
            });
            let result = command.run();
            ended.store(true, Ordering::Relaxed);
            result
        });
        match self.is_set() {
            true => Err(Error::Interrupted),
            false => result.map_err(Error::Command),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_stop_ends_the_wait_for_a_program_and_only_its_own() {
        let interrupt = Interrupt::default();
        let part = interrupt.stoppable();
        let other = part.clone();
        let stopper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            other.stop();
        });
        let started = Instant::now();
        let result = part.run(&Command::new("sleep").arg("5"));
        assert!(matches!(result, Err(Error::Interrupted)) && started.elapsed() < Duration::from_secs(4));
        stopper.join().unwrap();
        assert!(part.is_set() && !interrupt.is_set());
    }

    #[test]
    fn what_must_not_be_cut_short_is_waited_for() {
        let interrupt = Interrupt::default();
        interrupt.stop();
        let directory = tempfile::tempdir().unwrap();
        let write = Command::new("sh").args(["-c", "sleep 0.1; echo done >file"]);
        let result = interrupt.outlast(&write.directory(directory.path()));
        assert!(matches!(result, Err(Error::Interrupted)));
        assert!(directory.path().join("file").exists());
    }
}
