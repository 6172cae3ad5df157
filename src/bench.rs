//! An experiment: load, difference, measurement.
//!
//! ```no_run
//! use snaptax::prelude::*;
//!
//! #[rstest]
//! #[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
//! #[file_serial(storage)]
//! fn oltp_under_a_thick_snapshot(bench: Bench) -> snaptax::Result<()> {
//!     let comparison = bench
//!         .load(Oltp::sysbench_0_4().threads(16).uniform())
//!         .with(|rig| rig.volume().thick_snapshot("snapdatalv-1").size(Size::gib(1)).create())
//!         .measure()?;
//!     assert_ratio_bounds!(comparison);
//!     Ok(())
//! }
//! ```
//!
//! Nothing is built before [`Experiment::measure`], which first checks that this machine can run it at all, and
//! removes everything again whatever happens. Settings in the environment win over what the code says.

mod band;
mod difference;
mod disturbance;
mod error;
mod ground;
mod host_delay;
mod measurement;
mod processor;
mod progress;
mod rig;
mod rounds;
mod window;

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use band::Outside;
pub use difference::{Difference, State};
pub use error::Error;
pub use rig::{Origin, Rig, ThickSnapshot};

use measurement::Measurement;
use progress::{say, step};

use crate::gate::Measurable;
use crate::result::Comparison;
use crate::server::MysqldOptions;
use crate::settings::{LEAST_HALF_WIDTH, Settings, Size};
use crate::storage::{Filesystem, FoundRun, RunId};
use crate::workload::Oltp;
use rstest::fixture;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Where an experiment begins. Costs nothing until something is measured.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Bench {}

/// The fixture that gives an experiment its [`Bench`].
#[fixture]
pub fn bench() -> Bench {
    Bench::default()
}

impl Bench {
    /// Starts with the load. Without [`Experiment::with`] both sides are the same, and the ratio shows the
    /// harness's own noise.
    pub fn load(self, load: Oltp) -> Experiment<impl FnMut(&Rig) -> Result<(), Error>> {
        Experiment {
            setup: Setup::new(load),
            difference: |_: &Rig| Ok(()),
        }
    }
}

/// What both sides share.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    load: Oltp,
    window: Duration,
    half_width: f64,
    rigs: Option<usize>,
    volume_size: Size,
    spare: Option<Size>,
    filesystem: Filesystem,
    mysqld: MysqldOptions,
    /// Whether it is measured for the second time.
    again: bool,
}

impl Setup {
    /// A scale that fits CI: `docs/decisions.md` has the trials it comes from.
    fn new(load: Oltp) -> Self {
        Self {
            load,
            window: Duration::from_secs(20),
            half_width: 0.10,
            rigs: None,
            volume_size: Size::mib(768),
            spare: None,
            filesystem: Filesystem::Ext4,
            mysqld: MysqldOptions {
                buffer_pool: Size::mib(64),
                ..MysqldOptions::default()
            },
            again: false,
        }
    }

    fn mysqld(&self, settings: &Settings) -> MysqldOptions {
        let mut options = self.mysqld.clone();
        options.buffer_pool = settings.buffer_pool.unwrap_or(options.buffer_pool);
        options.extra.extend(settings.mysqld_options.iter().cloned());
        options
    }

    /// The load at the scale of the settings.
    fn oltp(&self, settings: &Settings) -> Oltp {
        let oltp = self.load.clone();
        let rows = settings.rows.unwrap_or(oltp.row_count());
        let threads = settings.threads.unwrap_or(oltp.thread_count());
        oltp.rows(rows).threads(threads)
    }
}

/// A load and a difference, to be measured.
#[derive(Debug)]
pub struct Experiment<F> {
    setup: Setup,
    difference: F,
}

