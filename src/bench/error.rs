use std::fmt;
use std::io;
use std::time::Duration;

use super::band::Outside;
use crate::{host, report, server, settings, storage, workload};

/// Why an experiment could not be measured.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot be used.
    #[error("{}", lines(.0))]
    Settings(Vec<settings::Error>),
    /// This machine cannot run experiments.
    #[error(transparent)]
    Host(#[from] host::Error),
    /// Storage.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The server.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// The load.
    #[error(transparent)]
    Workload(#[from] workload::Error),
    /// Results could not be written.
    #[error(transparent)]
    Report(#[from] report::json::Error),
    /// SNAPTAX_KEEP is set, and one experiment of this process was kept.
    #[error("SNAPTAX_KEEP keeps one experiment at a time: name one, with --exact, or unset it")]
    Kept,
    /// A half-width that cannot be aimed at.
    #[error("half_width({0}) is not a number of 0.005 or more: 0.05 is about 5 %")]
    HalfWidth(f64),
    /// The pilot, and the least that further rigs take, do not fit into the budget.
    #[error(
        "{windows} windows of {} s take at least {minutes} minutes, and the budget is {}; set SNAPTAX_BUDGET to \
         {minutes} or more (and, in a guest, --timeout to three times as much, for a second measurement, and 30 more), \
         or SNAPTAX_TIME to less{}",
        length.as_secs(), budget.as_secs() / 60, if *rigs > 1 { ", or SNAPTAX_RIGS to fewer" } else { "" }
    )]
    Budget {
        /// Windows of the pilot and of the other rigs.
        windows: usize,
        /// Rigs that they are on.
        rigs: usize,
        /// Length of each.
        length: Duration,
        /// Minutes needed.
        minutes: u64,
        /// What there is.
        budget: Duration,
    },
    /// A further rig has another disk than the first.
    #[error("its disk is another than the first rig's: {difference}; see what else uses it, and run again")]
    AnotherDisk {
        /// What became different.
        difference: String,
    },
    /// The server did not come back to what it had put off in the warm-up.
    #[error(
        "round {round}: the server has not settled within {} s of load without the difference: {outside}; windows that \
         begin differently cannot be compared. Its page cleaners or purge threads do not keep up: use fewer threads \
         (SNAPTAX_THREADS), a larger buffer pool (SNAPTAX_BUFFER_POOL), or a faster disk (cargo experiments --iops)",
        deadline.as_secs()
    )]
    Unsettled {
        /// The round that was to begin.
        round: usize,
        /// How long it was waited for.
        deadline: Duration,
        /// What is outside its band.
        outside: Outside,
    },
    /// The server did not come to a steady pace under load.
    #[error(
        "after {} s of load the server is not at a steady pace: {drift} from the {} s before; use fewer threads \
         (SNAPTAX_THREADS), a faster disk (cargo experiments --iops), or a smaller redo log (innodb_redo_log_capacity in \
         SNAPTAX_MYSQLD_OPTIONS), which fills up sooner",
        waited.as_secs(), stretch.as_secs()
    )]
    NotSteady {
        /// How long it was waited for.
        waited: Duration,
        /// The stretches of load that are compared.
        stretch: Duration,
        /// What moved.
        drift: Outside,
    },
    /// Signals cannot be caught, so that nothing would be undone after one.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
    /// SIGINT, SIGTERM or SIGHUP came.
    #[error("interrupted")]
    Interrupted,
    /// The run failed, and cleaning up after it failed too.
    #[error("{run}\nand cleaning up failed as well: {clean_up}")]
    CleanUp {
        /// Why the run failed.
        run: Box<Error>,
        /// Why cleaning up failed.
        clean_up: Box<Error>,
    },
}

impl Error {
    /// The run's own error first, should cleaning up have failed as well.
    pub(super) fn with_clean_up(self, clean_up: Result<(), Self>) -> Self {
        match clean_up {
            Ok(()) => self,
            Err(clean_up) => Self::CleanUp {
                run: Box::new(self),
                clean_up: Box::new(clean_up),
            },
        }
    }
}

impl fmt::Debug for Error {
    /// As `Display`: libtest shows the error of a test with `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn lines(errors: &[settings::Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
