//! How much work InnoDB has put off: what a window's start is compared by.

use super::{Error, Server};
use crate::result::EngineState;

const QUERY: &str = "SHOW ENGINE INNODB STATUS";

pub(super) fn state(server: &Server) -> Result<EngineState, Error> {
    // This text has the redo log's positions and the history list's length in every series from MySQL 5.7
    // and MariaDB 10 on; the tables and status variables that have them differ in each.
    let rows: Vec<(String, String, String)> = server.query(QUERY)?;
    let text = rows.first().map_or("", |(_, _, text)| text);
    let value = |label| number_after(text, label).ok_or_else(|| missing(QUERY, label));

    let [dirty, total] = ["Innodb_buffer_pool_pages_dirty", "Innodb_buffer_pool_pages_total"];
    let status = server.status(&[dirty, total])?;
    let pages = |name| {
        status
            .get(name)
            .copied()
            .ok_or_else(|| missing("SHOW GLOBAL STATUS", name))
    };
    Ok(EngineState {
        dirty_pages: pages(dirty)?,
        pool_pages: pages(total)?,
        checkpoint_age: value("Log sequence number")?.saturating_sub(value("Last checkpoint at")?),
        history_length: value("History list length")?,
    })
}

fn missing(query: &str, missing: &'static str) -> Error {
    Error::Answer {
        query: query.into(),
        missing,
    }
}

/// The number at the end of the line that begins with this label.
fn number_after(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const MYSQL_9: &str = "LOG\n---\nLog sequence number          32318021\nLog buffer assigned up to    32318021\n\
        Last checkpoint at           32310012\nLog minimum file id is       9\n\
        TRANSACTIONS\n------------\nHistory list length 17\n";
    const MARIADB_11: &str = "Log sequence number 46983\nLog flushed up to   46983\nPages flushed up to 46983\n\
        Last checkpoint at  46967\nHistory list length 0\n";

    #[rstest]
    #[case(MYSQL_9, "Log sequence number", Some(32_318_021))]
    #[case(MYSQL_9, "Last checkpoint at", Some(32_310_012))]
    #[case(MYSQL_9, "History list length", Some(17))]
    #[case(MARIADB_11, "Last checkpoint at", Some(46_967))]
    #[case(MARIADB_11, "History list length", Some(0))]
    #[case(MARIADB_11, "Log minimum file id is", None)]
    fn numbers_are_found_by_their_label(#[case] text: &str, #[case] label: &str, #[case] number: Option<u64>) {
        assert_eq!(number_after(text, label), number);
    }
}
