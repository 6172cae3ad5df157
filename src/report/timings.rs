//! `timings.json`: how long each step of a run took.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::json;

/// Name of the file in its directory.
pub const FILE_NAME: &str = "timings.json";

/// When the user's command started, in seconds since the epoch; the harness hands it over.
pub const STARTED: &str = "SNAPTAX_STARTED";

/// Seconds since the user's command started, or, where nobody tells, since this was first asked.
#[must_use]
pub fn since_start() -> f64 {
    static START: LazyLock<f64> = LazyLock::new(|| {
        let handed_over = std::env::var(STARTED).ok().and_then(|text| text.parse().ok());
        handed_over.unwrap_or_else(now)
    });
    let start = *START;
    (now() - start).max(0.0)
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

static STEPS: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Adds the seconds of a step, or of another experiment's same step, to what this process took.
pub fn add(step: &str, seconds: f64) {
    *steps().entry(step.to_owned()).or_default() += seconds;
}

/// Notes when something happened first, in seconds since the user's command.
pub fn mark(event: &str) {
    steps().entry(event.to_owned()).or_insert_with(since_start);
}

/// Writes what this process took to the file in this directory, in place of an earlier run's.
///
/// # Errors
/// When the file cannot be written.
pub fn write(directory: &Path) -> Result<(), json::Error> {
    json::replace(&directory.join(FILE_NAME), &*steps())
}

fn steps() -> MutexGuard<'static, BTreeMap<String, f64>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The steps in a file; none when it is missing or of another form.
#[must_use]
pub fn read(path: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_several_experiments_is_summed_and_an_event_is_the_first() {
        let directory = tempfile::tempdir().unwrap();
        add("test: server", 20.0);
        add("test: server", 21.0);
        mark("test: measured");
        let first = steps()["test: measured"];
        mark("test: measured");
        write(directory.path()).unwrap();
        let all = read(&directory.path().join(FILE_NAME));
        assert_eq!((all["test: server"], all["test: measured"]), (41.0, first));
    }
}
