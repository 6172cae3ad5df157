//! How many rounds are measured, and in which order their windows.

use super::interval::{standard_deviation, t_quantile};
use super::rounds::{log_ratios, pair};
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

/// Rounds of a block AB BA.
const BLOCK: usize = 2;

/// How precise a measurement is to be, and how its length is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    half_width: f64,
    pilot: usize,
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
            factor: 1,
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

    /// Rounds to measure in all, the pilot's included: the smallest number of whole blocks, and not less than
    /// the pilot, for which the half-width is reached with the pilot's standard deviation. It may be out of
    /// reach of any budget. When the pilot's windows are not estimable more rounds would not help, and it is
    /// the pilot's number.
    #[must_use]
    pub fn rounds(&self, pilot_windows: &[Window]) -> usize {
        let mut rounds = pair(pilot_windows);
        rounds.truncate(self.pilot);
        let needed = log_ratios(&rounds, statement_rate).and_then(|ratios| {
            let t = t_quantile(ratios.len().checked_sub(1)?)?;
            Some((t * standard_deviation(&ratios) / self.half_width).powi(2).ceil())
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
