//! One window after the other, under a load that never stops.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::disturbance::Lookout;
use super::ground::Ground;
use super::processor::Processor;
use super::progress::say;
use super::{Difference, Error, Rig, State, check};
use crate::result::{EngineBand, EngineState, Side, Window};
use crate::storage::Counters;
use crate::workload::{Load, Sample};

/// Least load before the first round: the buffer pool fills, and the server comes to its pace.
const WARM_UP: Duration = Duration::from_secs(20);

/// The server is at its pace when two such stretches of load are alike.
const STRETCH: Duration = Duration::from_secs(10);

/// Stretches that it may need for that.
const MOST_STRETCHES: u32 = 18;

/// Least load between the end of what a window left behind and the next one, on top of what LVM takes for the one and
/// the other.
const SETTLE: Duration = Duration::from_secs(1);

/// How long a server may take to come back to its band: page cleaners go through theirs every few seconds, and a purge
/// that lags needs some more.
const SETTLE_DEADLINE: Duration = Duration::from_secs(90);

/// How often the server is asked how much it has put off.
const LOOK: Duration = Duration::from_millis(400);

/// From a freeze, by a snapshot or for its own sake, to the start of the window. Making a snapshot holds up the
/// transactions under way for a second or more, the sham for less: they are one in thirteen of a window's, and would
/// decide its 95th percentile, unless they end before it.
const LEAD: Duration = Duration::from_millis(2500);

/// The length of windows from which on the waits around them are as long as said.
const FULL: Duration = Duration::from_secs(10);

/// Restarts of transactions that a window may have, per transaction.
const MOST_RESTARTS: f64 = 0.2;

/// How often a wait looks at signals and at the load.
const POLL: Duration = Duration::from_millis(100);

/// Takes windows.
pub(super) struct Windows<'a, F> {
    rig: &'a Rig,
    load: &'a Load,
    difference: F,
    length: Duration,
    stop: &'a AtomicBool,
    ground: Ground,
    band: Option<EngineBand>,
}

/// A window that was taken.
pub(super) struct Taken {
    pub(super) window: Window,
    /// What differed in it.
    pub(super) difference: Option<String>,
    /// Why nothing may be concluded from it.
    pub(super) invalid: Option<String>,
    /// That the host was busy, if it was. It says so itself, whatever the window's result is: the window may be taken
    /// again.
    pub(super) busy_host: Option<String>,
}

