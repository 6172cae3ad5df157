//! How many rounds are measured, and in which order their windows.

use super::interval::{t_quantile, within};
use super::rounds::{by_rig, log_ratios, pair};
use super::statement_rate;
use crate::result::{Side, Window};

/// Rounds of the pilot.
pub const PILOT: usize = 8;

/// Rounds of the pilot of a fine measurement.
const FINE_PILOT: usize = 16;

/// The half-width up to which a measurement is fine.
const FINE: f64 = 0.04;

/// Rounds of the pilot of a coarse measurement.
const COARSE_PILOT: usize = 6;

/// The half-width from which on a measurement is coarse.
const COARSE: f64 = 0.10;

/// Rounds of the pilot for this half-width: 8, or 6 when it is 0.10 or more, or 16 when it is 0.04 or less.
///
/// A short pilot makes the whole measurement longer where more rounds follow: Student's t of 5 degrees of freedom is
/// larger than that of 7. Where none are likely to follow, it makes room for longer windows. Where many follow, a short
/// one is not worth it: one window that stalls in eight rounds makes the plan ask for three times too many.
#[must_use]
pub fn pilot_for(half_width: f64) -> usize {
    match half_width {
        fine if fine <= FINE => FINE_PILOT,
        coarse if coarse >= COARSE => COARSE_PILOT,
        _ => PILOT,
    }
}

/// Rigs that a measurement of this half-width is made on: 1, or 6 when it is 0.04 or less.
///
/// More rounds make a rig's ratio as precise as one likes. What rigs differ by stays, and where it is not small beside
/// the half-width, only more rigs make it smaller.
#[must_use]
pub fn rigs_for(half_width: f64) -> usize {
    if half_width <= FINE { FINE_RIGS } else { 1 }
}

/// Rigs of a fine measurement.
const FINE_RIGS: usize = 6;

/// Rounds of a block AB BA.
const BLOCK: usize = 2;

/// Least rounds on a rig after the first: a warm-up for less would be a waste.
const LEAST: usize = 2 * BLOCK;

/// How precise a measurement is to be, and how its length is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    half_width: f64,
    pilot: usize,
    rigs: usize,
    /// Rounds for each round that Stein's formula asks for.
    factor: usize,
}

impl Plan {
    /// A plan for a throughput interval of this half-width, `(ln high - ln low) / 2` (0.05 is about 5 %),
    /// after a pilot of so many rounds, raised to whole blocks of 2.
    #[must_use]
    pub fn new(half_width: f64, pilot: usize) -> Self {
        Self {
            half_width,
            pilot: pilot.max(BLOCK).next_multiple_of(BLOCK),
            rigs: 1,
            factor: 1,
        }
    }

    /// The same on so many rigs, 1 at least. The pilot is measured on the first.
    #[must_use]
    pub fn on_rigs(self, rigs: usize) -> Self {
        Self {
            rigs: rigs.max(1),
            ..self
        }
    }

    /// The plan for measuring again what was inconclusive, on a fresh rig: twice the pilot, and twice the rounds that
    /// the half-width takes.
    #[must_use]
    pub fn doubled(self) -> Self {
        Self {
            pilot: 2 * self.pilot,
            factor: 2 * self.factor,
            ..self
        }
    }

    /// The half-width aimed at.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        self.half_width
    }

    /// Rounds of the pilot.
    #[must_use]
    pub fn pilot(&self) -> usize {
        self.pilot
    }

    /// The number of rigs.
    #[must_use]
    pub fn rigs(&self) -> usize {
        self.rigs
    }

    /// Rounds to measure on this rig, counted from 1, for a precision of so many `rounds` on one: equal shares of them in
    /// whole blocks, but the pilot at least on the first rig, and 4 at least on the others.
    #[must_use]
    pub fn share(&self, rounds: usize, rig: usize) -> usize {
        let least = if rig == 1 { self.pilot } else { LEAST };
        rounds.div_ceil(self.rigs).next_multiple_of(BLOCK).max(least)
    }

    /// Rounds on all rigs, for a precision of so many on one.
    #[must_use]
    pub fn total(&self, rounds: usize) -> usize {
        (1..=self.rigs)
            .map(|rig| self.share(rounds, rig))
            .fold(0, usize::saturating_add)
    }

    /// Rounds that the half-width would take on one rig, the pilot's included: the smallest number of whole blocks, and not
    /// less than the pilot, for which the half-width is reached with the pilot's standard deviation. It may be out of
    /// reach of any budget. When the pilot's windows are not estimable more rounds would not help, and it is
    /// the pilot's number.
    #[must_use]
    pub fn rounds(&self, pilot_windows: &[Window]) -> usize {
        let mut rounds = pair(pilot_windows);
        rounds.truncate(self.pilot);
        let needed = log_ratios(&rounds, statement_rate).and_then(|ratios| {
            let (deviation, freedom) = within(&by_rig(&rounds, &ratios), self.pilot)?;
            Some((t_quantile(freedom)? * deviation / self.half_width).powi(2).ceil())
        });
        // A half-width of 0 asks for infinitely many; the cast saturates.
        let needed = needed.map_or(0, |rounds| (self.factor as f64 * rounds) as usize);
        let needed = needed.min(usize::MAX - BLOCK);
        needed.max(self.pilot).next_multiple_of(BLOCK)
    }
}

/// Which side comes first in a round, counted from 1: AB BA AB BA ...
#[must_use]
pub fn order(round: usize) -> [Side; 2] {
    if !round.is_multiple_of(2) {
        [Side::Without, Side::With]
    } else {
        [Side::With, Side::Without]
    }
}
