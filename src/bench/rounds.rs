//! The rounds of one comparison.

use std::time::{Duration, Instant};

use super::progress::say;
use super::window::{Taken, Windows};
use super::{Difference, Error, Rig};
use crate::compare::{self, Plan};
use crate::gate;
use crate::result::{Calibration, Side, Window};

/// What a window usually takes beside its own length on a slow machine.
const BETWEEN: Duration = Duration::from_secs(8);

/// Windows that are taken again in a comparison because the host was busy. What is busy for longer voids it.
const MOST_AGAIN: usize = 3;

/// Rounds as planned, within a budget, as far as they got.
#[derive(Clone)]
pub(super) struct Rounds {
    plan: Plan,
    length: Duration,
    budget: Duration,
    /// Rigs that were begun.
    rigs: usize,
    /// Rounds on one rig that would be as precise as all rigs shall be; known after the pilot.
    wanted: usize,
    pub(super) windows: Vec<Window>,
    /// What the disk of the first rig did.
    disk: Option<Calibration>,
    /// Windows that were taken again.
    pub(super) again: usize,
    /// What differed on the with side.
    pub(super) difference: String,
    /// Why nothing may be concluded any more.
    pub(super) invalid: Option<String>,
}

impl Rounds {
    pub(super) fn new(plan: Plan, length: Duration, budget: Duration) -> Self {
        Self {
            plan,
            length,
            budget,
            rigs: 0,
            wanted: plan.pilot(),
            windows: Vec::new(),
            disk: None,
            again: 0,
            difference: "none".into(),
            invalid: None,
        }
    }

    /// The pilot at least must fit, and the least that other rigs take.
    pub(super) fn require_budget(&self) -> Result<(), Error> {
        let needed = self.time(self.plan.total(0));
        if needed <= self.budget {
            return Ok(());
        }
        Err(Error::Budget {
            windows: 2 * self.plan.total(0),
            rigs: self.plan.rigs(),
            length: self.length,
            minutes: needed.as_secs().div_ceil(60),
            budget: self.budget,
        })
    }

    /// All rigs must have the disk that the first one had.
    pub(super) fn require_disk(&mut self, is: Calibration) -> Result<(), Error> {
        let was = self.disk.get_or_insert(is);
        gate::calibration::difference(was, &is).map_or(Ok(()), |difference| Err(Error::AnotherDisk { difference }))
    }

    /// Rigs that were begun.
    pub(super) fn rigs(&self) -> usize {
        self.rigs
    }

    /// Least rounds on the next rig.
    pub(super) fn next(&self) -> usize {
        match self.rigs {
            0 => self.plan.pilot(),
            begun => self.plan.share(self.wanted, begun + 1),
        }
    }

    /// How long so many rounds usually take.
    pub(super) fn time(&self, rounds: usize) -> Duration {
        2 * rounds as u32 * (self.length + BETWEEN)
    }

    /// Whether nothing is left to measure, on another rig.
    pub(super) fn are_complete(&self) -> bool {
        self.invalid.is_some() || self.rigs >= self.plan.rigs()
    }

    /// Rounds on the next rig: on the first the pilot, then as many as that shows to be needed and the budget allows; ends
    /// early when nothing may be concluded any more.
    pub(super) fn measure<F, D>(&mut self, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        self.rigs += 1;
        if self.rigs > 1 {
            return self.begin(self.plan.share(self.wanted, self.rigs), windows);
        }
        let pilot = self.plan.pilot();
        let began = Instant::now();
        self.begin(pilot, windows)?;
        if self.invalid.is_some() {
            return Ok(());
        }
        let took = began.elapsed();
        let wanted = self.plan.rounds(&self.windows);
        self.wanted = wanted.min(self.affordable(wanted, took));
        let rounds = self.plan.total(self.wanted);
        if rounds > pilot {
            let short = if self.wanted < wanted {
                format!(", of {} that it would take", self.plan.total(wanted))
            } else {
                String::new()
            };
            let rigs = match self.plan.rigs() {
                1 => String::new(),
                rigs => format!(" on {rigs} rigs"),
            };
            say(&format!(
                "{rounds} rounds{rigs} for a half-width of {:.1} %{short}: {} of load more",
                100.0 * self.plan.half_width(),
                minutes(took.mul_f64((rounds - pilot) as f64 / pilot as f64))
            ));
        }
        self.take(self.plan.share(self.wanted, 1) - pilot, windows)
    }

    /// The precision, in rounds on one rig, that fits the budget at the pilot's pace.
    fn affordable(&self, wanted: usize, pilot: Duration) -> usize {
        let round = pilot.as_secs_f64() / self.plan.pilot() as f64;
        let room = (self.budget.as_secs_f64() / round) as usize;
        let mut rounds = wanted.min(self.plan.rigs().saturating_mul(room));
        while rounds > self.plan.pilot() && self.plan.total(rounds) > room {
            rounds -= 1;
        }
        rounds
    }

    /// So many rounds more.
    fn take<F, D>(&mut self, rounds: usize, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        let taken = self.windows.len() / 2;
        for round in taken + 1..=taken + rounds {
            self.take_round(round, windows)?;
            if self.invalid.is_some() {
                return Ok(());
            }
            say(&self.shown(round));
        }
        Ok(())
    }

