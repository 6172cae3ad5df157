use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::report::timings;

/// Longest silence while a step is running.
const HEARTBEAT: Duration = Duration::from_secs(8);

/// Runs one step, says so, and keeps its time.
pub(super) fn step<T, E>(name: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let began = Instant::now();
    let (done, wait) = mpsc::channel::<()>();
    let result = thread::scope(|scope| {
        scope.spawn(move || {
            while wait.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                say(&format!("{name} ... {:.0} s", began.elapsed().as_secs_f64()));
            }
        });
        let result = work();
        drop(done);
        result
    });
    let seconds = began.elapsed().as_secs_f64();
    if result.is_ok() {
        say(&format!("{name}: {seconds:.1} s"));
    }
    timings::add(name, seconds);
    result
}

/// One line of progress; a closed stream is no reason to fail.
pub(super) fn say(line: &str) {
    drop(writeln!(io::stderr(), "   {line}"));
}