impl<F, D> Experiment<F>
where
    F: FnMut(&Rig) -> Result<D, Error>,
    D: Difference,
{
    /// What differs on the with side. Called anew before each of its windows, while the load runs.
    pub fn with<G, E>(self, difference: G) -> Experiment<G>
    where
        G: FnMut(&Rig) -> Result<E, Error>,
        E: Difference,
    {
        Experiment {
            setup: self.setup,
            difference,
        }
    }

    /// Length of a window; 20 s unless said, or `SNAPTAX_TIME`.
    #[must_use]
    pub fn window(mut self, length: Duration) -> Self {
        self.setup.window = length;
        self
    }

    /// The half-width of the throughput interval to aim at, `(ln high - ln low) / 2`, 0.005 or more; 0.10, about 10 %,
    /// unless said, or `SNAPTAX_HALF_WIDTH`.
    #[must_use]
    pub fn half_width(mut self, half_width: f64) -> Self {
        self.setup.half_width = half_width;
        self
    }

    /// Rigs that the rounds are spread over; 1, or 6 where the half-width is 0.04 or less, unless said, or `SNAPTAX_RIGS`.
    /// Each has a server and a table of its own: what they differ by cancels, as more rounds on one rig never make it.
    #[must_use]
    pub fn rigs(mut self, rigs: usize) -> Self {
        self.setup.rigs = Some(rigs);
        self
    }

    /// Size of the origin; 768 MiB unless said, or `SNAPTAX_VOLUME_SIZE`.
    #[must_use]
    pub fn volume_size(mut self, size: Size) -> Self {
        self.setup.volume_size = size;
        self
    }

    /// Room in the volume group beside the origin; unless said, or `SNAPTAX_SNAPSHOT_SIZE`, enough for a thick
    /// snapshot that holds all of it.
    #[must_use]
    pub fn spare(mut self, size: Size) -> Self {
        self.setup.spare = Some(size);
        self
    }

    /// What the server runs with.
    #[must_use]
    pub fn mysqld(mut self, options: MysqldOptions) -> Self {
        self.setup.mysqld = options;
        self
    }

    /// Builds everything, measures both sides, and removes everything.
    ///
    /// # Errors
    /// When this machine cannot run experiments, a setting does not fit, something cannot be built or removed,
    /// or a signal came. A measurement from which nothing may be concluded is no error: it says so in
    /// [`Comparison::invalid`], and the gate turns it into `Invalid`.
    pub fn measure(mut self) -> Result<Measured<F>, Error> {
        let comparison = self.run(|measurement, difference| measurement.run(difference))?;
        Ok(Measured {
            comparison,
            experiment: RefCell::new(Some(self)),
        })
    }

    /// As [`Experiment::measure`], but so many comparisons one after the other, on the same server and under the same
    /// load: what they differ by is the harness's own noise. When the load ends early, the last one is invalid and those
    /// after it are not there.
    ///
    /// # Errors
    /// As [`Experiment::measure`].
    pub fn measure_times(mut self, comparisons: usize) -> Result<Vec<Comparison>, Error> {
        self.run(|measurement, difference| measurement.run_times(comparisons, difference))
    }

    fn run<T>(&mut self, measure: impl FnOnce(Measurement<'_>, &mut F) -> Result<T, Error>) -> Result<T, Error> {
        let settings = Settings::from_env().map_err(Error::Settings)?;
        if !(LEAST_HALF_WIDTH..f64::INFINITY).contains(&self.setup.half_width) {
            return Err(Error::HalfWidth(self.setup.half_width));
        }
        let stop = signals()?;
        check(stop)?;
        // Before the look at the free space, which it may make.
        sweep(&settings);
        require_none_kept(&settings)?;
        crate::host::require(&settings)?;
        check(stop)?;
        measure(Measurement::new(&self.setup, &settings, stop), &mut self.difference)
    }
}

/// A measurement that can be made once more, should it not suffice for a verdict.
#[derive(Debug)]
pub struct Measured<F> {
    comparison: Comparison,
    experiment: RefCell<Option<Experiment<F>>>,
}

impl<F> Deref for Measured<F> {
    type Target = Comparison;

    fn deref(&self) -> &Comparison {
        &self.comparison
    }
}

impl<F> Measured<F> {
    /// The measurement alone.
    #[must_use]
    pub fn into_comparison(self) -> Comparison {
        self.comparison
    }
}

impl<F, D> Measurable for Measured<F>
where
    F: FnMut(&Rig) -> Result<D, Error>,
    D: Difference,
{
    fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    /// On a fresh rig, with twice the pilot and twice the budget.
    fn again(&self) -> Option<Result<Comparison, Box<dyn std::error::Error>>> {
        // A rig that is kept is in the next one's way.
        if Settings::from_env().is_ok_and(|settings| settings.keep) {
            return None;
        }
        let mut experiment = self.experiment.borrow_mut().take()?;
        experiment.setup.again = true;
        say("the measurement was not precise enough; once more, with twice the rounds");
        let measured = experiment.run(|measurement, difference| measurement.run(difference));
        Some(measured.map_err(Into::into))
    }
}

/// Removes what killed runs left behind. What cannot be removed is in nobody's way, and only told of.
fn sweep(settings: &Settings) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let found = crate::sweep::find(&settings.work_dir);
    let found = found.inspect_err(|error| say(&format!("cannot look for what killed runs left: {error}")));
    for remains in found.unwrap_or_default() {
        let run = remains.run();
        if remains.is_dead() {
            say(&format!("run {run} was killed; removing what it left"));
            if let Err(error) = step("sweep", || remains.remove()) {
                say(&format!("not removed: {error}"));
            }
        } else if remains.is_kept() {
            say(&format!("run {run} was kept; `snaptax sweep --kept` removes it"));
        }
    }
}

/// One process keeps one experiment: a second would have the same names.
fn require_none_kept(settings: &Settings) -> Result<(), Error> {
    let found = FoundRun::all_in(&settings.work_dir).unwrap_or_default();
    match found.iter().any(|found| found.run == RunId::current() && found.kept) {
        true => Err(Error::Kept),
        false => Ok(()),
    }
}

/// SIGINT, SIGTERM and SIGHUP as a flag, which stays set: the experiments after the one that was interrupted must
/// not start either.
fn signals() -> Result<&'static AtomicBool, Error> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    static REGISTERING: Mutex<()> = Mutex::new(());
    let _registering = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = STOP.get() {
        return Ok(stop);
    }
    let stop = Arc::default();
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Error::Signals)?;
    }
    Ok(STOP.get_or_init(|| stop))
}

fn check(stop: &AtomicBool) -> Result<(), Error> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}
