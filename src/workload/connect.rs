use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mysql::{Conn, OptsBuilder};

use super::Error;

/// How long a server may take to answer a question about the table.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// How to reach a server: a Unix socket or an address, and whom to log in as.
///
/// ```
/// use snaptax::workload::Connect;
///
/// let connect = Connect::tcp("127.0.0.1", 3306).user("sbtest").password("secret");
/// assert_eq!(connect.to_string(), "127.0.0.1:3306");
/// ```
#[derive(Clone)]
pub struct Connect {
    address: Address,
    user: String,
    password: String,
    database: String,
}

#[derive(Clone)]
enum Address {
    Socket(PathBuf),
    Tcp(String, u16),
}

impl Connect {
    /// Through a Unix socket, as `root` without a password, with the database `sbtest`.
    pub fn socket(path: impl Into<PathBuf>) -> Self {
        Self::new(Address::Socket(path.into()))
    }

    /// Through TCP, as `root` without a password, with the database `sbtest`.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Address::Tcp(host.into(), port))
    }

    fn new(address: Address) -> Self {
        Self {
            address,
            user: "root".into(),
            password: String::new(),
            database: "sbtest".into(),
        }
    }

    /// Logs in as this user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Logs in with this password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = password.into();
        self
    }

    /// Keeps the table in this database.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        self
    }

    pub(super) fn database_name(&self) -> &str {
        &self.database
    }

    /// A connection with the database selected.
    pub(super) fn open(&self) -> Result<Conn, Error> {
        self.connect(Some(&self.database), None)
    }

    /// The same, for questions that are answered at once or not at all.
    pub(super) fn open_to_ask(&self) -> Result<Conn, Error> {
        self.connect(Some(&self.database), Some(ANSWER_DEADLINE))
    }

    /// A connection with no database selected, for when it may not exist yet.
    pub(super) fn open_without_database(&self) -> Result<Conn, Error> {
        self.connect(None, None)
    }

    fn connect(&self, database: Option<&str>, deadline: Option<Duration>) -> Result<Conn, Error> {
        let options = OptsBuilder::new()
            .user(Some(&self.user))
            .pass(Some(&self.password))
            .db_name(database)
            .read_timeout(deadline)
            .write_timeout(deadline)
            .prefer_socket(false);
        let options = match &self.address {
            Address::Socket(path) => options.socket(Some(path.to_string_lossy())),
            Address::Tcp(host, port) => options.ip_or_hostname(Some(host)).tcp_port(*port),
        };
        Conn::new(options).map_err(|error| Error::Connect {
            server: self.to_string(),
            message: error.to_string(),
        })
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Socket(path) => write!(f, "{}", path.display()),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Debug for Connect {
    /// Everything but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{self}/{}", self.user, self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_shown() {
        let connect = Connect::tcp("db", 3306).user("sbtest").password("secret");
        assert_eq!(format!("{connect:?}"), "sbtest@db:3306/sbtest");
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let error = Connect::socket("/nowhere/mysqld.sock").open().unwrap_err().to_string();
        assert!(error.contains("/nowhere/mysqld.sock"), "{error}");
    }
}
