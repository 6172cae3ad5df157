//! Where a series of runs changed its level.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// Runs on either side of a change, at least: fewer say nothing about a level.
const FEWEST: usize = 3;

/// Random orders of a series that it is compared with.
const ORDERS: usize = 999;

/// How rarely chance may give what is called a change.
const CHANCE: f64 = 0.005;

/// So many of the newest values are looked at: the time that it takes grows with the square of their number.
const NEWEST: usize = 300;

/// Finds where a series changes, as the indices at which a new level begins, in order. Of a long series the newest 300
/// values are looked at.
///
/// E-divisive (D. S. Matteson and N. A. James, "A nonparametric approach for multiple change point analysis of
/// multivariate data", Journal of the American Statistical Association 109, 2014) with exponent 1: the series is split
/// where the two parts differ most in energy distance, as long as that is more than all but one in 200 random orders of
/// the same values give. It needs no assumption on how values scatter, and sees a change of spread as well as one of
/// level. The random orders are the same for the same series.
///
/// ```
/// use snaptax::compare::changes;
///
/// let ratios = [0.61, 0.60, 0.62, 0.60, 0.61, 0.62, 0.52, 0.51, 0.53, 0.52, 0.51, 0.52];
/// assert_eq!(changes(&ratios.map(f64::ln)), [6]);
/// ```
#[must_use]
pub fn changes(series: &[f64]) -> Vec<usize> {
    let older = series.len().saturating_sub(NEWEST);
    let found = changes_in_all(&series[older..]);
    found.into_iter().map(|change| older + change).collect()
}

fn changes_in_all(series: &[f64]) -> Vec<usize> {
    let mut rng = StdRng::seed_from_u64(series.len() as u64);
    let mut edges = vec![0, series.len()];
    loop {
        let parts: Vec<&[f64]> = edges.windows(2).map(|edge| &series[edge[0]..edge[1]]).collect();
        let Some((part, split)) = largest(&parts) else { break };
        if !is_beyond_chance(&parts, split.distance, &mut rng) {
            break;
        }
        edges.insert(part + 1, edges[part] + split.at);
    }
    edges[1..edges.len() - 1].to_vec()
}

/// Two parts of a series.
#[derive(Debug, Clone, Copy)]
struct Split {
    at: usize,
    distance: f64,
}

/// The part whose best split is the largest of all.
fn largest(parts: &[&[f64]]) -> Option<(usize, Split)> {
    let splits = parts
        .iter()
        .enumerate()
        .filter_map(|(part, values)| Some((part, best(values)?)));
    splits.max_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance))
}

/// Whether other orders of the same values, each within its part, hardly ever give so large a distance.
fn is_beyond_chance(parts: &[&[f64]], distance: f64, rng: &mut impl RngExt) -> bool {
    let most = (CHANCE * (ORDERS + 1) as f64) as usize - 1;
    let mut larger = 0;
    for _ in 0..ORDERS {
        let shuffled: Vec<Vec<f64>> = parts
            .iter()
            .map(|part| {
                let mut part = part.to_vec();
                part.shuffle(rng);
                part
            })
            .collect();
        let shuffled: Vec<&[f64]> = shuffled.iter().map(Vec::as_slice).collect();
        larger += usize::from(largest(&shuffled).is_some_and(|(_, split)| split.distance >= distance));
        if larger > most {
            return false;
        }
    }
    true
}

