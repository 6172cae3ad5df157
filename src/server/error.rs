use std::io;
use std::path::PathBuf;

use testcontainers::TestcontainersError;
use testcontainers::core::error::ClientError;

/// Why a server could not be started, asked or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket's path is too long for a Unix socket.
    #[error("{} has {length} bytes; a Unix socket's path may have 107: use a shorter directory", path.display())]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The data directory or the socket's directory cannot be made.
    #[error("cannot make {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Docker cannot be reached, or refused something.
    #[error("cannot {doing}: {message}")]
    Docker {
        /// What was to be done.
        doing: &'static str,
        /// What Docker or its client said, and what may help.
        message: String,
    },
    /// The image is neither here nor to be had from a registry.
    #[error(
        "there is no image {image} here, and it cannot be pulled: {message}\n\
         set SNAPTAX_IMAGE to one that `docker images` lists, or that can be pulled"
    )]
    Image {
        /// Its name.
        image: String,
        /// What the registry's client said.
        message: String,
    },
    /// The server ended before it answered.
    #[error(
        "the server ended with status {code} before it answered ({free} in the data directory); its log ends:\n{log}"
    )]
    NotStarted {
        /// Its exit status.
        code: i64,
        /// Space left for its data.
        free: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs but does not answer.
    #[error("the server did not answer within {seconds} s ({source}); its log ends:\n{log}")]
    NotReady {
        /// How long it had.
        seconds: u64,
        /// What came instead of an answer.
        source: mysql::Error,
        /// The last lines of its log.
        log: String,
    },
    /// The stop flag was set.
    #[error("interrupted")]
    Interrupted,
    /// The server ended, but not in order.
    #[error("the server ended with status {code}{}; its log ends:\n{log}", killed(*code))]
    Exited {
        /// Its exit status.
        code: i64,
        /// The last lines of its log.
        log: String,
    },
    /// The server did not end when told to, and was killed.
    #[error("the server did not shut down within {seconds} s and was killed; its log ends:\n{log}")]
    Stop {
        /// How long it had.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// The server did not answer a question about itself.
    #[error("`{query}`: {source}")]
    Query {
        /// The query.
        query: String,
        /// What came instead of an answer.
        source: mysql::Error,
    },
    /// A variable cannot be what differs between two sides.
    #[error("server variable {name}: {problem}")]
    Variable {
        /// Its name.
        name: String,
        /// Why, and what can be done.
        problem: String,
    },
    /// The server's answer is not of the form it should have.
    #[error("`{query}` does not tell {missing}")]
    Answer {
        /// The query.
        query: String,
        /// What is missing.
        missing: &'static str,
    },
}

fn killed(code: i64) -> &'static str {
    match code {
        137 => " (killed, perhaps for want of memory)",
        _ => "",
    }
}

impl Error {
    /// Whether the server, or the connection to it, is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Query {
                source: mysql::Error::IoError(_) | mysql::Error::DriverError(_) | mysql::Error::CodecError(_),
                ..
            }
        )
    }

    pub(super) fn docker(doing: &'static str, error: TestcontainersError) -> Self {
        Self::Docker {
            doing,
            message: chain(&error),
        }
    }

    pub(super) fn image(image: &str, message: &str) -> Self {
        Self::Image {
            image: image.into(),
            message: message.into(),
        }
    }

    /// Why a container of this image could not be started.
    pub(super) fn starting(image: &str, error: TestcontainersError) -> Self {
        match error {
            TestcontainersError::Client(ClientError::PullImage { err, .. }) => Self::image(image, &chain(&err)),
            TestcontainersError::Client(ClientError::Init(_) | ClientError::Configuration(_)) => Self::Docker {
                doing: "reach Docker",
                message: format!(
                    "{}\nstart dockerd, or set DOCKER_HOST to where it listens",
                    chain(&error)
                ),
            },
            error => Self::docker("start the server's container", error),
        }
    }
}

/// An error with its causes, as far as each says something new.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
