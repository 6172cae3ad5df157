//! One line per step with its seconds; never silent for long.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a line is written on something that is no terminal, or in a step that prints itself.
const SIGN_OF_LIFE: Duration = Duration::from_millis(9_500);

/// How often a terminal's line is rewritten.
const REWRITE: Duration = Duration::from_millis(900);

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
    /// Whether others left a line without its end.
    midway: bool,
}

#[derive(Debug, Clone)]
struct Active {
    name: String,
    started: Instant,
    /// Whether it prints by itself.
    prints: bool,
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
            midway: false,
        }));
        let weak = Arc::downgrade(&state);
        thread::spawn(move || {
            while let Some(state) = weak.upgrade() {
                lock(&state).sign_of_life(Instant::now());
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
            prints: false,
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

    /// Makes room for what a step is about to print, and takes it as a sign of life.
    pub(crate) fn printing(&self, bytes: &[u8]) {
        lock(&self.0).printing(bytes, Instant::now());
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

    /// From now on the step prints by itself; it is shown as under way only while it is silent.
    pub(crate) fn prints(&self) {
        let mut state = lock(&self.progress.0);
        for step in state.active.iter_mut().filter(|step| step.name == self.name) {
            step.prints = true;
        }
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
    fn sign_of_life(&mut self, now: Instant) {
        if let Some(text) = self.due(now) {
            write(&text);
        }
    }

    /// What is to be written by now to show that something is under way.
    fn due(&mut self, now: Instant) -> Option<String> {
        let prints = self.active.iter().any(|step| step.prints);
        let pause = if self.terminal && (self.line_open || !prints) {
            REWRITE
        } else {
            SIGN_OF_LIFE
        };
        if self.active.is_empty() || now.saturating_duration_since(self.last_line) < pause {
            return None;
        }
        let steps: Vec<_> = self
            .active
            .iter()
            .map(|step| {
                let seconds = now.saturating_duration_since(step.started).as_secs();
                format!("{} {seconds} s", step.name)
            })
            .collect();
        let before = if std::mem::take(&mut self.midway) { "\n" } else { "" };
        let text = format!("   ... {}", steps.join(", "));
        self.last_line = now;
        self.line_open = self.terminal;
        Some(if self.terminal {
            format!("{before}\r\x1b[K{text}")
        } else {
            format!("{before}{text}\n")
        })
    }

    fn printing(&mut self, bytes: &[u8], now: Instant) {
        self.wipe();
        self.midway = bytes.last().is_some_and(|byte| *byte != b'\n');
        self.last_line = now;
    }

    fn line(&mut self, text: &str) {
        self.wipe();
        let before = if std::mem::take(&mut self.midway) { "\n" } else { "" };
        write(&format!("{before}{text}\n"));
        self.last_line = Instant::now();
    }

    fn wipe(&mut self) {
        if self.line_open {
            write("\r\x1b[K");
            self.line_open = false;
        }
    }

    fn forget(&mut self, name: &str) {
        self.active.retain(|step| step.name != name);
    }
}

/// A standard error that is gone is no reason to fail a run.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(terminal: bool, prints: bool, now: Instant) -> State {
        State {
            terminal,
            active: vec![Active {
                name: "run".to_owned(),
                started: now,
                prints,
            }],
            finished: Vec::new(),
            last_line: now,
            line_open: false,
            midway: false,
        }
    }

    #[test]
    fn a_step_that_prints_by_itself_is_shown_after_ten_silent_seconds() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        for terminal in [false, true] {
            let mut state = state(terminal, true, start);
            state.printing(b"test thick ... ", after(5));
            assert_eq!(state.due(after(14)), None);
            let shown = state.due(after(15)).unwrap();
            assert!(
                shown.starts_with('\n') && shown.contains("   ... run 15 s"),
                "{shown:?}"
            );
            assert_eq!(state.due(after(24)).is_some(), terminal, "a terminal's line goes on");
            state.line_open = false;
            state.printing(b"ok\n", after(24));
            assert_eq!(state.due(after(33)), None);
            assert!(!state.due(after(34)).unwrap().starts_with('\n'));
        }
    }

    #[test]
    fn a_silent_step_is_shown_each_second_on_a_terminal_and_each_ten_elsewhere() {
        let start = Instant::now();
        let second = start + Duration::from_secs(1);
        assert!(state(true, false, start).due(second).is_some());
        assert_eq!(state(false, false, start).due(second), None);
        assert!(
            state(false, false, start)
                .due(start + Duration::from_secs(10))
                .is_some()
        );
    }
}
