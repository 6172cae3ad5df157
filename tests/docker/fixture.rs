use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, OptsBuilder};
use snaptax::server::{Server, ServerOptions};
use snaptax::settings::{Settings, Size};
use snaptax::workload::Connect;
use tempfile::TempDir;

/// Directories for a server, as on a volume: with a `lost+found` beside the data.
pub(crate) struct Rig {
    directory: TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let work_dir = Settings::from_env().unwrap().work_dir;
        let directory = TempDir::with_prefix_in("snaptax-test-", work_dir).unwrap();
        fs::create_dir_all(directory.path().join("volume/lost+found")).unwrap();
        Self { directory }
    }

    pub(crate) fn data_directory(&self) -> PathBuf {
        self.directory.path().join("volume/data")
    }

    pub(crate) fn options(&self) -> ServerOptions {
        let image = Settings::from_env().unwrap().image;
        let mut options = ServerOptions::new(image, self.data_directory(), self.directory.path().join("run"));
        options.mysqld.redo_capacity = Size::mib(32);
        options.labels.insert("org.snaptax.run".into(), "docker-test".into());
        options
    }

    pub(crate) fn start(&self) -> Server {
        Server::start(self.options(), &running()).unwrap()
    }
}

pub(crate) fn connect(server: &Server) -> Connect {
    Connect::socket(server.socket())
}

/// A connection of the test's own, beside those under test.
pub(crate) struct Observer(Conn);

impl Observer {
    pub(crate) fn new(server: &Server) -> Self {
        let options = OptsBuilder::new().socket(server.socket().to_str()).user(Some("root"));
        Self(Conn::new(options).unwrap())
    }

    pub(crate) fn run(&mut self, statement: &str) {
        self.attempt(statement).unwrap();
    }

    pub(crate) fn attempt(&mut self, statement: &str) -> Result<(), mysql::Error> {
        self.0.query_drop(statement)
    }

    pub(crate) fn rows<T: FromRow>(&mut self, query: &str) -> Vec<T> {
        self.0.query(query).unwrap()
    }

    pub(crate) fn row<T: FromRow>(&mut self, query: &str) -> T {
        self.rows(query).pop().unwrap()
    }
}

/// A stop flag that nobody sets.
pub(crate) fn running() -> AtomicBool {
    AtomicBool::new(false)
}
