//! What `cargo experiments` tells the runner that cargo starts for it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::guest::qemu::{Machine, Throttle};

/// Names the file with the plan, for the one cargo call.
pub(crate) const PLAN: &str = "SNAPTAX_PLAN";

/// Everything a runner needs beside the test binary.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The cache.
    pub(crate) cache: PathBuf,
    /// Where results go.
    pub(crate) run: PathBuf,
    /// The workspace under test.
    pub(crate) workspace: PathBuf,
    /// The virtual machine.
    pub(crate) machine: Machine,
    /// The measured disk's limit.
    pub(crate) throttle: Throttle,
    /// Minutes the test binary may take.
    pub(crate) timeout: u64,
    /// The kernel.
    pub(crate) vmlinuz: PathBuf,
    /// The initramfs.
    pub(crate) initramfs: PathBuf,
    /// The root file system.
    pub(crate) root: PathBuf,
    /// The root file system's C library.
    pub(crate) libc: String,
    /// Docker's disk.
    pub(crate) docker: PathBuf,
    /// The server image on it.
    pub(crate) image: String,
    /// The measured disk.
    pub(crate) measured: PathBuf,
    /// When the user's command began, in seconds since 1970.
    pub(crate) started: f64,
    /// Versions of the machine's parts.
    pub(crate) versions: BTreeMap<String, String>,
}

/// How a runner ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The test binary's exit code; none when the guest failed.
    pub(crate) code: Option<i32>,
    /// Whether a signal ended it.
    pub(crate) interrupted: bool,
    /// Seconds of the guest's steps.
    pub(crate) timings: Vec<(String, f64)>,
}

/// The file with the plan in a run's directory.
pub(crate) fn plan_file(run: &Path) -> PathBuf {
    run.join("plan.json")
}

/// The file with the outcome in a run's directory.
pub(crate) fn outcome_file(run: &Path) -> PathBuf {
    run.join("outcome.json")
}

/// Reads a JSON file.
///
/// # Errors
/// When it cannot be read, or is not what it should be.
pub(crate) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// Writes a JSON file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    fs::write(path, serde_json::to_string_pretty(value)? + "\n")
}
