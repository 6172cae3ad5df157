//! One window after the other, under a load that never stops.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::disturbance::Lookout;
use super::processor::Processor;
use super::{Difference, Error, Rig, State, check};
use crate::result::{EngineState, Side, Window};
use crate::storage::Counters;
use crate::workload::{Load, Sample};

/// Load before the first round: the buffer pool fills, and the server comes to its pace.
const WARM_UP: Duration = Duration::from_secs(20);

/// Load between the end of what a window left behind and the next one, on top of what LVM takes for the one and the
/// other.
const SETTLE: Duration = Duration::from_secs(1);

/// From a freeze, by a snapshot or for its own sake, to the start of the window. Making a snapshot holds up the
/// transactions under way for a second or more, the sham for less: they are one in thirteen of a window's, and would
/// decide its 95th percentile, unless they end before it.
const LEAD: Duration = Duration::from_millis(2500);

/// The length of windows from which on the waits around them are as long as said.
const FULL: Duration = Duration::from_secs(10);

/// How often a wait looks at signals and at the load.
const POLL: Duration = Duration::from_millis(100);

/// Takes windows.
pub(super) struct Windows<'a, F> {
    rig: &'a Rig,
    load: &'a Load,
    difference: F,
    length: Duration,
    stop: &'a AtomicBool,
}

/// A window that was taken.
pub(super) struct Taken {
    pub(super) window: Window,
    /// What differed in it.
    pub(super) difference: Option<String>,
    /// Why nothing may be concluded from it.
    pub(super) invalid: Option<String>,
}

impl<'a, F, D> Windows<'a, F>
where
    F: FnMut(&Rig) -> Result<D, Error>,
    D: Difference,
{
    pub(super) fn new(rig: &'a Rig, load: &'a Load, difference: F, length: Duration, stop: &'a AtomicBool) -> Self {
        Self {
            rig,
            load,
            difference,
            length,
            stop,
        }
    }

    /// Settles, makes the difference or the sham of it, and takes the window of a side.
    pub(super) fn take(&mut self, round: usize, side: Side) -> Result<Taken, Error> {
        self.wait(self.shortened(SETTLE))?;
        if side == Side::Without {
            sham(self.rig)?;
            let cut = self.cut()?;
            return Ok(cut.taken(round, side, State::default(), None));
        }
        let difference = (self.difference)(self.rig)?;
        if !difference.freezes() {
            sham(self.rig)?;
        }
        let described = difference.describe();
        let cut = self.cut();
        let state = difference.state();
        let undone = difference.undo();
        let cut = cut?;
        let state = state?;
        undone?;
        Ok(cut.taken(round, side, state, Some(described)))
    }

    fn cut(&self) -> Result<Cut, Error> {
        let (rig, load) = (self.rig, self.load);
        self.wait(self.shortened(LEAD))?;
        let engine = rig.server().engine_state()?;
        let (began, disk, processor) = (Instant::now(), rig.group().disk()?, Processor::now());
        let mut lookout = Lookout::begin();
        let sample = load.window(self.length, self.stop)?;
        let elapsed = began.elapsed();
        Ok(Cut {
            engine,
            sample,
            disturbance: lookout.seen(),
            disk_busy_percent: Counters::busy_percent(&disk, &rig.group().disk()?, elapsed),
            processor_shares: processor
                .zip(Processor::now())
                .map(|(earlier, now)| now.shares(earlier, elapsed)),
        })
    }

    /// The length of the warm-up.
    pub(super) fn warm_up(&self) -> Duration {
        self.shortened(WARM_UP)
    }

    /// Lets the load run on.
    pub(super) fn wait(&self, length: Duration) -> Result<(), Error> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            check(self.stop)?;
            self.load.check()?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// A wait around windows, in proportion where they are too short to measure anything and only try things out.
    fn shortened(&self, wait: Duration) -> Duration {
        wait.mul_f64((self.length.as_secs_f64() / FULL.as_secs_f64()).min(1.0))
    }
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
    sample: Sample,
    disturbance: Option<String>,
    disk_busy_percent: f64,
    processor_shares: Option<(f64, f64)>,
}

impl Cut {
    fn taken(self, round: usize, side: Side, state: State, difference: Option<String>) -> Taken {
        let (cpu_busy_percent, load_cpu_percent) = self.processor_shares.unzip();
        let window = Window {
            round,
            side,
            seconds: self.sample.seconds,
            counts: self.sample.counts,
            latencies: self.sample.latencies,
            disk_busy_percent: Some(self.disk_busy_percent),
            cpu_busy_percent,
            load_cpu_percent,
            cow: state.cow,
            engine: Some(self.engine),
        };
        Taken {
            window,
            difference,
            invalid: state.invalid.or(self.disturbance),
        }
    }
}
