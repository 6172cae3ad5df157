use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::settings::Size;

/// Which server to start, and where.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The image, as in `docker run`.
    pub image: String,
    /// The data directory on the host: a sub-directory of the volume, since a filesystem's `lost+found` is in
    /// the way of an initialisation. Made when it is not there.
    pub data_directory: PathBuf,
    /// The socket's directory on the host. Made when it is not there.
    pub socket_directory: PathBuf,
    /// What the server runs with.
    pub mysqld: MysqldOptions,
    /// What the container's name begins with; something that nothing else has is added.
    pub name: String,
    /// Labels of the container, to find it by when its owner was killed.
    pub labels: BTreeMap<String, String>,
}

impl ServerOptions {
    /// A server with default options and no labels.
    pub fn new(
        image: impl Into<String>,
        data_directory: impl Into<PathBuf>,
        socket_directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            image: image.into(),
            data_directory: data_directory.into(),
            socket_directory: socket_directory.into(),
            mysqld: MysqldOptions::default(),
            name: "snaptax".into(),
            labels: BTreeMap::new(),
        }
    }
}

/// What the server runs with.
///
/// Production durability: the binary log on (it grows in the data directory), `sync_binlog=1` and
/// `innodb_flush_log_at_trx_commit=1`. `innodb_flush_method=O_DIRECT`, so that pages are not cached twice;
/// `performance_schema=OFF`, which spares a small machine its memory; no X protocol; and no dump of the buffer
/// pool, so that a server starts with a cold one every time. `extra` has the last word on all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqldOptions {
    /// `innodb_buffer_pool_size`, 5 MiB or more.
    pub buffer_pool: Size,
    /// Space for the redo log, 8 MiB or more: `innodb_redo_log_capacity`, or in servers without it
    /// `innodb_log_file_size` of all files together.
    pub redo_capacity: Size,
    /// Further options, as in `sync_binlog=0`, with or without leading dashes.
    pub extra: Vec<String>,
}

impl Default for MysqldOptions {
    /// The sizes of MySQL's own defaults.
    fn default() -> Self {
        Self {
            buffer_pool: Size::mib(128),
            redo_capacity: Size::mib(100),
            extra: Vec::new(),
        }
    }
}

impl MysqldOptions {
    /// As arguments. `loose_` marks what only some servers know.
    pub(super) fn arguments(&self) -> Vec<String> {
        let sizes = [
            format!("innodb_buffer_pool_size={}", self.buffer_pool.as_bytes()),
            format!("loose_innodb_redo_log_capacity={}", self.redo_capacity.as_bytes()),
        ];
        FIXED
            .iter()
            .map(|option| (*option).to_owned())
            .chain(sizes)
            .chain(self.extra.iter().cloned())
            .map(|option| format!("--{}", option.trim_start_matches('-')))
            .collect()
    }
}

const FIXED: &[&str] = &[
    "server_id=1",
    "log_bin=binlog",
    "sync_binlog=1",
    "innodb_flush_log_at_trx_commit=1",
    "innodb_flush_method=O_DIRECT",
    "innodb_buffer_pool_dump_at_shutdown=OFF",
    "innodb_buffer_pool_load_at_startup=OFF",
    "performance_schema=OFF",
    "loose_mysqlx=OFF",
    "skip_networking",
    // No one but a Unix socket's peer connects: keys, which an emulated processor is slow to find, serve nothing.
    "loose_auto_generate_certs=OFF",
    "loose_caching_sha2_password_auto_generate_rsa_keys=OFF",
    "loose_sha256_password_auto_generate_rsa_keys=OFF",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_come_last_so_that_they_win() {
        let options = MysqldOptions {
            extra: vec!["sync_binlog=0".into(), "--innodb_doublewrite=OFF".into()],
            ..MysqldOptions::default()
        };
        let arguments = options.arguments();
        let last: Vec<&str> = arguments[arguments.len() - 2..].iter().map(String::as_str).collect();
        assert_eq!(last, ["--sync_binlog=0", "--innodb_doublewrite=OFF"]);
        assert!(arguments.contains(&"--sync_binlog=1".to_owned()));
    }

    #[test]
    fn sizes_are_given_in_bytes() {
        let options = MysqldOptions {
            buffer_pool: Size::mib(24),
            redo_capacity: Size::mib(8),
            extra: Vec::new(),
        };
        let arguments = options.arguments();
        assert!(arguments.contains(&"--innodb_buffer_pool_size=25165824".to_owned()));
        assert!(arguments.contains(&"--loose_innodb_redo_log_capacity=8388608".to_owned()));
    }
}
