//! Making the table: the index before the fill, 10 000 rows per `INSERT`, as sysbench 0.4.12 does.

use std::sync::atomic::{AtomicBool, Ordering};

use mysql::Conn;
use mysql::prelude::Queryable;

use super::{Connect, Error, Oltp};

const ROWS_PER_INSERT: u64 = 10_000;

const TABLE: &str = "CREATE TABLE sbtest (id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT, \
     k integer UNSIGNED DEFAULT '0' NOT NULL, c char(120) DEFAULT '' NOT NULL, \
     pad char(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=innodb";
const INDEX: &str = "CREATE INDEX k on sbtest(k)";
const INSERT: &str = "INSERT INTO sbtest(k, c, pad) VALUES ";
const ROW: &str = "(0,' ','qqqqqqqqqqwwwwwwwwwweeeeeeeeeerrrrrrrrrrtttttttttt')";

impl Oltp {
    /// Makes the database if it is not there, the table `sbtest` and its rows, and counts them.
    ///
    /// `progress` is called after every 10 000 rows with the number of rows inserted so far; `stop` is looked
    /// at as often.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses a statement (a table of that name exists already, say),
    /// when the rows are not there afterwards, or when `stop` is set.
    pub fn prepare(&self, connect: &Connect, stop: &AtomicBool, mut progress: impl FnMut(u64)) -> Result<(), Error> {
        self.check()?;
        let mut connection = connect.open_without_database()?;
        let database = connect.database_name().replace('`', "``");
        run(&mut connection, &format!("CREATE DATABASE IF NOT EXISTS `{database}`"))?;
        run(&mut connection, &format!("USE `{database}`"))?;
        run(&mut connection, TABLE)?;
        run(&mut connection, INDEX)?;

        let rows = self.row_count();
        let mut done = 0;
        while done < rows {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let count = ROWS_PER_INSERT.min(rows - done);
            run(&mut connection, &insert(count))?;
            done += count;
            progress(done);
        }
        verify(&mut connection, rows)
    }
}

fn insert(rows: u64) -> String {
    let mut statement = String::with_capacity(INSERT.len() + (ROW.len() + 1) * rows as usize);
    statement.push_str(INSERT);
    for row in 0..rows {
        if row > 0 {
            statement.push(',');
        }
        statement.push_str(ROW);
    }
    statement
}

/// Ids must be 1 to N without gaps: reads of other ids would find nothing, and cost nothing.
fn verify(connection: &mut Conn, expected: u64) -> Result<(), Error> {
    let query = "SELECT COUNT(*), MIN(id), MAX(id) FROM sbtest";
    let found: Option<(u64, Option<u64>, Option<u64>)> =
        connection.query_first(query).map_err(|error| refused(query, &error))?;
    let (count, first, last) = found.unwrap_or_default();
    if (count, first, last) == (expected, Some(1), Some(expected)) {
        return Ok(());
    }
    Err(Error::Rows {
        expected,
        found: count,
        first,
        last,
    })
}

pub(super) fn run(connection: &mut Conn, statement: &str) -> Result<(), Error> {
    connection
        .query_drop(statement)
        .map_err(|error| refused(statement, &error))
}

pub(super) fn refused(statement: &str, error: &mysql::Error) -> Error {
    let mut shortened: String = statement.chars().take(80).collect();
    if shortened.len() < statement.len() {
        shortened.push_str("...");
    }
    Error::Prepare {
        statement: shortened,
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_insert_fits_the_smallest_default_packet() {
        // 4 MiB, MySQL 5.7's max_allowed_packet.
        assert!(insert(ROWS_PER_INSERT).len() < 4 << 20);
    }

    #[test]
    fn an_insert_names_its_rows_once_each() {
        let statement = insert(3);
        assert_eq!(statement.matches("(0,' ','qqqqqqqqqq").count(), 3);
        assert!(statement.starts_with("INSERT INTO sbtest(k, c, pad) VALUES (0,"));
        assert!(statement.ends_with("tttttttttt')"));
    }
}
