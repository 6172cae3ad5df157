//! Student's t interval of log-ratios.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::result::Figure;

/// A 95 % interval of a log-ratio.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) centre: f64,
    pub(super) half_width: f64,
}

impl Interval {
    /// The interval of the mean of the rigs' means, with the standard deviation within rigs and the degrees of freedom of
    /// the first `pilot` rounds, or where there are several rigs the standard deviation of all rounds if that is larger;
    /// `None` when no rig has 2 of them.
    ///
    /// Each rig counts as much as any other, however many rounds it has: what differs from rig to rig is cancelled best
    /// by that.
    pub(super) fn student(rigs: &[Vec<f64>], pilot: usize) -> Option<Self> {
        let means: Vec<f64> = rigs.iter().map(|rounds| mean(rounds)).collect();
        let (mut deviation, freedom) = within(rigs, pilot.max(2))?;
        if rigs.len() > 1 {
            // Most of what is estimated is not of the pilot then: what stalls elsewhere must not go unseen.
            deviation = deviation.max(within(rigs, usize::MAX)?.0);
        }
        let parts: f64 = rigs.iter().map(|rounds| 1.0 / rounds.len() as f64).sum();
        Some(Self {
            centre: mean(&means),
            half_width: t_quantile(freedom)? * deviation * parts.sqrt() / rigs.len() as f64,
        })
    }

    /// The figure with this interval for its ratio; the two sides are for display.
    pub(super) fn figure(self, without: f64, with: f64) -> Figure {
        Figure {
            without,
            with,
            ratio: self.centre.exp(),
            low: (self.centre - self.half_width).exp(),
            high: (self.centre + self.half_width).exp(),
        }
    }
}

/// The standard deviation within rigs of the first `count` rounds, and its degrees of freedom.
pub(super) fn within(rigs: &[Vec<f64>], count: usize) -> Option<(f64, usize)> {
    let (mut left, mut squares, mut freedom) = (count, 0.0, 0);
    for rounds in rigs {
        let rounds = &rounds[..left.min(rounds.len())];
        left -= rounds.len();
        if rounds.is_empty() {
            break;
        }
        let mean = mean(rounds);
        squares += rounds.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        freedom += rounds.len() - 1;
    }
    (freedom > 0).then(|| ((squares / freedom as f64).sqrt(), freedom))
}

/// The 0.975 quantile of Student's t; `None` without degrees of freedom.
pub(super) fn t_quantile(degrees_of_freedom: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).ok()?;
    Some(t.inverse_cdf(0.975))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(1, 12.7062)]
    #[case(7, 2.3646)]
    #[case(30, 2.0423)]
    fn quantiles_are_those_of_the_printed_tables(#[case] degrees_of_freedom: usize, #[case] quantile: f64) {
        assert!((t_quantile(degrees_of_freedom).unwrap() - quantile).abs() < 1e-4);
    }

    #[test]
    fn the_interval_is_that_of_a_worked_example() {
        let interval = Interval::student(&[vec![1.0, 2.0, 3.0, 4.0]], 8).unwrap();
        assert!((interval.centre - 2.5).abs() < 1e-12);
        assert!((interval.half_width - 3.18245 * 1.290994 / 2.0).abs() < 1e-4);
    }

    #[test]
    fn rounds_after_the_pilot_move_the_mean_but_not_the_standard_deviation() {
        let quiet = Interval::student(&[vec![1.0, 2.0, 3.0, 4.0, 2.5, 2.5]], 4).unwrap();
        let wild = Interval::student(&[vec![1.0, 2.0, 3.0, 4.0, 9.0, -9.0]], 4).unwrap();
        assert!((quiet.half_width - wild.half_width).abs() < 1e-12);
        assert!((wild.centre - 10.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn rigs_count_alike_and_what_they_differ_by_is_not_in_the_interval() {
        let one = vec![1.0, 2.0, 3.0, 4.0];
        let other = vec![11.0, 12.0];
        let interval = Interval::student(&[one.clone(), other], 4).unwrap();
        assert!((interval.centre - (2.5 + 11.5) / 2.0).abs() < 1e-12);
        let deviation = within(&[one], 4).unwrap().0;
        let expected = 3.18245 * deviation * (1.0_f64 / 4.0 + 1.0 / 2.0).sqrt() / 2.0;
        assert!((interval.half_width - expected).abs() < 1e-4, "{interval:?}");
    }

    #[test]
    fn what_scatters_on_a_later_rig_widens_the_interval() {
        let pilot = vec![1.0, 1.1, 1.0, 1.1];
        let of = |other: &[f64]| {
            Interval::student(&[pilot.clone(), other.to_vec()], 4)
                .unwrap()
                .half_width
        };
        assert!(of(&[1.0, 9.0]) > 10.0 * of(&[1.0, 1.1]));
    }

    #[test]
    fn one_value_has_no_interval() {
        assert!(Interval::student(&[vec![0.1]], 8).is_none());
        assert!(Interval::student(&[], 8).is_none());
        assert!(t_quantile(0).is_none());
    }
}