impl<'a, F, D> Windows<'a, F>
where
    F: FnMut(&Rig) -> Result<D, Error>,
    D: Difference,
{
    /// Lets the load run until the server is at its pace, and looks at what it has put off by then.
    pub(super) fn warmed_up(
        rig: &'a Rig,
        load: &'a Load,
        difference: F,
        length: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let pace = Pace { load, stop };
        // A window that only tries things out begins at any time.
        let band = match length < FULL {
            true => pace.wait_until(Instant::now() + warm_up(length)).map(|()| None)?,
            false => Some(steady(rig, &pace)?),
        };
        Ok(Self {
            rig,
            load,
            difference,
            length,
            stop,
            ground: Ground::of(rig)?,
            band,
        })
    }

    /// What the server has to have put off when a window begins.
    pub(super) fn band(&self) -> Option<EngineBand> {
        self.band
    }

    /// Looks anew at what the server has put off when it is at its pace: it was not yet when the load was warmed up.
    pub(super) fn warm_up_again(&mut self) -> Result<(), Error> {
        self.band = Some(steady(self.rig, &self.pace())?);
        Ok(())
    }

    /// Settles, makes the difference or the sham of it, and takes the window of a side.
    pub(super) fn take(&mut self, round: usize, side: Side) -> Result<Taken, Error> {
        let settled = self.settle(round)?;
        let mut taken = match side {
            Side::Without => self.take_without(round)?,
            Side::With => self.take_with(round)?,
        };
        taken.window.settled_seconds = Some(settled.as_secs_f64());
        Ok(taken)
    }

    fn take_without(&self, round: usize) -> Result<Taken, Error> {
        sham(self.rig)?;
        let cut = self.cut()?;
        let changed = self.ground.changed(&Ground::of(self.rig)?, &[]);
        Ok(cut.taken(round, Side::Without, State::default(), None, changed))
    }

    fn take_with(&mut self, round: usize) -> Result<Taken, Error> {
        let difference = (self.difference)(self.rig)?;
        let taken = self.take_under(&difference, round);
        let undone = difference.undo();
        match (taken, undone) {
            (Ok(taken), undone) => undone.map(|()| taken),
            // What went wrong first is what ends the measurement.
            (Err(error), undone) => {
                if let Err(undo) = undone {
                    say(&format!("the difference could not be undone: {undo}"));
                }
                Err(error)
            }
        }
    }

    fn take_under(&self, difference: &D, round: usize) -> Result<Taken, Error> {
        if !difference.freezes() {
            sham(self.rig)?;
        }
        let cut = self.cut()?;
        let state = difference.state()?;
        let changed = self.ground.changed(&Ground::of(self.rig)?, &difference.variables());
        Ok(cut.taken(round, Side::With, state, Some(difference.describe()), changed))
    }

    /// Waits under load until the server has put off no more and no less than at first.
    fn settle(&self, round: usize) -> Result<Duration, Error> {
        let pace = self.pace();
        let began = Instant::now();
        pace.wait_until(began + shortened(SETTLE, self.length))?;
        let Some(band) = self.band else {
            return Ok(began.elapsed());
        };
        loop {
            let Some(outside) = band.outside(&self.rig.server().engine_state()?) else {
                return Ok(began.elapsed());
            };
            if began.elapsed() > SETTLE_DEADLINE {
                return Err(Error::Unsettled {
                    round,
                    deadline: SETTLE_DEADLINE,
                    outside,
                });
            }
            pace.wait_until(Instant::now() + LOOK)?;
        }
    }

    fn cut(&self) -> Result<Cut, Error> {
        let (rig, load) = (self.rig, self.load);
        self.pace().wait_until(Instant::now() + shortened(LEAD, self.length))?;
        let engine = rig.server().engine_state()?;
        let (began, disk, processor) = (Instant::now(), rig.group().disk()?, Processor::now());
        let mut lookout = Lookout::begin();
        let sample = load.window(self.length, self.stop)?;
        let elapsed = began.elapsed();
        let disk_busy_percent = Counters::busy_percent(&disk, &rig.group().disk()?, elapsed);
        let processor_shares = processor
            .zip(Processor::now())
            .map(|(earlier, now)| now.shares(earlier, elapsed));
        let disturbance = lookout.seen();
        let host_delay_percent = lookout.host_delay_percent();
        Ok(Cut {
            engine,
            host_delay_percent,
            invalid: disturbance.or_else(|| restarts(&sample)),
            busy_host: host_delay_percent.and_then(|percent| lookout.busy_host(percent)),
            sample,
            disk_busy_percent,
            processor_shares,
        })
    }

    fn pace(&self) -> Pace<'a> {
        Pace {
            load: self.load,
            stop: self.stop,
        }
    }
}

/// The band of a server that has come to its pace: it puts off as much in one stretch of load as in the one before.
fn steady(rig: &Rig, pace: &Pace<'_>) -> Result<EngineBand, Error> {
    let watch = || -> Result<Vec<EngineState>, Error> {
        let mut seen = Vec::new();
        let end = Instant::now() + STRETCH;
        while seen.is_empty() || Instant::now() < end {
            seen.push(rig.server().engine_state()?);
            pace.wait_until(end.min(Instant::now() + LOOK))?;
        }
        Ok(seen)
    };
    let mut before = watch()?;
    let mut stretches = 1;
    loop {
        let seen = watch()?;
        stretches += 1;
        match EngineBand::drift(&before, &seen) {
            None => return Ok(EngineBand::around(&seen)),
            Some(drift) if stretches >= MOST_STRETCHES => {
                return Err(Error::NotSteady {
                    waited: STRETCH * stretches,
                    stretch: STRETCH,
                    drift,
                });
            }
            Some(_) => before = seen,
        }
    }
}

