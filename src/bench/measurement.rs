use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::progress::{say, step};
use super::window::Windows;
use super::{Difference, Error, Rig, Setup};
use crate::compare::{self, Plan, pilot_for};
use crate::report::timings;
use crate::result::{self, Comparison, Side, Window};
use crate::settings::{Settings, Size};
use crate::workload::{self, Load, Oltp};

/// What a window takes beside its own length, when the machine is slow.
const BETWEEN: Duration = Duration::from_secs(8);

/// Time for rounds unless the settings give a budget.
const BUDGET: Duration = Duration::from_secs(30 * 60);

/// Mean latencies that a window must be long, so that what is cut at its edges does not matter.
const LEAST_LATENCIES: f64 = 10.0;

/// What the harness knows about the machine, as a JSON object of versions.
const VERSIONS: &str = "SNAPTAX_VERSIONS";

/// One experiment under way.
pub(super) struct Measurement<'a> {
    setup: &'a Setup,
    settings: &'a Settings,
    stop: &'a AtomicBool,
    oltp: Oltp,
    length: Duration,
    plan: Plan,
    seed: u64,
    windows: Vec<Window>,
    difference: String,
    invalid: Option<String>,
}

impl<'a> Measurement<'a> {
    pub(super) fn new(setup: &'a Setup, settings: &'a Settings, stop: &'a AtomicBool) -> Self {
        let half_width = settings.half_width.unwrap_or(setup.half_width);
        Self {
            setup,
            settings,
            stop,
            oltp: setup.oltp(settings),
            length: settings.time.unwrap_or(setup.window),
            plan: Plan::new(half_width, pilot_for(half_width)),
            seed: settings.seed.unwrap_or_else(|| rand::random::<u32>().into()),
            windows: Vec::new(),
            difference: "none".into(),
            invalid: None,
        }
    }

