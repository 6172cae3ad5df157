//! MySQL or MariaDB in a container, with its data in a directory of the host and its socket beside it.
//!
//! The container has no network: clients come through the Unix socket. The image's own entrypoint is not
//! used, so that official images and one made from bare packages behave alike: an empty data directory is
//! initialised, with a `root` that needs no password, and `mysqld` then runs as root without any option
//! file. What it runs with is in [`MysqldOptions`], and what took effect in [`Server::description`].
//!
//! Docker is found as testcontainers finds it: `DOCKER_HOST`, or the default socket.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use snaptax::server::{Server, ServerOptions};
//!
//! let options = ServerOptions::new("mysql:8.4", "/mnt/origin/data", "/run/snaptax");
//! let server = Server::start(options, &AtomicBool::new(false))?;
//! println!("{} at {}", server.description()?.version, server.socket().display());
//! server.stop()?;
//! # Ok::<(), snaptax::server::Error>(())
//! ```

mod description;
mod engine;
mod error;
mod image;
mod options;
mod variable;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, OptsBuilder};
use testcontainers::Container;
use testcontainers::runners::SyncRunner;

pub use error::Error;
pub use options::{MysqldOptions, ServerOptions};
pub use variable::Variable;

use crate::result::EngineState;
use image::{Mysqld, SOCKET};

/// How long a server may take from its container's start to its first answers: initialising a data
/// directory takes half a minute on an emulated CPU.
pub const START_DEADLINE: Duration = Duration::from_secs(300);

/// How long a server may take to shut down: every dirty page goes to a volume that may be slow.
pub const STOP_DEADLINE: Duration = Duration::from_secs(300);

/// How long Docker gives a server that cannot be asked, before it kills it; its client waits for 120 s.
const DOCKER_STOP_DEADLINE: Duration = Duration::from_secs(110);

/// How long the server may take to answer a question about itself.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// What a Unix socket's path may be long, without the final zero.
const SOCKET_PATH_MAX: usize = 107;

const POLL: Duration = Duration::from_millis(200);

/// How much of a server's log goes into an error.
const LOG_LINES: usize = 20;

/// A running server. [`Server::stop`] shuts it down in order; dropped without it, it is killed.
pub struct Server {
    // Declared before the container, so that it is closed first.
    connection: Mutex<Conn>,
    container: Container<Mysqld>,
    image: String,
    socket: PathBuf,
}

impl Server {
    /// Starts a server, and waits until it answers or `stop` is set.
    ///
    /// The image is pulled when it is not there, within 30 min. A data directory that holds a server's data is used as it
    /// is; one whose initialisation was cut short is initialised anew.
    ///
    /// # Errors
    /// When a directory or the socket's path will not do, Docker cannot be reached, the image is not to be
    /// had, the server ends or does not answer within [`START_DEADLINE`], or `stop` is set.
    pub fn start(options: ServerOptions, stop: &AtomicBool) -> Result<Self, Error> {
        let socket = socket_path(&options.socket_directory)?;
        for directory in [&options.data_directory, &options.socket_directory] {
            fs::create_dir_all(directory).map_err(|source| Error::Directory {
                path: directory.clone(),
                source,
            })?;
        }
        image::ensure(&options.image, stop)?;
        let name = image::container_name(&options.name);
        let container = image::request(&options, &name).start().map_err(|error| {
            image::remove_container(&name);
            Error::starting(&options.image, error)
        })?;
        let connection = wait_until_ready(&container, &socket, &options.data_directory, stop)?;
        Ok(Self {
            connection: Mutex::new(connection),
            container,
            image: options.image,
            socket,
        })
    }

    /// The server's Unix socket on the host.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The container's identifier.
    #[must_use]
    pub fn container_id(&self) -> &str {
        self.container.id()
    }

    /// Whether the server's process still runs. It is never restarted.
    ///
    /// # Errors
    /// When Docker cannot be asked.
    pub fn is_running(&self) -> Result<bool, Error> {
        Ok(self.exit_code()?.is_none())
    }

    /// The exit status of the server's process, once it has ended. 137 is a kill, by the kernel when memory ran
    /// out for example.
    ///
    /// # Errors
    /// When Docker cannot be asked.
    pub fn exit_code(&self) -> Result<Option<i64>, Error> {
        exit_code(&self.container)
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        log_tail(&self.container)
    }

