use std::io;
use std::time::Duration;

/// Why the load could not be prepared, started or kept up.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The profile cannot be run as it is.
    #[error("{problem}")]
    Profile {
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// No connection to the server.
    #[error("cannot connect to the server at {server}: {message}")]
    Connect {
        /// Its address.
        server: String,
        /// What the client library said.
        message: String,
    },
    /// A statement failed while the table was made or checked.
    #[error("cannot prepare the table: `{statement}`: {message}")]
    Prepare {
        /// The statement, shortened.
        statement: String,
        /// What the server said.
        message: String,
    },
    /// The table does not hold the rows that it should.
    #[error(
        "table sbtest has {found} rows, ids {} to {}, where {expected} were inserted, ids 1 to {expected}",
        first.unwrap_or(0), last.unwrap_or(0)
    )]
    Rows {
        /// Rows inserted.
        expected: u64,
        /// Rows there.
        found: u64,
        /// The smallest id, when there is one.
        first: Option<u64>,
        /// The largest id, when there is one.
        last: Option<u64>,
    },
    /// A load thread's statement failed, which ends the load: everything but a deadlock does.
    #[error("load thread {thread}: `{statement}`: {message}")]
    Statement {
        /// The thread, from 0.
        thread: u32,
        /// The statement, with `?` for its parameters.
        statement: &'static str,
        /// The server's error number; `None` when the connection broke.
        code: Option<u16>,
        /// What the server or the client library said.
        message: String,
    },
    /// A load thread could not be started, or panicked.
    #[error("load thread {thread}: {message}")]
    Thread {
        /// The thread, from 0.
        thread: u32,
        /// What happened.
        message: String,
    },
    /// The load had already ended, after an error reported before.
    #[error("the load has ended")]
    Ended,
    /// The stop flag was set.
    #[error("interrupted")]
    Interrupted,
    /// A thread did not come to its transaction's end.
    #[error("{threads} load threads still wait for the server after {} s", waited.as_secs())]
    Hung {
        /// How many.
        threads: usize,
        /// How long they were waited for.
        waited: Duration,
    },
}

impl Error {
    pub(super) fn statement(thread: u32, statement: &'static str, error: &mysql::Error) -> Self {
        Self::Statement {
            thread,
            statement,
            code: code(error),
            message: error.to_string(),
        }
    }

    pub(super) fn thread(thread: u32, error: &io::Error) -> Self {
        Self::Thread {
            thread,
            message: error.to_string(),
        }
    }
}

/// The server's error number, when it was the server that refused.
pub(super) fn code(error: &mysql::Error) -> Option<u16> {
    match error {
        mysql::Error::MySqlError(error) => Some(error.code),
        _ => None,
    }
}
