//! Whether rounds follow from the rounds before them.

use super::interval::mean;

/// Correlation that the intervals bear: at 0.2 the variance of a mean of many rounds is about one and a half
/// times what the interval takes it for.
const TOLERATED: f64 = 0.2;

/// Standard deviations beyond which chance is no explanation, as for proposed bounds: 1 in 2000 on one side.
const BEYOND_CHANCE: f64 = 3.3;

/// What 1999 of 2000 series of so many independent normal values stay below (two million simulated series each). The
/// normal approximation is above the largest value that the coefficient can have, cos(2 pi / (n + 1)), for 6 and 8.
const FEW: [(usize, f64); 5] = [(6, 0.595), (8, 0.667), (10, 0.668), (12, 0.669), (16, 0.627)];

/// Below this the coefficient says nothing at all.
const FEWEST: usize = 6;

/// The lag-1 correlation of a series of rounds.
///
/// Independent rounds scatter: with 8 of them the coefficient has a standard deviation of 0.28 around -0.13,
/// so that a bare limit of 0.2 would turn down one honest measurement in eight. It therefore counts only when
/// it is above 0.2 *and* above what 1999 of 2000 independent series stay below: by simulation for up to 16 rounds, and
/// for more from the mean -1/n and variance (n-2)^2 / (n^2 (n-1)) (M. G. Kendall, Biometrika 41, 1954). With 6 rounds
/// that is 0.59, with 8 it is 0.67: a weaker correlation cannot be told from chance there, and it is only reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlation {
    /// The coefficient, -1 to 1.
    pub lag1: f64,
    /// The limit above which rounds do not count as independent.
    pub limit: f64,
}

impl Correlation {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mean = mean(values);
        let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        if values.len() < FEWEST || variance == 0.0 {
            return None;
        }
        let covariance: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let n = values.len() as f64;
        let few = FEW.iter().find(|(rounds, _)| values.len() <= *rounds);
        let many = -1.0 / n + BEYOND_CHANCE * (n - 2.0) / (n * (n - 1.0).sqrt());
        let chance = few.map_or(many, |(_, limit)| *limit);
        Some(Self {
            lag1: covariance / variance,
            limit: chance.max(TOLERATED),
        })
    }

    /// Whether rounds follow from each other, so that the interval is too narrow.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.lag1 > self.limit
    }

    /// Whether it is worth a word: more than the interval bears, chance or not.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.lag1 > TOLERATED
    }
}