/// The split of the largest energy distance, each part counted by its size.
fn best(values: &[f64]) -> Option<Split> {
    let total = values.len();
    if total < 2 * FEWEST {
        return None;
    }
    // Sums of distances within the left part, within the right one, and between them, as values move from right to left.
    let distances = |value: f64, others: &[f64]| others.iter().map(|other| (value - other).abs()).sum::<f64>();
    let mut right = (0..total).map(|i| distances(values[i], &values[i + 1..])).sum::<f64>();
    let (mut left, mut between) = (0.0, 0.0);
    let mut found: Option<Split> = None;
    for at in 1..=total - FEWEST {
        let (moved, before, after) = (values[at - 1], &values[..at - 1], &values[at..]);
        let (to_left, to_right) = (distances(moved, before), distances(moved, after));
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        if at < FEWEST {
            continue;
        }
        let (n, m) = (at as f64, (total - at) as f64);
        let pairs = |count: f64| count * (count - 1.0) / 2.0;
        let energy = 2.0 * between / (n * m) - left / pairs(n) - right / pairs(m);
        let distance = n * m / (n + m) * energy;
        if found.is_none_or(|found| distance > found.distance) {
            found = Some(Split { at, distance });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::normals;
    use proptest::prelude::*;
    use rstest::rstest;

    fn standard(seed: u64, n: usize) -> Vec<f64> {
        normals(&mut StdRng::seed_from_u64(seed), n, 0.0, 1.0)
    }

    /// Standard normal values, with a shift of `size` for those from `at` on.
    fn shifted(seed: u64, n: usize, at: usize, size: f64) -> Vec<f64> {
        let values = standard(seed, n).into_iter().enumerate();
        values
            .map(|(i, value)| value + if i < at { 0.0 } else { size })
            .collect()
    }

    #[rstest]
    #[case(12)]
    #[case(40)]
    fn a_series_of_one_level_hardly_ever_has_a_change(#[case] n: usize) {
        let called = (0..200).filter(|seed| !changes(&standard(*seed, n)).is_empty()).count();
        assert!(called <= 5, "{called} of 200");
    }

    #[test]
    fn a_shift_of_three_deviations_is_found_where_it_is() {
        let found = (0..60)
            .filter(|seed| {
                let found = changes(&shifted(*seed, 24, 16, 3.0));
                found.len() == 1 && found[0].abs_diff(16) <= 1
            })
            .count();
        assert!(found >= 54, "{found} of 60");
    }

    #[test]
    fn every_step_of_a_stair_is_found() {
        let mut values = shifted(7, 45, 15, 6.0);
        values[30..].iter_mut().for_each(|value| *value -= 12.0);
        let found = changes(&values);
        assert_eq!(found, [15, 30]);
    }

    #[test]
    fn of_a_long_series_the_newest_values_are_looked_at() {
        let mut values = shifted(7, 4000, 3960, 6.0);
        values[..3000].iter_mut().for_each(|value| *value -= 12.0);
        assert_eq!(changes(&values), [3960]);
    }

    #[rstest]
    #[case::nothing(&[])]
    #[case::too_few(&[1.0, 1.0, 1.0, 9.0, 9.0])]
    #[case::all_the_same(&[0.6; 20])]
    fn a_change_takes_values_on_both_sides(#[case] series: &[f64]) {
        assert_eq!(changes(series), Vec::<usize>::new());
    }

    /// By the definition, without running sums.
    fn distance(values: &[f64], at: usize) -> f64 {
        let mean = |a: &[f64], b: &[f64]| {
            let sum: f64 = a.iter().flat_map(|x| b.iter().map(move |y| (x - y).abs())).sum();
            sum / (a.len() * b.len()) as f64
        };
        let (left, right) = values.split_at(at);
        let (n, m) = (left.len() as f64, right.len() as f64);
        let within = |part: &[f64]| mean(part, part) * part.len() as f64 / (part.len() as f64 - 1.0);
        n * m / (n + m) * (2.0 * mean(left, right) - within(left) - within(right))
    }

    proptest! {
        #[test]
        fn the_best_split_is_the_largest_by_definition(values in prop::collection::vec(-5.0..5.0_f64, 6..20)) {
            let split = best(&values).unwrap();
            prop_assert!((split.distance - distance(&values, split.at)).abs() < 1e-9);
            for at in FEWEST..=values.len() - FEWEST {
                prop_assert!(distance(&values, at) <= split.distance + 1e-9);
            }
        }
    }
}