    /// Counters of `SHOW GLOBAL STATUS`; names that this server does not know, or that hold no number, are
    /// left out.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn status(&self, names: &[&str]) -> Result<BTreeMap<String, u64>, Error> {
        let rows: Vec<(String, String)> = self.query("SHOW GLOBAL STATUS")?;
        let wanted = rows.into_iter().filter(|(name, _)| names.contains(&name.as_str()));
        let numbers = wanted.filter_map(|(name, value)| Some((name, value.parse().ok()?)));
        Ok(numbers.collect())
    }

    /// Variables that bear on what a snapshot costs, as in [`Server::description`].
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn variables(&self) -> Result<BTreeMap<String, String>, Error> {
        description::variables(self)
    }

    /// How much work InnoDB has put off.
    ///
    /// # Errors
    /// When the server does not answer, or not as expected.
    pub fn engine_state(&self) -> Result<EngineState, Error> {
        engine::state(self)
    }

    /// The server as it goes into a result.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn description(&self) -> Result<crate::result::Server, Error> {
        description::describe(self)
    }

    /// Shuts the server down, and removes its container.
    ///
    /// # Errors
    /// When it does not end within [`STOP_DEADLINE`], or with another exit status than 0: what lies in the data
    /// directory then needs recovery. The container is gone afterwards all the same.
    pub fn stop(self) -> Result<(), Error> {
        // Docker's own stop ends in a kill, and its client gives up waiting before `STOP_DEADLINE`.
        if self.ask_to_shut_down().is_err() {
            let seconds = i32::try_from(DOCKER_STOP_DEADLINE.as_secs()).ok();
            self.container
                .stop_with_timeout(seconds)
                .map_err(|error| Error::docker("stop the server's container", error))?;
        }
        let end = Instant::now() + STOP_DEADLINE;
        let code = loop {
            if let Some(code) = self.exit_code()? {
                break code;
            }
            if Instant::now() >= end {
                return Err(Error::Stop {
                    seconds: STOP_DEADLINE.as_secs(),
                    log: self.log_tail(),
                });
            }
            thread::sleep(POLL);
        };
        if code != 0 {
            return Err(Error::Exited {
                code,
                log: self.log_tail(),
            });
        }
        self.container
            .rm()
            .map_err(|error| Error::docker("remove the server's container", error))
    }

    /// On a new connection when the kept one is gone: the server closes what is idle for its `wait_timeout`.
    fn ask_to_shut_down(&self) -> Result<(), mysql::Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .query_drop("SHUTDOWN")
            .or_else(|_| first_answers(&self.socket)?.query_drop("SHUTDOWN"))
    }

    fn query<T: FromRow>(&self, query: &str) -> Result<Vec<T>, Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.query(query).map_err(|source| Error::Query {
            query: query.into(),
            source,
        })
    }
}

fn socket_path(directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(SOCKET);
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        return Err(Error::SocketPath { path, length });
    }
    Ok(path)
}

/// Waits for two answers in a row, from a container that still runs after them.
fn wait_until_ready(
    container: &Container<Mysqld>,
    socket: &Path,
    data: &Path,
    stop: &AtomicBool,
) -> Result<Conn, Error> {
    let end = Instant::now() + START_DEADLINE;
    loop {
        let answer = first_answers(socket);
        if let Some(code) = exit_code(container)? {
            return Err(Error::NotStarted {
                code,
                free: free_space(data),
                log: log_tail(container),
            });
        }
        match answer {
            Ok(connection) => return Ok(connection),
            Err(source) if Instant::now() >= end => {
                return Err(Error::NotReady {
                    seconds: START_DEADLINE.as_secs(),
                    source,
                    log: log_tail(container),
                });
            }
            Err(_) if stop.load(Ordering::Relaxed) => return Err(Error::Interrupted),
            Err(_) => thread::sleep(POLL),
        }
    }
}

fn first_answers(socket: &Path) -> Result<Conn, mysql::Error> {
    let options = OptsBuilder::new()
        .socket(Some(socket.to_string_lossy()))
        .user(Some("root"))
        .read_timeout(Some(ANSWER_DEADLINE))
        .write_timeout(Some(ANSWER_DEADLINE));
    let mut connection = Conn::new(options)?;
    connection.query_drop("SELECT 1")?;
    connection.query_drop("SELECT 1")?;
    Ok(connection)
}

fn exit_code(container: &Container<Mysqld>) -> Result<Option<i64>, Error> {
    container
        .exit_code()
        .map_err(|error| Error::docker("inspect the server's container", error))
}

fn log_tail(container: &Container<Mysqld>) -> String {
    let streams = [container.stdout_to_vec(), container.stderr_to_vec()];
    let log: Vec<u8> = streams.into_iter().flatten().flatten().collect();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn free_space(directory: &Path) -> String {
    match rustix::fs::statvfs(directory) {
        Ok(stat) => format!("{} MiB free", (stat.f_bavail * stat.f_frsize) >> 20),
        Err(error) => format!("free space unknown: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_of_107_bytes_is_taken_and_one_more_is_refused() {
        let directory = |length: usize| PathBuf::from(format!("/{}", "d".repeat(length - SOCKET.len() - 2)));
        assert!(socket_path(&directory(107)).is_ok());
        let error = socket_path(&directory(108)).unwrap_err().to_string();
        assert!(error.contains("108 bytes") && error.contains("107"), "{error}");
    }
}
