//! The running load: its threads, and windows cut from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::worker::{Tally, Worker};
use super::{Connect, Error, Oltp};
use crate::result::{Counts, latency_histogram};

/// How often a window looks at the caller's stop flag.
const POLL: Duration = Duration::from_millis(50);

/// How long [`Load::stop`] waits for transactions to end: longer than a lock wait timeout (50 s) and then some.
const STOP_DEADLINE: Duration = Duration::from_secs(120);

/// What the load did in one window.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The window's length in seconds, as measured.
    pub seconds: f64,
    /// Statements completed, and transactions ended, in it. The statement at which a deadlock's victim was chosen
    /// is not among them; those before it are.
    pub counts: Counts,
    /// Latencies of the transactions that ended in it, in microseconds, retries after a deadlock included.
    pub latencies: Histogram<u64>,
}

/// A load that runs until it is stopped. Dropped without [`Load::stop`], its threads end after their
/// transactions, but are not waited for.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<(u32, JoinHandle<()>)>,
}

struct Shared {
    tallies: Vec<Tally>,
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    started: bool,
    failed: bool,
    error: Option<Error>,
}

impl Load {
    /// Connects every thread and prepares its statements, then lets all of them begin.
    ///
    /// Thread `i` (from 0) draws from a generator seeded with `seed + i`.
    ///
    /// # Errors
    /// When the profile cannot run, the server cannot be reached, or a statement cannot be prepared.
    pub fn start(oltp: &Oltp, connect: &Connect, seed: u64) -> Result<Self, Error> {
        oltp.check()?;
        let workers = (0..oltp.thread_count())
            .map(|thread| Worker::new(oltp, connect, seed, thread))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared {
            tallies: workers.iter().map(|_| Tally::new()).collect(),
            stop: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        // From here on a failure drops the load, which ends the threads that were started.
        let mut load = Self {
            shared,
            threads: Vec::new(),
        };
        for (thread, worker) in (0..).zip(workers) {
            load.spawn(thread, worker)?;
        }
        load.shared.update(|state| state.started = true);
        Ok(load)
    }

    fn spawn(&mut self, thread: u32, mut worker: Worker) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let handle = thread::Builder::new()
            .name(format!("load-{thread}"))
            .spawn(move || {
                shared.wait_for_start();
                let tally = &shared.tallies[thread as usize];
                if let Err(error) = worker.run(tally, &shared.stop) {
                    shared.fail(error);
                }
            })
            .map_err(|error| Error::thread(thread, &error))?;
        self.threads.push((thread, handle));
        Ok(())
    }

    /// Cuts a window of this length, from now on, out of the running load.
    ///
    /// # Errors
    /// At once when a load thread fails (or has failed since the last window), or when `stop` is set.
    pub fn window(&self, length: Duration, stop: &AtomicBool) -> Result<Sample, Error> {
        self.check()?;
        let started = Instant::now();
        self.shared.cut();
        let end = started + length;
        loop {
            self.check()?;
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            drop(self.shared.changed.wait_timeout(self.shared.lock(), left.min(POLL)));
        }
        let ended = Instant::now();
        let (counts, latencies) = self.shared.cut();
        Ok(Sample {
            seconds: (ended - started).as_secs_f64(),
            counts,
            latencies,
        })
    }

    /// Whether the load still runs.
    ///
    /// # Errors
    /// With the error that ended it, the first time; with [`Error::Ended`] from then on.
    pub fn check(&self) -> Result<(), Error> {
        self.shared.lock().check()?;
        match self.threads.iter().find(|(_, handle)| handle.is_finished()) {
            None => Ok(()),
            // A thread may have failed between the two looks.
            Some((thread, _)) => self.shared.lock().check().and(Err(Error::Thread {
                thread: *thread,
                message: "ended by itself".into(),
            })),
        }
    }

    /// Lets every thread end its transaction, and waits for that.
    ///
    /// # Errors
    /// With the first error of a load thread that was not reported yet, or when the server does not answer
    /// for two minutes.
    pub fn stop(mut self) -> Result<(), Error> {
        self.shared.end();
        let end = Instant::now() + STOP_DEADLINE;
        let threads = std::mem::take(&mut self.threads);
        while threads.iter().any(|(_, handle)| !handle.is_finished()) {
            if Instant::now() >= end {
                return Err(Error::Hung {
                    threads: threads.iter().filter(|(_, handle)| !handle.is_finished()).count(),
                    waited: STOP_DEADLINE,
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
        for (thread, handle) in threads {
            handle.join().map_err(|_| Error::Thread {
                thread,
                message: "panicked".into(),
            })?;
        }
        match self.shared.lock().error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl State {
    fn check(&mut self) -> Result<(), Error> {
        match self.error.take() {
            Some(error) => Err(error),
            None if self.failed => Err(Error::Ended),
            None => Ok(()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.update(|state| state.started = true);
    }

    /// The first error ends the load; those it causes are not told.
    fn fail(&self, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.update(|state| {
            if !state.failed {
                state.failed = true;
                state.error = Some(error);
            }
        });
    }

    fn wait_for_start(&self) {
        let state = self.changed.wait_while(self.lock(), |state| !state.started);
        drop(state);
    }

    /// Everything since the last cut, of all threads together.
    fn cut(&self) -> (Counts, Histogram<u64>) {
        let cuts: Vec<_> = self.tallies.iter().map(Tally::cut).collect();
        let mut sum = (Counts::default(), latency_histogram());
        for (counts, latencies) in cuts {
            sum.0.transactions += counts.transactions;
            sum.0.reads += counts.reads;
            sum.0.writes += counts.writes;
            sum.0.other += counts.other;
            sum.0.deadlocks += counts.deadlocks;
            // Both histograms have the same bounds and resize themselves.
            let _ = sum.1.add(&latencies);
        }
        sum
    }
}
