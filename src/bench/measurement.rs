//! From rigs to what was found on them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::progress::{say, step};
use super::rounds::{Rounds, minutes};
use super::window::{Windows, warm_up};
use super::{Difference, Error, Rig, Setup};
use crate::compare::{self, Plan, pilot_for, rigs_for};
use crate::report::timings;
use crate::result::{self, Comparison, EngineBand, Side};
use crate::settings::{Settings, Size};
use crate::workload::{self, Load, Oltp};

/// Time for rounds on one rig unless the settings give a budget; a second measurement has twice as much.
const BUDGET: Duration = Duration::from_secs(30 * 60);

/// The same for those on several rigs.
const BUDGET_OF_RIGS: Duration = Duration::from_secs(60 * 60);

/// Seeds that a rig has for itself: far more than it has threads.
const SEEDS_OF_A_RIG: u64 = 1 << 32;

/// What the harness knows about the machine, as a JSON object of versions.
const VERSIONS: &str = "SNAPTAX_VERSIONS";

/// Comparisons: several on one rig, or one on as many rigs as it takes.
pub(super) struct Measurement<'a> {
    setup: &'a Setup,
    settings: &'a Settings,
    stop: &'a AtomicBool,
    oltp: Oltp,
    length: Duration,
    plan: Plan,
    budget: Duration,
    seed: u64,
}

impl<'a> Measurement<'a> {
    pub(super) fn new(setup: &'a Setup, settings: &'a Settings, stop: &'a AtomicBool) -> Self {
        let half_width = settings.half_width.unwrap_or(setup.half_width);
        let rigs = settings.rigs.or(setup.rigs).unwrap_or(rigs_for(half_width));
        let plan = Plan::new(half_width, pilot_for(half_width)).on_rigs(rigs);
        let usual = if rigs > 1 { BUDGET_OF_RIGS } else { BUDGET };
        let budget = settings.budget.unwrap_or(usual);
        Self {
            setup,
            settings,
            stop,
            oltp: setup.oltp(settings),
            length: settings.time.unwrap_or(setup.window),
            plan: if setup.again { plan.doubled() } else { plan },
            budget: if setup.again { 2 * budget } else { budget },
            seed: settings.seed.unwrap_or_else(|| rand::random::<u32>().into()),
        }
    }

