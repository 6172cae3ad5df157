//! One line per step with its seconds; never silent for long.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a line is written on something that is no terminal, while steps are under way.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Shows steps on standard error.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    terminal: bool,
    active: Vec<Active>,
    finished: Vec<(String, f64)>,
    last_line: Instant,
    /// Whether the terminal's current line is one to be rewritten.
    line_open: bool,
}

#[derive(Debug, Clone)]
struct Active {
    name: String,
    started: Instant,
}

/// A step under way; dropped without [`Step::done`] it counts as failed.
#[derive(Debug)]
pub(crate) struct Step {
    progress: Progress,
    name: String,
    started: Instant,
    ended: bool,
}

impl Progress {
    /// Starts showing progress; a thread shows signs of life until every handle is gone.
    pub(crate) fn new() -> Self {
        let state = Arc::new(Mutex::new(State {
            terminal: io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            active: Vec::new(),
            finished: Vec::new(),
            last_line: Instant::now(),
            line_open: false,
        }));
        let weak = Arc::downgrade(&state);
        thread::spawn(move || {
            while let Some(state) = weak.upgrade() {
                lock(&state).sign_of_life();
                drop(state);
                thread::sleep(Duration::from_millis(250));
            }
        });
        Self(state)
    }

    /// Begins a step.
    pub(crate) fn step(&self, name: &str) -> Step {
        let started = Instant::now();
        let mut state = lock(&self.0);
        state.active.push(Active {
            name: name.to_owned(),
            started,
        });
        state.last_line = started;
        drop(state);
        Step {
            progress: self.clone(),
            name: name.to_owned(),
            started,
            ended: false,
        }
    }

    /// Writes a line of its own.
    pub(crate) fn note(&self, text: &str) {
        lock(&self.0).line(text);
    }

    /// Makes room for what others write to the terminal: wipes the rewritten line.
    pub(crate) fn clear(&self) {
        lock(&self.0).wipe();
    }

    /// Seconds of every step done so far, in order.
    pub(crate) fn timings(&self) -> Vec<(String, f64)> {
        lock(&self.0).finished.clone()
    }
}

impl Step {
    /// Ends the step well and returns its seconds.
    pub(crate) fn done(mut self) -> f64 {
        self.end("")
    }

    /// Ends the step well, with a word on how: `cached`.
    pub(crate) fn done_with(mut self, remark: &str) -> f64 {
        self.end(&format!("  {remark}"))
    }

    /// Ends the step without a line, when others write about it.
    pub(crate) fn done_silently(mut self) -> f64 {
        self.ended = true;
        let seconds = self.started.elapsed().as_secs_f64();
        let mut state = lock(&self.progress.0);
        state.forget(&self.name);
        state.finished.push((self.name.clone(), seconds));
        seconds
    }

    /// Stops showing the step as under way although it is: its own output is the sign of life.
    pub(crate) fn hide(&self) {
        lock(&self.progress.0).forget(&self.name);
    }

    fn end(&mut self, remark: &str) -> f64 {
        self.ended = true;
        let seconds = self.started.elapsed().as_secs_f64();
        let mut state = lock(&self.progress.0);
        state.forget(&self.name);
        state.finished.push((self.name.clone(), seconds));
        state.line(&format!("   {:<16} ... {seconds:5.1} s{remark}", self.name));
        seconds
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = lock(&self.progress.0);
            state.forget(&self.name);
            let seconds = self.started.elapsed().as_secs_f64();
            state.line(&format!("   {:<16} ... {seconds:5.1} s  failed", self.name));
        }
    }
}

impl State {
    fn sign_of_life(&mut self) {
        if self.active.is_empty() {
            return;
        }
        let due = if self.terminal {
            Duration::from_millis(900)
        } else {
            SIGN_OF_LIFE - Duration::from_millis(500)
        };
        if self.last_line.elapsed() < due {
            return;
        }
        let steps: Vec<_> = self
            .active
            .iter()
            .map(|step| format!("{} {} s", step.name, step.started.elapsed().as_secs()))
            .collect();
        let text = format!("   ... {}", steps.join(", "));
        if self.terminal {
            self.write(&format!("\r\x1b[K{text}"));
            self.line_open = true;
        } else {
            self.write(&format!("{text}\n"));
        }
        self.last_line = Instant::now();
    }

    fn line(&mut self, text: &str) {
        self.wipe();
        self.write(&format!("{text}\n"));
        self.last_line = Instant::now();
    }

    fn wipe(&mut self) {
        if self.line_open {
            self.write("\r\x1b[K");
            self.line_open = false;
        }
    }

    fn forget(&mut self, name: &str) {
        self.active.retain(|step| step.name != name);
    }

    /// A standard error that is gone is no reason to fail a run.
    #[expect(clippy::unused_self, reason = "writes go through the state's lock")]
    fn write(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes());
        let _ = stderr.flush();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