/// The length of the warm-up before windows of this length.
pub(super) fn warm_up(window: Duration) -> Duration {
    shortened(WARM_UP, window)
}

/// A wait around windows, in proportion where they are too short to measure anything and only try things out.
fn shortened(wait: Duration, window: Duration) -> Duration {
    wait.mul_f64((window.as_secs_f64() / FULL.as_secs_f64()).min(1.0))
}

/// Waits while the load runs.
struct Pace<'a> {
    load: &'a Load,
    stop: &'a AtomicBool,
}

impl Pace<'_> {
    fn wait_until(&self, end: Instant) -> Result<(), Error> {
        loop {
            check(self.stop)?;
            self.load.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }
}

/// Transactions that are mostly repeated measure locks, and not a disk.
fn restarts(sample: &Sample) -> Option<String> {
    let (restarts, transactions) = (sample.counts.deadlocks, sample.counts.transactions);
    (restarts as f64 > MOST_RESTARTS * transactions as f64).then(|| {
        format!(
            "{restarts} restarts after deadlocks and lock wait timeouts for {transactions} transactions, more than {:.0} \
             in 100; use more rows (SNAPTAX_ROWS) or fewer threads (SNAPTAX_THREADS)",
            100.0 * MOST_RESTARTS
        )
    })
}

/// What making a snapshot does, but for the snapshot: the filesystem is frozen for a moment, and LVM reports what
/// there is before and after that.
fn sham(rig: &Rig) -> Result<(), Error> {
    rig.group().free()?;
    rig.mounted().freeze_and_thaw()?;
    rig.group().free()?;
    Ok(())
}

/// What was seen during one window.
struct Cut {
    engine: EngineState,
    host_delay_percent: Option<f64>,
    sample: Sample,
    invalid: Option<String>,
    busy_host: Option<String>,
    disk_busy_percent: f64,
    processor_shares: Option<(f64, f64)>,
}

impl Cut {
    fn taken(
        self,
        round: usize,
        side: Side,
        state: State,
        difference: Option<String>,
        changed: Option<String>,
    ) -> Taken {
        let (cpu_busy_percent, load_cpu_percent) = self.processor_shares.unzip();
        let Sample {
            seconds,
            counts,
            latencies,
        } = self.sample;
        let window = Window {
            disk_busy_percent: Some(self.disk_busy_percent),
            cpu_busy_percent,
            load_cpu_percent,
            cow: state.cow,
            engine: Some(self.engine),
            host_delay_percent: self.host_delay_percent,
            ..Window::new(round, side, seconds, counts, latencies)
        };
        Taken {
            window,
            difference,
            invalid: state.invalid.or(self.invalid).or(changed),
            busy_host: self.busy_host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Counts, latency_histogram};
    use rstest::rstest;

    #[rstest]
    #[case::none(0, false)]
    #[case::as_many_as_may_be(20, false)]
    #[case::more(21, true)]
    fn a_window_that_mostly_waits_for_locks_says_nothing_of_a_disk(#[case] deadlocks: u64, #[case] invalid: bool) {
        let sample = Sample {
            seconds: 20.0,
            counts: Counts {
                transactions: 100,
                deadlocks,
                ..Counts::default()
            },
            latencies: latency_histogram(),
        };
        let why = restarts(&sample);
        assert_eq!(why.is_some(), invalid, "{why:?}");
        assert!(why.is_none_or(|why| why.contains("21 restarts") && why.contains("SNAPTAX_THREADS")));
    }

    #[rstest]
    #[case::measuring(20, 20.0)]
    #[case::at_the_limit(10, 20.0)]
    #[case::trying_out(1, 2.0)]
    fn waits_are_shortened_only_around_windows_that_measure_nothing(#[case] window: u64, #[case] seconds: f64) {
        assert!((warm_up(Duration::from_secs(window)).as_secs_f64() - seconds).abs() < 1e-9);
    }
}