    pub(super) fn run<D: Difference>(
        mut self,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Comparison, Error> {
        self.require_budget()?;
        let rig = Rig::build(self.setup, self.settings, self.stop)?;
        let measured = self.measure(&rig, difference);
        let removed = match self.settings.keep.then(|| rig.mark_kept()) {
            Some(Ok(())) => {
                say(&rig.keep());
                Ok(())
            }
            Some(Err(error)) => step("clean up", || rig.remove()).and(Err(error)),
            None => step("clean up", || rig.remove()),
        };
        match (measured, removed) {
            (Ok(comparison), Ok(())) => Ok(comparison),
            (Ok(comparison), Err(error)) => Ok(tainted(comparison, &error)),
            (Err(error), removed) => Err(error.with_clean_up(removed)),
        }
    }

    fn measure<D: Difference>(
        &mut self,
        rig: &Rig,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Comparison, Error> {
        let (oltp, stop, connect) = (&self.oltp, self.stop, rig.connect());
        step("prepare", || oltp.prepare(&connect, stop, |_| ()).map_err(Error::from))?;
        let server = rig.server().description()?;

        let load = Load::start(&self.oltp, &connect, self.seed)?;
        let measured = self.load(rig, &load, difference);
        let stopped = load.stop();
        match measured {
            Err(Error::Workload(error)) if !matches!(error, workload::Error::Interrupted) => {
                self.invalid = Some(format!("the load ended in round {}: {error}", self.round_under_way()));
            }
            other => other.and_then(|()| Ok(stopped?))?,
        }
        self.void_if_changed(rig, &server)?;
        self.comparison(rig, server)
    }

    /// Both sides are measured with the same server options and on the same kind of disk, or say nothing of a snapshot.
    fn void_if_changed(&mut self, rig: &Rig, began: &result::Server) -> Result<(), Error> {
        if self.invalid.is_some() {
            return Ok(());
        }
        if !rig.group().uses_direct_io()? {
            self.invalid = Some("the loop device uses the page cache by now, and not direct I/O".into());
        }
        let now = rig.server().description()?;
        let changed = now
            .variables
            .iter()
            .find(|(name, value)| began.variables.get(*name) != Some(value));
        if let Some((name, value)) = changed {
            let before = began.variables.get(name).map_or("unknown", String::as_str);
            self.invalid = Some(format!("the server's {name} changed from {before} to {value}"));
        }
        Ok(())
    }

    fn load<D: Difference>(
        &mut self,
        rig: &Rig,
        load: &Load,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<(), Error> {
        let mut windows = Windows::new(rig, load, difference, self.length, self.stop);
        say(&format!(
            "warm-up: {:.0} s, then {} rounds at least: {}",
            windows.warm_up().as_secs_f64(),
            self.plan.pilot(),
            minutes(2 * self.plan.pilot() as u32 * (self.length + BETWEEN))
        ));
        windows.wait(windows.warm_up())?;

        timings::mark("first_measured_transaction");
        let began = Instant::now();
        self.rounds(1..=self.plan.pilot(), &mut windows)?;
        let wanted = self.plan.rounds(&self.windows);
        let rounds = wanted.min(self.affordable(began.elapsed()));
        if rounds > self.plan.pilot() && self.invalid.is_none() {
            let more = (rounds - self.plan.pilot()) as f64 / self.plan.pilot() as f64;
            say(&format!(
                "{rounds} rounds for a half-width of {:.1} %: {} more",
                100.0 * self.plan.half_width(),
                minutes(began.elapsed().mul_f64(more))
            ));
            self.rounds(self.plan.pilot() + 1..=rounds, &mut windows)?;
        }
        timings::add("rounds", began.elapsed().as_secs_f64());
        Ok(())
    }

    /// The pilot at least must fit.
    fn require_budget(&self) -> Result<(), Error> {
        let needed = 2 * self.plan.pilot() as u32 * (self.length + BETWEEN);
        let budget = self.budget();
        if needed <= budget {
            return Ok(());
        }
        Err(Error::Budget {
            windows: 2 * self.plan.pilot(),
            length: self.length,
            minutes: needed.as_secs().div_ceil(60),
            budget,
        })
    }

    fn budget(&self) -> Duration {
        self.settings.budget.unwrap_or(BUDGET)
    }

    /// Whole blocks of rounds that fit the budget, at the pilot's pace.
    fn affordable(&self, pilot: Duration) -> usize {
        let budget = self.budget().as_secs_f64();
        let round = pilot.as_secs_f64() / self.plan.pilot() as f64;
        let rounds = (budget / round) as usize;
        (rounds - rounds % 2).max(self.plan.pilot())
    }

    fn rounds<F, D>(&mut self, rounds: RangeInclusive<usize>, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        for round in rounds {
            for side in compare::order(round) {
                let taken = windows.take(round, side)?;
                self.void(round, taken.invalid.as_deref());
                if let Some(difference) = taken.difference {
                    self.difference = difference;
                }
                self.windows.push(taken.window);
                if self.invalid.is_some() {
                    return Ok(());
                }
            }
            say(&self.shown(round));
        }
        Ok(())
    }

    /// Nothing may be concluded any more.
    fn void(&mut self, round: usize, why: Option<&str>) {
        if let Some(why) = why {
            self.invalid.get_or_insert_with(|| format!("round {round}: {why}"));
        }
    }

    fn round_under_way(&self) -> usize {
        self.windows.len() / 2 + 1
    }

    /// A finished round on one line.
    fn shown(&self, round: usize) -> String {
        let of = |side| {
            let found = self
                .windows
                .iter()
                .find(|window| window.round == round && window.side == side);
            found.map_or((0.0, None), |window| {
                (window.counts.transactions as f64 / window.seconds, window.cow)
            })
        };
        let ((without, _), (with, cow)) = (of(Side::Without), of(Side::With));
        let cow = cow.map_or(String::new(), |cow| {
            format!(", {} chunks copied, COW store {:.1} % full", cow.chunks, cow.percent)
        });
        format!(
            "round {round}: {without:.1} without, {with:.1} with transactions/s, ratio {:.3}{cow}",
            with / without
        )
    }

    fn comparison(&mut self, rig: &Rig, server: result::Server) -> Result<Comparison, Error> {
        let estimates = compare::estimate(&self.windows, self.plan.pilot());
        let cows: Vec<_> = self.windows.iter().filter_map(|window| window.cow).collect();
        let mut comparison = Comparison {
            // The gate knows the test's name.
            name: String::new(),
            profile: format!("{}-{}{}", self.machine(), server.series, self.scale()),
            throughput: estimates.throughput,
            mean_latency: estimates.mean_latency,
            p95_latency: estimates.p95_latency,
            rounds: estimates.rounds,
            target_half_width: self.plan.half_width(),
            cow_fill_percent: cows.iter().map(|cow| cow.percent).reduce(f64::max),
            chunks_copied: None,
            invalid: self.invalid.take().or_else(|| self.short_window()),
            server,
            load: result::Load {
                profile: self.oltp.name().into(),
                threads: self.oltp.thread_count(),
                rows: self.oltp.row_count(),
                distribution: self.oltp.distribution_name().into(),
                window_seconds: self.length.as_secs_f64(),
                seed: self.seed,
            },
            storage: result::Storage {
                difference: self.difference.clone(),
                volume_bytes: rig.mounted().volume().size().as_bytes(),
                filesystem: self.setup.filesystem.to_string(),
                // A loop device without it is refused when it is attached.
                direct_io: Some(true),
                disk_busy_percent: None,
            },
            calibration: Some(rig.calibration()),
            versions: versions(rig)?,
            windows: std::mem::take(&mut self.windows),
        };
        comparison.chunks_copied = comparison.mean(Side::With, |window| Some(window.cow?.chunks as f64));
        comparison.storage.disk_busy_percent = comparison.mean(Side::Without, |window| window.disk_busy_percent);
        Ok(comparison)
    }

    fn machine(&self) -> String {
        self.settings.profile.clone().unwrap_or_else(|| {
            let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            name.trim().to_owned()
        })
    }

    /// What makes this another measurement than the experiment's own: bounds for one do not hold for the other.
    fn scale(&self) -> String {
        let settings = self.settings;
        let size = |size: Size| size.to_string().replace(' ', "");
        let parts = [
            ("rows", settings.rows.map(|rows| rows.to_string())),
            ("threads", settings.threads.map(|threads| threads.to_string())),
            ("time", settings.time.map(|time| time.as_secs().to_string())),
            ("pool", settings.buffer_pool.map(size)),
            ("volume", settings.volume_size.map(size)),
            ("snapshot", settings.snapshot_size.map(size)),
            ("chunk", settings.chunk_size.map(size)),
            ("", cfg!(debug_assertions).then(|| "unoptimised".to_owned())),
        ];
        let set = parts
            .into_iter()
            .filter_map(|(name, value)| Some(format!("-{name}{}", value?)));
        set.collect()
    }

    /// The mean latency of a closed loop is threads / throughput.
    fn short_window(&self) -> Option<String> {
        let threads = f64::from(self.oltp.thread_count());
        let short = self
            .windows
            .iter()
            .find(|window| (window.counts.transactions as f64) < LEAST_LATENCIES * threads)?;
        let latencies = short.counts.transactions as f64 / threads;
        Some(format!(
            "round {}: a window of {:.0} s is only {latencies:.1} mean latencies long, {LEAST_LATENCIES} are needed; \
             set SNAPTAX_TIME to {:.0} or more",
            short.round,
            short.seconds,
            (1.5 * short.seconds * LEAST_LATENCIES / latencies.max(0.1)).ceil()
        ))
    }
}

fn minutes(time: Duration) -> String {
    match time.as_secs_f64() / 60.0 {
        less if less < 1.5 => "about a minute".to_owned(),
        minutes => format!("about {minutes:.0} min"),
    }
}

/// After a clean-up that failed nothing may be concluded: a server that did not end in order had perhaps not been well
/// before.
fn tainted(mut comparison: Comparison, error: &Error) -> Comparison {
    let why = format!("cleaning up failed: {error}");
    say(&why);
    comparison.invalid = Some(match comparison.invalid {
        Some(first) => format!("{first}; {why}"),
        None => why,
    });
    comparison
}

fn versions(rig: &Rig) -> Result<BTreeMap<String, String>, Error> {
    let handed_over = std::env::var(VERSIONS).unwrap_or_default();
    let mut versions: BTreeMap<String, String> = serde_json::from_str(&handed_over).unwrap_or_default();
    let kernel = fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    versions.insert("kernel".into(), kernel.trim().into());
    versions.insert("lvm".into(), rig.lvm().version()?);
    versions.insert("snaptax".into(), env!("CARGO_PKG_VERSION").into());
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server;
    use rstest::rstest;

    #[rstest]
    #[case(None, "cleaning up failed: ")]
    #[case(Some("the load ended in round 3"), "the load ended in round 3; cleaning up failed: ")]
    fn a_server_killed_before_its_end_makes_the_measurement_invalid(
        #[case] before: Option<&str>,
        #[case] begins: &str,
    ) {
        let comparison = Comparison {
            invalid: before.map(str::to_owned),
            ..Comparison::default()
        };
        let killed = server::Error::Exited {
            code: 137,
            log: String::new(),
        };
        let why = tainted(comparison, &killed.into()).invalid.unwrap();
        assert!(why.starts_with(begins) && why.contains("status 137 (killed"), "{why}");
    }
}
