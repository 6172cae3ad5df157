use snaptax::report::json;
use snaptax::text::printable;

use crate::exit::Exit;
use crate::{accelerator, cache, cargo, file, guest, image, interrupt, packages, requirements};

/// Why experiments were not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The host lacks something.
    #[error(transparent)]
    Requirements(requirements::Error),
    /// cargo failed.
    #[error(transparent)]
    Cargo(cargo::Error),
    /// The cache failed.
    #[error(transparent)]
    Cache(cache::Error),
    /// An image could not be built.
    #[error(transparent)]
    Image(image::Error),
    /// It could not be found out whether KVM works.
    #[error(transparent)]
    Accelerator(accelerator::Error),
    /// No experiment matches.
    #[error(
        "no experiment matches{}\n  hint: `cargo experiments --list` names them all",
        shown(filters)
    )]
    NoMatch {
        /// The filters, or other arguments.
        filters: Vec<String>,
    },
    /// A setting of the library's that a test would refuse, after a whole boot.
    #[error("{}", problems.join("\n"))]
    Settings {
        /// What is wrong with each.
        problems: Vec<String>,
    },
    /// A variable that means something only where no guest is between.
    #[error(
        "{name} is for tests that run on this machine; in the guest it is set by `cargo experiments`\n  \
         hint: unset it; results are in target/snaptax/latest"
    )]
    Native {
        /// Its name.
        name: &'static str,
    },
    /// The history cannot be read or written.
    #[error(transparent)]
    History(json::Error),
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
}

fn shown(filters: &[String]) -> String {
    filters.iter().map(|filter| format!(" {}", printable(filter))).collect()
}

impl Error {
    /// The exit code for it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Cargo(cargo::Error::NoPackage { .. } | cargo::Error::NoTarget { .. } | cargo::Error::List(_))
            | Self::NoMatch { .. }
            | Self::Settings { .. }
            | Self::Native { .. } => Exit::Usage,
            Self::Interrupted => Exit::Interrupted,
            _ => Exit::Environment,
        }
    }
}

impl From<requirements::Error> for Error {
    fn from(error: requirements::Error) -> Self {
        match error {
            requirements::Error::Packages(packages::Error::Supervise(interrupt::Error::Interrupted)) => {
                Self::Interrupted
            }
            other => Self::Requirements(other),
        }
    }
}

impl From<accelerator::Error> for Error {
    fn from(error: accelerator::Error) -> Self {
        match error {
            accelerator::Error::Interrupted | accelerator::Error::Cache(cache::Error::Interrupted) => Self::Interrupted,
            other => Self::Accelerator(other),
        }
    }
}

impl From<cache::Error> for Error {
    fn from(error: cache::Error) -> Self {
        match error {
            cache::Error::Interrupted => Self::Interrupted,
            other => Self::Cache(other),
        }
    }
}

impl From<cargo::Error> for Error {
    fn from(error: cargo::Error) -> Self {
        match error {
            cargo::Error::Supervise(interrupt::Error::Interrupted) => Self::Interrupted,
            other => Self::Cargo(other),
        }
    }
}

impl From<image::Error> for Error {
    fn from(error: image::Error) -> Self {
        match error {
            image::Error::Supervise(interrupt::Error::Interrupted)
            | image::Error::Guest(guest::Error::Interrupted)
            | image::Error::Cache(cache::Error::Interrupted) => Self::Interrupted,
            other => Self::Image(other),
        }
    }
}
