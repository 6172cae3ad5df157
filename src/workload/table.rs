//! The table as it is, and made older than it is.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql::Conn;
use mysql::prelude::Queryable;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::index::sample;

use super::ids::Generator;
use super::prepare::{refused, run};
use super::{Connect, Error, Oltp};

const LOOK: &str = "SELECT (SELECT CAST(CREATE_TIME AS CHAR) FROM information_schema.TABLES \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'sbtest'), MIN(id), MAX(id) FROM sbtest";

/// One row in so many is changed by ageing: with some sixty rows on a page, nearly nine pages of ten are.
const AGED: u64 = 30;

/// No more rows are changed than this, which a disk of 400 requests per second takes some minutes for.
const MOST_AGED: u64 = 30_000;

/// Rows of one transaction.
const BATCH: usize = 300;

/// A table's identity: it changes when the table is rebuilt or loses its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// When it was made, as the server tells it.
    pub created: String,
    /// Its smallest id.
    pub first: Option<u64>,
    /// Its largest id.
    pub last: Option<u64>,
}

impl Table {
    /// Looks at the table `sbtest`, which takes no longer than two point selects.
    ///
    /// # Errors
    /// When the server cannot be reached, or the table is not there.
    pub fn at(connect: &Connect) -> Result<Self, Error> {
        let mut connection = connect.open_to_ask()?;
        let row = connection.query_first(LOOK).map_err(|error| refused(LOOK, &error))?;
        let (created, first, last): (Option<String>, _, _) = row.unwrap_or_default();
        Ok(Self {
            created: created.unwrap_or_default(),
            first,
            last,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<u64>| id.map_or("none".to_owned(), |id| id.to_string());
        write!(f, "ids {} to {}, made {}", id(self.first), id(self.last), self.created)
    }
}

impl Oltp {
    /// Ages the table, as a load would over hours: one row in thirty, but no more than 30 000, drawn evenly, has its
    /// index column or its content updated, or is deleted and inserted anew, in transactions of 300 rows. They go through
    /// the table in the order of its ids, which spares a small buffer pool most of the reading.
    ///
    /// A table fresh from [`Oltp::prepare`] has full pages in the order of their ids, an index of one value, and undo
    /// logs that have yet to be allocated; what is measured on it drifts while that changes.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses a statement, or when `stop` is set, which is looked at between
    /// transactions.
    pub fn age(&self, connect: &Connect, seed: u64, stop: &AtomicBool) -> Result<(), Error> {
        self.check()?;
        let mut connection = connect.open()?;
        let mut draw = Generator::new(seed, self.row_count(), self.distribution());
        let rows = self.row_count();
        let mut ids = sample(
            &mut StdRng::seed_from_u64(seed),
            rows as usize,
            (rows / AGED).min(MOST_AGED) as usize,
        )
        .into_iter()
        .map(|row| row as u64 + 1)
        .collect::<Vec<_>>();
        ids.sort_unstable();
        for batch in ids.chunks(BATCH) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            change(&mut connection, batch, &mut draw)?;
        }
        Ok(())
    }
}

/// A third of the rows in each of the three ways in which the load changes rows.
fn change(connection: &mut Conn, batch: &[u64], draw: &mut Generator) -> Result<(), Error> {
    let mut content = String::new();
    draw.write_content(&mut content);
    let third = |first: usize| -> Vec<u64> { batch.iter().copied().skip(first).step_by(3).collect() };
    let (indexed, contents, replaced) = (third(0), third(1), third(2));
    run(connection, "BEGIN")?;
    if !indexed.is_empty() {
        run(
            connection,
            &format!("UPDATE sbtest SET k=k+1 WHERE id IN ({})", list(&indexed)),
        )?;
    }
    if !contents.is_empty() {
        run(
            connection,
            &format!("UPDATE sbtest SET c='{content}' WHERE id IN ({})", list(&contents)),
        )?;
    }
    if !replaced.is_empty() {
        run(
            connection,
            &format!("DELETE FROM sbtest WHERE id IN ({})", list(&replaced)),
        )?;
        run(connection, &insert(&replaced))?;
    }
    run(connection, "COMMIT")
}

fn list(ids: &[u64]) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// The rows that the load's own transactions insert.
fn insert(ids: &[u64]) -> String {
    let rows: Vec<String> = ids
        .iter()
        .map(|id| format!("({id},0,' ','aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')"))
        .collect();
    format!("INSERT INTO sbtest VALUES {}", rows.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_inserted_as_the_load_inserts_them() {
        assert_eq!(list(&[3, 7]), "3,7");
        assert_eq!(insert(&[3, 7]).matches("aaaaaaaaaaffffffffff").count(), 2);
    }

    #[test]
    fn a_table_says_what_it_is() {
        let table = Table {
            created: "2026-11-01 12:00:00".into(),
            first: Some(1),
            last: None,
        };
        assert_eq!(table.to_string(), "ids 1 to none, made 2026-11-01 12:00:00");
    }
}
