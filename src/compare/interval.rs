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
    /// The interval of the mean of all `values`, with the standard deviation and degrees of freedom of the
    /// first `pilot`; `None` with fewer than 2 values.
    pub(super) fn student(values: &[f64], pilot: usize) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let pilot = &values[..pilot.clamp(2, values.len())];
        Some(Self {
            centre: mean(values),
            half_width: t_quantile(pilot.len() - 1)? * standard_deviation(pilot) / (values.len() as f64).sqrt(),
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

/// The 0.975 quantile of Student's t; `None` without degrees of freedom.
pub(super) fn t_quantile(degrees_of_freedom: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).ok()?;
    Some(t.inverse_cdf(0.975))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation, with n - 1.
pub(super) fn standard_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
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
        let interval = Interval::student(&[1.0, 2.0, 3.0, 4.0], 8).unwrap();
        assert!((interval.centre - 2.5).abs() < 1e-12);
        assert!((interval.half_width - 3.18245 * 1.290994 / 2.0).abs() < 1e-4);
    }

    #[test]
    fn rounds_after_the_pilot_move_the_mean_but_not_the_standard_deviation() {
        let quiet = Interval::student(&[1.0, 2.0, 3.0, 4.0, 2.5, 2.5], 4).unwrap();
        let wild = Interval::student(&[1.0, 2.0, 3.0, 4.0, 9.0, -9.0], 4).unwrap();
        assert!((quiet.half_width - wild.half_width).abs() < 1e-12);
        assert!((wild.centre - 10.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn one_value_has_no_interval() {
        assert!(Interval::student(&[0.1], 8).is_none());
        assert!(t_quantile(0).is_none());
    }
}
