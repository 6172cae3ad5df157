//! One load thread: its connection, its prepared statements, and transaction after transaction.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use mysql::prelude::Queryable;
use mysql::{Conn, Params, Value};

use super::error::code;
use super::ids::{Generator, Ids};
use super::statements::{BEGIN, Binding, Class, PREPARED, Statement};
use super::{Connect, Error, Oltp};
use crate::result::{Counts, latency_histogram};

/// Deadlock found, lock wait timeout exceeded, record has changed since last read.
const RESTART_CODES: [u16; 3] = [1213, 1205, 1020];

/// What one thread did since the last cut. Its lock is taken once per statement, and contended only at the
/// edges of a window.
pub(super) struct Tally {
    current: Mutex<(Counts, Histogram<u64>)>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            current: Mutex::new((Counts::default(), latency_histogram())),
        }
    }

    /// Takes what is there, and begins anew.
    pub(super) fn cut(&self) -> (Counts, Histogram<u64>) {
        let fresh = (Counts::default(), latency_histogram());
        mem::replace(&mut *self.lock(), fresh)
    }

    fn lock(&self) -> MutexGuard<'_, (Counts, Histogram<u64>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statement(&self, class: Class) {
        add(&mut self.lock().0, class);
    }

    fn deadlock(&self) {
        self.lock().0.deadlocks += 1;
    }

    /// The last statement of a transaction, and the transaction with it.
    fn transaction(&self, class: Class, microseconds: u64) {
        let (counts, latencies) = &mut *self.lock();
        add(counts, class);
        counts.transactions += 1;
        latencies.saturating_record(microseconds.max(1));
    }
}

fn add(counts: &mut Counts, class: Class) {
    match class {
        Class::Read => counts.reads += 1,
        Class::Write => counts.writes += 1,
        Class::Other => counts.other += 1,
    }
}

pub(super) struct Worker {
    thread: u32,
    connection: Conn,
    /// As in [`PREPARED`].
    prepared: Vec<mysql::Statement>,
    generator: Generator,
    content: String,
}

/// How an attempt at a transaction ended.
enum Attempt {
    Committed,
    Restart,
}

impl Worker {
    /// Connects and prepares; nothing of the load has been sent then.
    pub(super) fn new(oltp: &Oltp, connect: &Connect, seed: u64, thread: u32) -> Result<Self, Error> {
        let mut connection = connect.open()?;
        let prepared = PREPARED.iter().map(|statement| {
            let prepared = connection.prep(statement.sql);
            prepared.map_err(|error| Error::statement(thread, statement.sql, &error))
        });
        let prepared = prepared.collect::<Result<_, _>>()?;
        Ok(Self {
            thread,
            connection,
            prepared,
            generator: Generator::new(
                seed.wrapping_add(u64::from(thread)),
                oltp.row_count(),
                oltp.distribution(),
            ),
            content: String::with_capacity(120),
        })
    }

    /// Runs transactions until `stop` is set.
    pub(super) fn run(&mut self, tally: &Tally, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            self.transaction(tally, stop)?;
        }
        Ok(())
    }

    fn transaction(&mut self, tally: &Tally, stop: &AtomicBool) -> Result<(), Error> {
        let ids = self.generator.ids();
        let started = Instant::now();
        while let Attempt::Restart = self.attempt(&ids, started, tally)? {
            tally.deadlock();
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn attempt(&mut self, ids: &Ids, started: Instant, tally: &Tally) -> Result<Attempt, Error> {
        self.generator.write_content(&mut self.content);
        if let Err(error) = self.connection.query_drop(BEGIN.sql) {
            return self.failed(BEGIN, &error);
        }
        tally.statement(BEGIN.class);
        let mut steps = ids.steps().peekable();
        while let Some(step) = steps.next() {
            let statement = PREPARED[step.statement];
            if let Err(error) = self.execute(step.statement, step.binding) {
                return self.failed(statement, &error);
            }
            if steps.peek().is_some() {
                tally.statement(statement.class);
            } else {
                let microseconds = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                tally.transaction(statement.class, microseconds);
            }
        }
        Ok(Attempt::Committed)
    }

    fn execute(&mut self, statement: usize, binding: Binding) -> Result<(), mysql::Error> {
        let parameters = match binding {
            Binding::None => Params::Empty,
            Binding::Id(id) => Params::Positional(vec![Value::UInt(id)]),
            Binding::Range(first, last) => Params::Positional(vec![Value::UInt(first), Value::UInt(last)]),
            Binding::Content(id) => {
                let content = Value::Bytes(self.content.as_bytes().to_vec());
                Params::Positional(vec![content, Value::UInt(id)])
            }
        };
        // Every row is read: an error may come after the first ones.
        let mut rows = self.connection.exec_iter(&self.prepared[statement], parameters)?;
        rows.by_ref().try_for_each(|row| row.map(drop))
    }

    fn failed(&self, statement: Statement, error: &mysql::Error) -> Result<Attempt, Error> {
        match code(error) {
            Some(code) if RESTART_CODES.contains(&code) => Ok(Attempt::Restart),
            _ => Err(Error::statement(self.thread, statement.sql, error)),
        }
    }
}
