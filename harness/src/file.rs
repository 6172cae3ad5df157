//! Reading and writing that failed.

use std::io;
use std::path::{Path, PathBuf};

/// What was tried, on what, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub(crate) struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Attaches what was tried to an I/O error.
pub(crate) fn error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error { action, path, source }
}