    /// So many rounds on a rig that has none yet. A server that does not come back to its band in the first of them was
    /// not at its pace when the band was taken, so that this is done once more.
    fn begin<F, D>(&mut self, rounds: usize, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        let before = self.windows.len();
        match self.take(rounds, windows) {
            Err(Error::Unsettled { outside, .. }) if self.windows.len() < before + 2 => {
                say(&format!(
                    "the server was not at its pace yet: {outside}; the load is warmed up once more"
                ));
                self.windows.truncate(before);
                windows.warm_up_again()?;
                self.take(rounds, windows)
            }
            other => other,
        }
    }

    fn take_round<F, D>(&mut self, round: usize, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        for side in compare::order(round) {
            let taken = self.take_window(round, side, windows)?;
            if let Some(difference) = taken.difference {
                self.difference = difference;
            }
            self.windows.push(Window {
                rig: self.rigs,
                ..taken.window
            });
            if let Some(why) = taken.invalid {
                let why = format!("round {round}: {why}");
                say(&why);
                self.invalid = Some(why);
                break;
            }
        }
        Ok(())
    }

    /// A window, and again as long as that may help.
    fn take_window<F, D>(&mut self, round: usize, side: Side, windows: &mut Windows<'_, F>) -> Result<Taken, Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        loop {
            let mut taken = windows.take(round, side)?;
            let Some(busy) = taken.busy_host.take().filter(|_| taken.invalid.is_none()) else {
                return Ok(taken);
            };
            if let Err(why) = self.may_take_again(&busy) {
                taken.invalid = Some(why);
                return Ok(taken);
            }
            say(&format!("round {round}: {busy}; the window is taken again"));
        }
    }

    /// Counts a window of a busy host; why not, where there were as many as may be.
    fn may_take_again(&mut self, busy: &str) -> Result<(), String> {
        if self.again == MOST_AGAIN {
            return Err(format!("{busy}, and {MOST_AGAIN} windows were taken again before"));
        }
        self.again += 1;
        Ok(())
    }

    pub(super) fn under_way(&self) -> usize {
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
}

/// A length of time, to be told before it has passed.
pub(super) fn minutes(time: Duration) -> String {
    match time.as_secs_f64() / 60.0 {
        less if less < 1.5 => "about a minute".to_owned(),
        minutes => format!("about {minutes:.0} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LENGTH: Duration = Duration::from_secs(20);

    fn rounds(plan: Plan, minutes: u64) -> Rounds {
        Rounds::new(plan, LENGTH, Duration::from_secs(60 * minutes))
    }

    #[rstest]
    #[case::one_rig_has_room(1, 30, 20, 20)]
    #[case::one_rig_in_whole_blocks(1, 21, 40, 28)]
    #[case::never_less_than_the_pilot(1, 1, 40, 8)]
    #[case::five_rigs_have_room(5, 30, 40, 40)]
    #[case::five_rigs_with_the_least_on_each(5, 18, 40, 24)]
    fn the_budget_cuts_the_rounds(
        #[case] rigs: usize,
        #[case] minutes: u64,
        #[case] wanted: usize,
        #[case] total: usize,
    ) {
        let plan = Plan::new(0.05, 8).on_rigs(rigs);
        // 45 s a round.
        let rounds = rounds(plan, minutes).affordable(wanted, Duration::from_secs(8 * 45));
        assert_eq!(plan.total(rounds), total);
    }

    #[test]
    fn the_fourth_window_of_a_busy_host_voids_the_measurement() {
        let mut rounds = rounds(Plan::new(0.1, 6), 30);
        for _ in 0..3 {
            rounds.may_take_again("busy").unwrap();
        }
        let why = rounds.may_take_again("busy").unwrap_err();
        assert_eq!(why, "busy, and 3 windows were taken again before");
        assert_eq!(rounds.again, 3);
    }

    #[test]
    fn a_rig_on_another_disk_than_the_first_is_refused() {
        let disk = |iops| Calibration {
            iops,
            write_mib_per_second: 200.0,
            flush_milliseconds: 1.0,
        };
        let mut rounds = rounds(Plan::new(0.03, 16).on_rigs(6), 60);
        rounds.require_disk(disk(400.0)).unwrap();
        rounds.require_disk(disk(380.0)).unwrap();
        let error = rounds.require_disk(disk(210.0)).unwrap_err().to_string();
        assert!(error.contains("were 400 and are 210"), "{error}");
    }

    #[rstest]
    #[case::one_rig(1, 8, None)]
    #[case::one_rig_in_less(1, 7, Some(8))]
    #[case::five_rigs(5, 23, None)]
    #[case::five_rigs_in_less(5, 22, Some(23))]
    fn the_least_that_all_rigs_take_must_fit_the_budget(
        #[case] rigs: usize,
        #[case] minutes: u64,
        #[case] needed: Option<u64>,
    ) {
        let refused = rounds(Plan::new(0.05, 8).on_rigs(rigs), minutes).require_budget().err();
        let found = refused.map(|error| match error {
            Error::Budget { minutes, .. } => minutes,
            other => panic!("{other}"),
        });
        assert_eq!(found, needed);
    }
}
