//! What goes into a result about the server.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::{Error, Server};
use crate::command::Command;

/// The label that says where an image was made from.
const SOURCE_LABEL: &str = "org.snaptax.source";

/// Variables that bear on what a snapshot costs.
const VARIABLES: &[&str] = &[
    "binlog_format",
    "flush_time",
    "innodb_adaptive_flushing",
    "innodb_adaptive_hash_index",
    "innodb_buffer_pool_size",
    "innodb_change_buffering",
    "innodb_data_file_buffering",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_flush_neighbors",
    "innodb_io_capacity",
    "innodb_io_capacity_max",
    "innodb_log_buffer_size",
    "innodb_log_file_buffering",
    "innodb_log_file_size",
    "innodb_log_files_in_group",
    "innodb_max_dirty_pages_pct",
    "innodb_page_cleaners",
    "innodb_page_size",
    "innodb_purge_threads",
    "innodb_read_io_threads",
    "innodb_redo_log_capacity",
    "innodb_use_native_aio",
    "innodb_write_io_threads",
    "log_bin",
    "performance_schema",
    "sync_binlog",
    "transaction_isolation",
    "tx_isolation",
];

pub(super) fn describe(server: &Server) -> Result<crate::result::Server, Error> {
    let query = "SELECT VERSION()";
    let rows: Vec<String> = server.query(query)?;
    let version = rows.into_iter().next().ok_or(Error::Answer {
        query: query.into(),
        missing: "the version",
    })?;
    Ok(crate::result::Server {
        series: series(&version),
        version,
        image: server.image.clone(),
        image_source: image_source(&server.image),
        variables: variables(server)?,
    })
}

pub(super) fn variables(server: &Server) -> Result<BTreeMap<String, String>, Error> {
    let all: Vec<(String, String)> = server.query("SHOW GLOBAL VARIABLES")?;
    let wanted = all.into_iter().filter(|(name, _)| VARIABLES.contains(&name.as_str()));
    Ok(wanted.collect())
}

/// `mysql` or `mariadb`, with the major version.
fn series(version: &str) -> String {
    let product = if version.contains("MariaDB") {
        "mariadb"
    } else {
        "mysql"
    };
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    format!("{product}{major}")
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageInspect {
    id: String,
    repo_digests: Option<Vec<String>>,
    config: Option<ImageConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageConfig {
    labels: Option<BTreeMap<String, String>>,
}

/// What the image's label says, or its digest in its registry, or its local identifier. Asked with Docker's
/// command-line tool, since testcontainers does not tell; without the tool it is not known.
fn image_source(image: &str) -> String {
    let inspect = Command::new("docker").args(["image", "inspect", "--format", "{{json .}}", image]);
    let found = inspect.run().ok();
    let found = found.and_then(|output| serde_json::from_str(&output.stdout).ok());
    found.map_or_else(|| "not known".into(), ImageInspect::source)
}

impl ImageInspect {
    fn source(self) -> String {
        let labels = self.config.and_then(|config| config.labels).unwrap_or_default();
        if let Some(source) = labels.get(SOURCE_LABEL) {
            return source.clone();
        }
        let digest = self.repo_digests.unwrap_or_default().into_iter().next();
        digest.unwrap_or_else(|| format!("local image {}", self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("9.7.4-2", "mysql9")]
    #[case("8.4.6", "mysql8")]
    #[case("5.7.44-log", "mysql5")]
    #[case("11.8.3-MariaDB-ubu2404-log", "mariadb11")]
    fn a_series_is_product_and_major_version(#[case] version: &str, #[case] expected: &str) {
        assert_eq!(series(version), expected);
    }

    #[rstest]
    #[case(
        r#"{"Id":"sha256:1","RepoDigests":[],"Config":{"Labels":{"org.snaptax.source":"Debian packages"}}}"#,
        "Debian packages"
    )]
    #[case(
        r#"{"Id":"sha256:1","RepoDigests":["mysql@sha256:2"],"Config":{"Labels":null}}"#,
        "mysql@sha256:2"
    )]
    #[case(r#"{"Id":"sha256:1"}"#, "local image sha256:1")]
    fn an_images_source_is_its_label_then_its_digest(#[case] json: &str, #[case] source: &str) {
        let image: ImageInspect = serde_json::from_str(json).unwrap();
        assert_eq!(image.source(), source);
    }
}