    /// Makes one comparison, on one rig after the other.
    pub(super) fn run<D: Difference>(
        self,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Comparison, Error> {
        let mut rounds = self.rounds();
        rounds.require_budget()?;
        let mut before: Option<Comparison> = None;
        loop {
            let rig = rounds.rigs() + 1;
            if self.plan.rigs() > 1 {
                say(&format!("rig {rig} of {}", self.plan.rigs()));
            }
            let comparison = match (self.on_rig(1, &mut rounds, difference), before.take()) {
                (Ok(mut comparisons), _) => comparisons.pop().ok_or(Error::Interrupted)?,
                (Err(error), Some(before)) if !self.stop.load(Ordering::Relaxed) => {
                    return Ok(Comparison {
                        invalid: Some(format!("rig {rig}: {error}")),
                        ..before
                    });
                }
                (Err(error), _) => return Err(error),
            };
            if comparison.invalid.is_some() || rounds.are_complete() {
                return Ok(comparison);
            }
            before = Some(comparison);
        }
    }

    /// Makes so many comparisons on one rig, one after the other. There are fewer when the load ended, which makes the last
    /// one invalid.
    pub(super) fn run_times<D: Difference>(
        mut self,
        comparisons: usize,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Vec<Comparison>, Error> {
        self.plan = self.plan.on_rigs(1);
        let mut rounds = self.rounds();
        rounds.require_budget()?;
        self.on_rig(comparisons, &mut rounds, difference)
    }

    /// Builds a rig, measures, and removes the rig, or keeps it.
    fn on_rig<D: Difference>(
        &self,
        comparisons: usize,
        rounds: &mut Rounds,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Vec<Comparison>, Error> {
        let rig = Rig::build(self.setup, self.settings, self.stop)?;
        let measured = rounds
            .require_disk(rig.calibration())
            .and_then(|()| self.measure(&rig, comparisons, rounds, difference));
        // Of several rigs the last one is kept: nothing is measured after it.
        let is_last = measured.is_err() || rounds.are_complete();
        let removed = match (self.settings.keep && is_last).then(|| rig.mark_kept()) {
            Some(Ok(())) => {
                say(&rig.keep());
                Ok(())
            }
            Some(Err(error)) => step("clean up", || rig.remove()).and(Err(error)),
            None => step("clean up", || rig.remove()),
        };
        match (measured, removed) {
            (Ok(comparisons), Ok(())) => Ok(comparisons),
            (Ok(comparisons), Err(error)) => Ok(tainted(comparisons, &error)),
            (Err(error), removed) => Err(error.with_clean_up(removed)),
        }
    }

    fn measure<D: Difference>(
        &self,
        rig: &Rig,
        comparisons: usize,
        rounds: &mut Rounds,
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
    ) -> Result<Vec<Comparison>, Error> {
        let (oltp, stop, connect) = (&self.oltp, self.stop, rig.connect());
        // Another rig is another sample of what rigs differ by, the ids of its load included.
        let seed = seed_of(self.seed, rounds.rigs());
        step("prepare", || oltp.prepare(&connect, stop, |_| ()).map_err(Error::from))?;
        step("ageing", || oltp.age(&connect, !seed, stop).map_err(Error::from))?;
        let server = rig.server().description()?;

        let load = Load::start(&self.oltp, &connect, seed)?;
        let mut done = Vec::new();
        let measured = self.compare_under(rig, &load, &server, (comparisons, rounds), difference, &mut done);
        let stopped = load.stop();
        measured.and_then(|()| match (stopped, done.last_mut()) {
            (Ok(()), _) => Ok(done),
            (Err(error @ workload::Error::Interrupted), _) | (Err(error), None) => Err(error.into()),
            (Err(error), Some(last)) => {
                let why = || format!("the load did not end in order: {error}");
                last.invalid.get_or_insert_with(why);
                Ok(done)
            }
        })
    }

    fn compare_under<D: Difference>(
        &self,
        rig: &Rig,
        load: &Load,
        server: &result::Server,
        (comparisons, rounds): (usize, &mut Rounds),
        difference: &mut impl FnMut(&Rig) -> Result<D, Error>,
        done: &mut Vec<Comparison>,
    ) -> Result<(), Error> {
        say(&format!(
            "warm-up: {:.0} s or more, then {} rounds at least: {}",
            warm_up(self.length).as_secs_f64(),
            rounds.next(),
            minutes(rounds.time(rounds.next()))
        ));
        let mut windows = Windows::warmed_up(rig, load, difference, self.length, self.stop)?;
        timings::mark("first_measured_transaction");
        let began = Instant::now();
        for comparison in 1..=comparisons {
            if comparisons > 1 {
                say(&format!("comparison {comparison} of {comparisons}"));
                *rounds = self.rounds();
            }
            let measured = rounds.measure(&mut windows);
            let ended = match measured {
                Err(Error::Workload(error)) if !matches!(error, workload::Error::Interrupted) => {
                    let what = match load.check() {
                        Ok(()) => "the table cannot be looked at",
                        Err(_) => "the load ended",
                    };
                    Some(format!("{what}: {error}{}", fate(rig)))
                }
                Err(Error::Server(error)) if error.is_lost() => {
                    Some(format!("the server does not answer: {error}{}", fate(rig)))
                }
                Err(error @ Error::Unsettled { .. }) if !done.is_empty() => Some(error.to_string()),
                other => other.map(|()| None)?,
            };
            if let Some(why) = &ended {
                rounds.invalid = Some(format!("round {}: {why}", rounds.under_way()));
            }
            done.push(self.comparison(rig, server.clone(), windows.band(), rounds.clone())?);
            if ended.is_some() {
                break;
            }
        }
        timings::add("rounds", began.elapsed().as_secs_f64());
        Ok(())
    }

    fn rounds(&self) -> Rounds {
        Rounds::new(self.plan, self.length, self.budget)
    }

    fn comparison(
        &self,
        rig: &Rig,
        server: result::Server,
        band: Option<EngineBand>,
        rounds: Rounds,
    ) -> Result<Comparison, Error> {
        let estimates = compare::estimate(&rounds.windows, self.plan.pilot());
        let cows: Vec<_> = rounds.windows.iter().filter_map(|window| window.cow).collect();
        let mut comparison = Comparison {
            // The gate knows the test's name.
            name: String::new(),
            profile: format!("{}-{}{}", self.machine(), server.series, self.scale()),
            throughput: estimates.throughput,
            mean_latency: estimates.mean_latency,
            p95_latency: estimates.p95_latency,
            rounds: estimates.rounds,
            windows_taken_again: rounds.again,
            target_half_width: self.plan.half_width(),
            cow_fill_percent: cows.iter().map(|cow| cow.percent).reduce(f64::max),
            chunks_copied: None,
            band,
            invalid: rounds.invalid,
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
                difference: rounds.difference,
                volume_bytes: rig.mounted().volume().size().as_bytes(),
                filesystem: self.setup.filesystem.to_string(),
                // A loop device without it is refused when it is attached.
                direct_io: Some(true),
                disk_busy_percent: None,
            },
            calibration: Some(rig.calibration()),
            versions: versions(rig)?,
            windows: rounds.windows,
        };
        comparison.chunks_copied = comparison.mean(Side::With, |window| Some(window.cow?.chunks as f64));
        comparison.storage.disk_busy_percent = comparison.mean(Side::Without, |window| window.disk_busy_percent);
        if let Some(short) = compare::short(&comparison, Side::Without) {
            comparison
                .invalid
                .get_or_insert(format!("without the difference, {short}"));
        }
        // A server that became this slow is what was to be found: throughput still counts.
        if compare::short(&comparison, Side::With).is_some() {
            comparison.p95_latency = None;
        }
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
            // A mean of several scatters less from run to run.
            (
                "rigs",
                Some(self.plan.rigs())
                    .filter(|rigs| *rigs > 1)
                    .map(|rigs| rigs.to_string()),
            ),
            ("", cfg!(debug_assertions).then(|| "unoptimised".to_owned())),
        ];
        let set = parts
            .into_iter()
            .filter_map(|(name, value)| Some(format!("-{name}{}", value?)));
        set.collect()
    }
}

/// The seed of a rig, counted from 0: the first has the measurement's own. Threads add their number to it, so that those of
/// two rigs must be far apart.
fn seed_of(seed: u64, rig: usize) -> u64 {
    seed.wrapping_add((rig as u64).wrapping_mul(SEEDS_OF_A_RIG))
}

/// What has become of a server that its clients lost.
fn fate(rig: &Rig) -> String {
    match rig.server().exit_code() {
        Ok(Some(code)) if code > 128 => format!("; the server was killed (status {code})"),
        Ok(Some(code)) => format!("; the server ended (status {code})"),
        Ok(None) => "; its container runs, perhaps since a restart".to_owned(),
        Err(_) => String::new(),
    }
}

/// After a clean-up that failed nothing may be concluded: a server that did not end in order had perhaps not been well
/// before.
fn tainted(mut comparisons: Vec<Comparison>, error: &Error) -> Vec<Comparison> {
    let why = format!("cleaning up failed: {error}");
    say(&why);
    for comparison in &mut comparisons {
        comparison.invalid = Some(match comparison.invalid.take() {
            Some(first) => format!("{first}; {why}"),
            None => why.clone(),
        });
    }
    comparisons
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
        let tainted = tainted(vec![comparison], &killed.into());
        let why = tainted[0].invalid.clone().unwrap();
        assert!(why.starts_with(begins) && why.contains("status 137 (killed"), "{why}");
    }

    #[test]
    fn threads_of_two_rigs_never_have_the_same_seed() {
        let seeds = |rig| seed_of(7, rig)..=seed_of(7, rig).saturating_add(4096);
        assert_eq!(*seeds(0).start(), 7, "the first rig has the measurement's own");
        assert!((0..6).all(|rig| seeds(rig).end() < seeds(rig + 1).start()));
    }
}
