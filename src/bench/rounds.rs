//! The rounds of one comparison.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::progress::say;
use super::window::Windows;
use super::{Difference, Error, Rig};
use crate::compare::{self, Plan};
use crate::result::{Side, Window};

/// What a window usually takes beside its own length on a slow machine.
const BETWEEN: Duration = Duration::from_secs(8);

/// Rounds as planned, within a budget, as far as they got.
pub(super) struct Rounds {
    plan: Plan,
    length: Duration,
    budget: Duration,
    pub(super) windows: Vec<Window>,
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
            windows: Vec::new(),
            difference: "none".into(),
            invalid: None,
        }
    }

    /// The pilot at least must fit.
    pub(super) fn require_budget(&self) -> Result<(), Error> {
        let needed = self.pilot_time();
        if needed <= self.budget {
            return Ok(());
        }
        Err(Error::Budget {
            windows: 2 * self.plan.pilot(),
            length: self.length,
            minutes: needed.as_secs().div_ceil(60),
            budget: self.budget,
        })
    }

    /// How long the pilot usually takes.
    pub(super) fn pilot_time(&self) -> Duration {
        2 * self.plan.pilot() as u32 * (self.length + BETWEEN)
    }

    /// The pilot, then as many rounds as that shows to be needed and the budget allows; ends early when nothing may be
    /// concluded any more.
    pub(super) fn measure<F, D>(&mut self, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        let began = Instant::now();
        let pilot = self.plan.pilot();
        self.take(1..=pilot, windows)?;
        let wanted = self.plan.rounds(&self.windows);
        let rounds = wanted.min(self.affordable(began.elapsed()));
        if rounds > pilot && self.invalid.is_none() {
            let more = (rounds - pilot) as f64 / pilot as f64;
            let short = if rounds < wanted {
                format!(", of {wanted} that it would take")
            } else {
                String::new()
            };
            say(&format!(
                "{rounds} rounds for a half-width of {:.1} %{short}: {} more",
                100.0 * self.plan.half_width(),
                minutes(began.elapsed().mul_f64(more))
            ));
            self.take(pilot + 1..=rounds, windows)?;
        }
        Ok(())
    }

    /// Whole blocks of rounds that fit the budget, at the pilot's pace.
    fn affordable(&self, pilot: Duration) -> usize {
        let round = pilot.as_secs_f64() / self.plan.pilot() as f64;
        let rounds = (self.budget.as_secs_f64() / round) as usize;
        (rounds - rounds % 2).max(self.plan.pilot())
    }

    fn take<F, D>(&mut self, rounds: RangeInclusive<usize>, windows: &mut Windows<'_, F>) -> Result<(), Error>
    where
        F: FnMut(&Rig) -> Result<D, Error>,
        D: Difference,
    {
        for round in rounds {
            for side in compare::order(round) {
                let taken = windows.take(round, side)?;
                if let Some(difference) = taken.difference {
                    self.difference = difference;
                }
                self.windows.push(taken.window);
                if let Some(why) = taken.invalid {
                    self.invalid = Some(format!("round {round}: {why}"));
                    return Ok(());
                }
            }
            say(&self.shown(round));
        }
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
