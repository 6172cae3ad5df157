//! Rounds that are far from the others.

use super::rounds::{log_ratios, pair};
use super::statement_rate;
use crate::result::Window;

/// The median absolute deviation of normal values is this part of their standard deviation.
const MAD: f64 = 0.6745;

/// Robust standard deviations from the median that 99 of 100 rounds of so many independent normal ones stay within
/// (900 000 simulated rounds each). The median absolute deviation of few rounds scatters much, so that the limit is far
/// from the 2.6 of a known standard deviation.
const LIMITS: [(usize, f64); 8] = [
    (6, 5.6),
    (8, 4.6),
    (10, 4.1),
    (12, 3.8),
    (16, 3.6),
    (20, 3.4),
    (30, 3.2),
    (60, 3.0),
];

/// Below this no round can be told from the others.
const FEWEST: usize = 6;

/// A round that is far from the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlier {
    /// The round.
    pub round: usize,
    /// Its throughput ratio.
    pub ratio: f64,
    /// The median of the throughput ratios of all rounds.
    pub median: f64,
}

/// The rounds whose log-ratio of throughput is further from the median of all than chance makes one in 100, measured by
/// the median absolute deviation (F. R. Hampel, "The influence curve and its role in robust estimation", Journal of the
/// American Statistical Association 69, 1974).
///
/// They are for a reader to look at. No estimate leaves them out: what stalls a server now and then is part of what a
/// snapshot costs, and an interval without the rounds that do not suit it covers less than it says.
#[must_use]
pub fn outliers(windows: &[Window]) -> Vec<Outlier> {
    let rounds = pair(windows);
    let Some(ratios) = log_ratios(&rounds, statement_rate).filter(|ratios| ratios.len() >= FEWEST) else {
        return Vec::new();
    };
    let centre = median(&ratios);
    let deviations: Vec<f64> = ratios.iter().map(|ratio| (ratio - centre).abs()).collect();
    let few = LIMITS.iter().rfind(|(rounds, _)| ratios.len() >= *rounds);
    let limit = few.map_or(f64::INFINITY, |(_, limit)| *limit) * median(&deviations) / MAD;
    let far = rounds.iter().zip(&ratios).zip(&deviations);
    far.filter(|(_, deviation)| **deviation > limit)
        .map(|((round, ratio), _)| Outlier {
            round: round.number(),
            ratio: ratio.exp(),
            median: centre.exp(),
        })
        .collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{normals, rounds_of};
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rstest::rstest;

    #[rstest]
    #[case(6)]
    #[case(8)]
    #[case(12)]
    #[case(40)]
    fn one_normal_round_in_100_is_called_an_outlier(#[case] n: usize) {
        let series = 20_000 / n as u64;
        let called: usize = (0..series)
            .map(|seed| {
                let ratios = normals(&mut StdRng::seed_from_u64(seed), n, -0.5, 0.05);
                outliers(&rounds_of(&ratios)).len()
            })
            .sum();
        let share = called as f64 / (series * n as u64) as f64;
        assert!((0.004..0.0125).contains(&share), "{share}");
    }

    #[test]
    fn a_round_far_from_the_others_is_named() {
        let ratios = [0.59, 0.60, 0.58, 0.59, 0.60, 0.58, 0.59, 0.75].map(f64::ln);
        let found = outliers(&rounds_of(&ratios));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].round, 8);
        assert!(
            (found[0].ratio - 0.75).abs() < 1e-6 && (found[0].median - 0.59).abs() < 1e-6,
            "{found:?}"
        );
    }

    #[rstest]
    #[case::too_few(&[0.1, 0.1, 0.1, 0.1, 3.0])]
    #[case::all_the_same(&[0.1; 8])]
    fn none_are_named_among(#[case] ratios: &[f64]) {
        assert_eq!(outliers(&rounds_of(ratios)), []);
    }
}
