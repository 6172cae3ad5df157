//! What a ratio may be.

use std::fmt;

use serde::Deserialize;
use statrs::distribution::{ChiSquared, ContinuousCDF, StudentsT};

use super::calibration;
use crate::result::{Calibration, Comparison, Figure, Range, Ranges};

/// Half-widths of its own interval by which a single measurement's ratio is widened.
///
/// The next estimate differs from this one with sqrt(2) times the standard error; 3.3 of that, as for bounds
/// from several runs, is 4.67 standard errors, or 2.0 half-widths at the 7 degrees of freedom of a pilot. The
/// half-width being an estimate itself, 2.5.
const HALF_WIDTHS: f64 = 2.5;

/// The least widening: the same 4.67 for a standard deviation of 2 % between runs, of which a single run
/// shows nothing.
const LEAST_WIDENING: f64 = 1.10;

/// Runs that bounds from several runs take, at least.
const FEWEST_RUNS: usize = 5;

/// Degrees of freedom that the presumed standard deviation of runs counts for, beside those of the runs at hand.
///
/// The standard deviation of five runs is below half of the true one in every eleventh case, and bounds made from it
/// alone need a Student's t of 4 degrees of freedom: so wide that they miss a loss of 10 %.
const PRESUMED_FREEDOM: f64 = 12.0;

/// Presumed standard deviation of throughput between runs, beyond their own intervals, where the half-width aimed at is
/// below 5 % and a loss of 10 % is to be found. Bounds that bear more would miss it.
const PRESUMED_FINE: f64 = 0.013;

/// The same from 5 % on, where a loss of 20 % is to be found.
const PRESUMED: f64 = 0.03;

/// The same of the p95 latency, whatever the half-width.
const PRESUMED_P95: f64 = 0.20;

/// The chance that the next estimate of throughput is beyond one end of the bounds. It then is measured again, and only
/// fails if it is beyond them a second time, or with its whole interval.
const BEYOND: f64 = 0.005;

/// The same of the p95 latency: its intervals are narrow by luck now and then, so that most of what is beyond fails.
const BEYOND_P95: f64 = 0.0005;

/// How rarely runs of unchanged code are as far apart as those that are refused. It is far rarer than a false alarm, for
/// machines on which rigs differ by twice what is presumed must have bounds, too.
const TOO_FAR_APART: f64 = 1e-4;

/// The bounds of one experiment on one profile: the body of a snapshot file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Of the throughput ratio.
    pub throughput: Range,
    /// Of the p95 latency ratio; `None` to judge by throughput alone.
    pub p95_latency: Option<Range>,
    /// What the disk did when they were made.
    pub calibration: Option<Calibration>,
    /// Why they were loosened.
    pub reason: Option<String>,
}

impl Bounds {
    /// Reads bounds from a snapshot file's body.
    ///
    /// # Errors
    /// With what is wrong with them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bounds: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        bounds.throughput.check("throughput")?;
        if let Some(range) = bounds.p95_latency {
            range.check("p95_latency")?;
        }
        if let Some(calibration) = &bounds.calibration {
            calibration::check(calibration)?;
        }
        if bounds.reason.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
            return Err("reason is empty: write down why the bounds were loosened".into());
        }
        Ok(bounds)
    }

    /// Bounds around a single measurement: each ratio times and divided by the exponential of 2.5 of its
    /// half-widths, or by 1.10 if that is wider, rounded outward to three digits. With the measurement's calibration. `None`
    /// without a throughput.
    #[must_use]
    pub fn proposed(comparison: &Comparison) -> Option<Self> {
        Some(Self {
            throughput: Range::around(&comparison.throughput?),
            p95_latency: comparison.p95_latency.as_ref().map(Range::around),
            calibration: comparison.calibration.as_ref().and_then(written),
            reason: None,
        })
    }

    /// Bounds from at least five runs that do not differ, each on a rig of its own; `None` from fewer, or if one of
    /// them has no throughput, or was on a clearly different disk than the last. Ratios are rounded outward to three digits; p95 latency has bounds if all have it, and the
    /// calibration is the last run's.
    ///
    /// In logarithms, with mean *m* and standard deviation *s* of the *n* runs, they are *m* -+ *t S* sqrt(1 + 1/*n*),
    /// the range in which the next run is predicted. *S* squared is the mean, by degrees of freedom, of *s* squared and of a
    /// presumed variance, that of the runs' own intervals and of what rigs usually differ by together, so that five runs that
    /// happen to agree do not make bounds too tight (a moderated *t*: G. K. Smyth, "Linear models and empirical Bayes
    /// methods for assessing differential expression in microarray experiments", Statistical Applications in Genetics
    /// and Molecular Biology 3, 2004). Its weight and *t* were found by simulation: `cargo bench --bench verdicts`.
    #[must_use]
    pub fn from_runs(runs: &[Comparison]) -> Option<Self> {
        let calibrations = || runs.iter().filter_map(|run| run.calibration.as_ref());
        let last = calibrations().next_back();
        let another_disk = |was| last.is_some_and(|is| calibration::difference(was, is).is_some());
        if runs.len() < FEWEST_RUNS || calibrations().any(another_disk) {
            return None;
        }
        let presumed = presumed(runs);
        let throughput: Option<Vec<Figure>> = runs.iter().map(|run| run.throughput).collect();
        let p95_latency: Option<Vec<Figure>> = runs.iter().map(|run| run.p95_latency).collect();
        Some(Self {
            throughput: Range::predicted(&throughput?, presumed, BEYOND)?,
            p95_latency: p95_latency.and_then(|figures| Range::predicted(&figures, PRESUMED_P95, BEYOND_P95)),
            calibration: runs.last().and_then(|run| written(run.calibration.as_ref()?)),
            reason: None,
        })
    }

    /// The standard deviation of the runs' log-ratios and the one to be expected of unchanged code, if chance hardly ever
    /// makes so large a one of that.
    pub(super) fn excess_scatter(runs: &[Comparison]) -> Option<(f64, f64)> {
        let figures: Vec<Figure> = runs.iter().filter_map(|run| run.throughput).collect();
        let (_, squares) = centre_and_squares(&figures);
        let expected = presumed(runs).powi(2) + of_intervals(&figures);
        let freedom = figures.len().checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
        let most = ChiSquared::new(freedom).ok()?.inverse_cdf(1.0 - TOO_FAR_APART);
        (squares > most * expected).then(|| ((squares / freedom).sqrt(), expected.sqrt()))
    }

    /// The ranges alone.
    pub(super) fn ranges(&self) -> Ranges {
        Ranges {
            throughput: self.throughput,
            p95_latency: self.p95_latency,
        }
    }

    /// These bounds, but `old` ranges where the estimate is still inside.
    pub(super) fn only_where_broken(mut self, comparison: &Comparison, old: &Self) -> Self {
        let holds = |range: Range, figure: Option<Figure>| figure.is_some_and(|figure| range.contains(figure.ratio));
        if holds(old.throughput, comparison.throughput) {
            self.throughput = old.throughput;
        }
        if old.p95_latency.is_none_or(|range| holds(range, comparison.p95_latency)) {
            self.p95_latency = old.p95_latency;
        }
        // Ranges that are kept are for the disk that they were made on.
        if self.throughput == old.throughput || self.p95_latency == old.p95_latency {
            self.calibration = old.calibration.or(self.calibration);
        }
        self
    }

    /// These bounds in the place of `old` ones: a p95 latency that was not estimable keeps its range, a disk that
    /// was not calibrated its calibration.
    pub(super) fn replacing(mut self, old: &Self) -> Self {
        self.p95_latency = self.p95_latency.or(old.p95_latency);
        self.calibration = self.calibration.or(old.calibration);
        self.superseding(old.ranges())
    }

    /// These bounds in the place of `old` ranges, of which nothing holds any more: bounds that tolerate more get an
    /// empty `reason` to be filled in.
    pub(super) fn superseding(mut self, old: Ranges) -> Self {
        let slower = self.throughput.low < old.throughput.low;
        let later = old
            .p95_latency
            .is_some_and(|old| self.p95_latency.is_none_or(|new| new.high > old.high));
        self.reason = (slower || later).then(String::new);
        self
    }
}

/// The presumed standard deviation of throughput between runs of this precision.
fn presumed(runs: &[Comparison]) -> f64 {
    let coarsest = runs.iter().map(|run| run.target_half_width).fold(0.0, f64::max);
    if coarsest < 0.05 { PRESUMED_FINE } else { PRESUMED }
}

/// The mean of log-ratios, and the sum of their squared distances from it.
fn centre_and_squares(figures: &[Figure]) -> (f64, f64) {
    let logs = || figures.iter().map(|figure| figure.ratio.ln());
    let centre = logs().sum::<f64>() / figures.len() as f64;
    (centre, logs().map(|log| (log - centre).powi(2)).sum())
}

/// The variance of a run as its interval tells it: two standard errors make a half-width, a little more with few rounds.
fn of_intervals(figures: &[Figure]) -> f64 {
    let variances = figures.iter().map(|figure| (figure.half_width() / 2.0).powi(2));
    variances.sum::<f64>() / figures.len() as f64
}

/// A calibration with three digits; `None` if it is none.
fn written(calibration: &Calibration) -> Option<Calibration> {
    calibration::check(calibration).ok()?;
    Some(Calibration {
        iops: rounded(calibration.iops, f64::round),
        write_mib_per_second: rounded(calibration.write_mib_per_second, f64::round),
        flush_milliseconds: rounded(calibration.flush_milliseconds, f64::round),
    })
}

impl Range {
    fn around(figure: &Figure) -> Self {
        let widening = (HALF_WIDTHS * figure.half_width()).exp().max(LEAST_WIDENING);
        Self {
            low: rounded(figure.ratio / widening, f64::floor),
            high: rounded(figure.ratio * widening, f64::ceil),
        }
    }

    /// Where the next run's ratio is, but for a chance of `beyond` at either end.
    fn predicted(figures: &[Figure], presumed: f64, beyond: f64) -> Option<Self> {
        let n = figures.len() as f64;
        let (centre, squares) = centre_and_squares(figures);
        let freedom = PRESUMED_FREEDOM + n - 1.0;
        let variance = (PRESUMED_FREEDOM * (presumed.powi(2) + of_intervals(figures)) + squares) / freedom;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(1.0 - beyond);
        let distance = t * (variance * (1.0 + 1.0 / n)).sqrt();
        Some(Self {
            low: rounded((centre - distance).exp(), f64::floor),
            high: rounded((centre + distance).exp(), f64::ceil),
        })
    }

    fn check(self, name: &str) -> Result<(), String> {
        let Self { low, high } = self;
        if !low.is_finite() || !high.is_finite() || low <= 0.0 {
            return Err(format!(
                "{name}: {self} is no range of ratios: both ends are numbers above 0"
            ));
        }
        if low > high {
            return Err(format!("{name}: low {low} is above high {high}"));
        }
        Ok(())
    }

    pub(super) fn contains(self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }
}

/// Three significant digits, rounded by `direction` unless there are no more than three.
fn rounded(value: f64, direction: fn(f64) -> f64) -> f64 {
    let decimals = 2 - value.log10().floor() as i32;
    // Dividing by a power of ten gives the nearest number to the decimal; multiplying by 0.001 does not.
    let (multiplier, divisor) = (10_f64.powi(decimals.max(0)), 10_f64.powi((-decimals).max(0)));
    let scaled = value * multiplier / divisor;
    let whole = if (scaled - scaled.round()).abs() < 1e-9 {
        scaled.round()
    } else {
        direction(scaled)
    };
    whole / multiplier * divisor
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

impl fmt::Display for Bounds {
    /// The body of a snapshot file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name, range: Range| {
            writeln!(f, "{name}: {{low: {}, high: {}}}", range.low, range.high)
        };
        line(f, "throughput", self.throughput)?;
        if let Some(range) = self.p95_latency {
            line(f, "p95_latency", range)?;
        }
        if let Some(calibration) = self.calibration {
            writeln!(
                f,
                "calibration: {{iops: {}, write_mib_per_second: {}, flush_milliseconds: {}}}",
                calibration.iops, calibration.write_mib_per_second, calibration.flush_milliseconds
            )?;
        }
        match &self.reason {
            Some(reason) => writeln!(f, "reason: {reason:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("throughput: {low: 0.70, high: 0.85}", 0.70, None, None)]
    #[case(
        "throughput:\n  low: 0.70\n  high: 0.85\np95_latency: {low: 1, high: 2}",
        0.70,
        Some(2.0),
        None
    )]
    #[case(
        "throughput: {low: 0.5, high: 0.85}\nreason: kernel 6.18 copies more",
        0.5,
        None,
        Some("kernel 6.18 copies more")
    )]
    fn bounds_are_read(
        #[case] text: &str,
        #[case] low: f64,
        #[case] p95_high: Option<f64>,
        #[case] reason: Option<&str>,
    ) {
        let bounds = Bounds::parse(text).unwrap();
        assert_eq!(bounds.throughput, Range { low, high: 0.85 });
        assert_eq!(bounds.p95_latency.map(|range| range.high), p95_high);
        assert_eq!(bounds.reason.as_deref(), reason);
    }

    fn calibrated(iops: &str, write: &str, flush: &str) -> String {
        let figures = format!("iops: {iops}, write_mib_per_second: {write}, flush_milliseconds: {flush}");
        format!("throughput: {{low: 0.7, high: 0.8}}\ncalibration: {{{figures}}}\n")
    }

    #[test]
    fn a_calibration_is_read() {
        let calibration = Calibration {
            iops: 396.0,
            write_mib_per_second: 180.0,
            flush_milliseconds: 0.4,
        };
        let bounds = Bounds::parse(&calibrated("396", "180", "0.4")).unwrap();
        assert_eq!(bounds.calibration, Some(calibration));
    }

    #[rstest]
    #[case::nothing("", "end of input")]
    #[case::no_throughput("p95_latency: {low: 1, high: 2}", "throughput")]
    #[case::no_high("throughput: {low: 0.7}", "high")]
    #[case::exchanged("throughput: {low: 0.85, high: 0.70}", "throughput: low 0.85 is above high 0.7")]
    #[case::zero("throughput: {low: 0, high: 0.70}", "above 0")]
    #[case::negative("throughput: {low: -1, high: 0.70}", "above 0")]
    #[case::not_a_number("throughput: {low: .nan, high: 0.70}", "above 0")]
    #[case::infinite("throughput: {low: 0.5, high: .inf}", "above 0")]
    #[case::a_word("throughput: {low: some, high: 0.70}", "float")]
    #[case::p95(
        "throughput: {low: 0.7, high: 0.8}\np95_latency: {low: 3, high: 2}",
        "p95_latency: low 3"
    )]
    #[case::unknown_key("throughput: {low: 0.7, high: 0.8}\np95: {low: 1, high: 2}", "p95")]
    #[case::unknown_end("throughput: {low: 0.7, high: 0.8, mid: 0.75}", "mid")]
    #[case::twice("throughput: {low: 0.7, high: 0.8}\nthroughput: {low: 0.1, high: 0.8}", "duplicate")]
    #[case::no_reason("throughput: {low: 0.7, high: 0.8}\nreason: \"\"", "why the bounds were loosened")]
    #[case::another_snapshot("[80.23, 35.09]", "")]
    #[case::half_a_calibration(
        "throughput: {low: 0.7, high: 0.8}\ncalibration: {iops: 396}",
        "write_mib_per_second"
    )]
    #[case::no_iops(&calibrated("0", "180", "0.4"), "calibration: iops is 0, not a number above 0")]
    #[case::negative_write(&calibrated("396", "-1", "0.4"), "calibration: write_mib_per_second is -1")]
    #[case::infinite_flush(&calibrated("396", "180", ".inf"), "calibration: flush_milliseconds is inf")]
    #[case::no_number_of_iops(&calibrated(".nan", "180", "0.4"), "calibration: iops is NaN")]
    #[case::a_word_for_iops(&calibrated("many", "180", "0.4"), "float")]
    #[case::unknown_figure(&calibrated("396, reads: 1", "180", "0.4"), "reads")]
    fn what_is_no_bounds_is_refused_and_named(#[case] text: &str, #[case] named: &str) {
        let problem = Bounds::parse(text).unwrap_err();
        assert!(problem.contains(named), "{problem}");
    }

    fn figure(ratio: f64, half_width: f64) -> Figure {
        Figure {
            without: 1.0,
            with: ratio,
            ratio,
            low: ratio * (-half_width).exp(),
            high: ratio * half_width.exp(),
        }
    }

    #[rstest]
    #[case::precise(0.437, 0.01, 0.397, 0.481)]
    #[case::as_aimed_at(0.437, 0.05, 0.385, 0.496)]
    #[case::small(0.0123, 0.01, 0.0111, 0.0136)]
    #[case::large(12.3, 0.01, 11.1, 13.6)]
    fn proposed_bounds_are_the_ratio_widened(
        #[case] ratio: f64,
        #[case] half_width: f64,
        #[case] low: f64,
        #[case] high: f64,
    ) {
        assert_eq!(Range::around(&figure(ratio, half_width)), Range { low, high });
    }

    fn runs(ratios: &[f64]) -> Vec<Comparison> {
        let run = |ratio: &f64| Comparison {
            throughput: Some(figure(*ratio, 0.025)),
            p95_latency: Some(figure(1.0 / ratio, 0.10)),
            target_half_width: 0.03,
            ..Comparison::default()
        };
        ratios.iter().map(run).collect()
    }

    #[test]
    fn runs_that_agree_give_bounds_of_the_least_width() {
        // t of 16 degrees of freedom is 2.921; S^2 = 12/16 x (0.013^2 + 0.0125^2).
        let distance = 2.921 * (0.75 * (0.013_f64.powi(2) + 0.0125_f64.powi(2)) * 1.2).sqrt();
        let bounds = Bounds::from_runs(&runs(&[0.6; 5])).unwrap();
        assert!((bounds.throughput.low / (0.6 * (-distance).exp()) - 1.0).abs() < 0.002);
        assert!((bounds.throughput.high / (0.6 * distance.exp()) - 1.0).abs() < 0.002);
    }

    #[test]
    fn runs_that_differ_give_wider_bounds_and_coarse_ones_wider_still() {
        let width = |runs: &[Comparison]| {
            let range = Bounds::from_runs(runs).unwrap().throughput;
            (range.high / range.low).ln()
        };
        let mut differ = runs(&[0.57, 0.60, 0.63, 0.58, 0.62]);
        assert!(width(&differ) > 1.3 * width(&runs(&[0.6; 5])));
        let fine = width(&differ);
        differ.iter_mut().for_each(|run| run.target_half_width = 0.05);
        assert!(width(&differ) > 1.3 * fine);
    }

    #[test]
    fn bounds_take_five_runs_and_a_throughput_of_each() {
        let mut five = runs(&[0.6; 5]);
        assert_eq!(Bounds::from_runs(&five[1..]), None);
        five[2].p95_latency = None;
        assert_eq!(Bounds::from_runs(&five).unwrap().p95_latency, None);
        five[2].throughput = None;
        assert_eq!(Bounds::from_runs(&five), None);
    }

    fn bounds(low: f64, p95_high: Option<f64>) -> Bounds {
        Bounds {
            throughput: Range { low, high: 0.9 },
            p95_latency: p95_high.map(|high| Range { low: 1.0, high }),
            calibration: None,
            reason: None,
        }
    }

    #[rstest]
    #[case::tighter(bounds(0.5, Some(1.9)), Some(1.9), false)]
    #[case::lower_throughput(bounds(0.3, Some(1.9)), Some(1.9), true)]
    #[case::higher_latency(bounds(0.5, Some(2.1)), Some(2.1), true)]
    #[case::latency_not_estimable(bounds(0.5, None), Some(2.0), false)]
    fn loosened_bounds_ask_for_a_reason(#[case] new: Bounds, #[case] p95_high: Option<f64>, #[case] asks: bool) {
        let replaced = new.replacing(&bounds(0.4, Some(2.0)));
        assert_eq!(replaced.p95_latency.map(|range| range.high), p95_high);
        assert_eq!(replaced.reason.is_some(), asks);
    }

    #[rstest]
    #[case::tighter(bounds(0.5, Some(1.9)), false)]
    #[case::lower_throughput(bounds(0.3, Some(1.9)), true)]
    #[case::higher_latency(bounds(0.5, Some(2.1)), true)]
    #[case::latency_no_longer_judged(bounds(0.5, None), true)]
    fn bounds_for_another_disk_take_nothing_over(#[case] new: Bounds, #[case] asks: bool) {
        let superseding = new.clone().superseding(bounds(0.4, Some(2.0)).ranges());
        assert_eq!(superseding.p95_latency, new.p95_latency);
        assert_eq!(superseding.reason.is_some(), asks);
    }

    #[test]
    fn a_disk_that_was_not_calibrated_keeps_its_calibration() {
        let old = Bounds::parse(&calibrated("396", "180", "0.4")).unwrap();
        let new = Bounds::parse(&calibrated("400", "170", "0.3")).unwrap();
        assert_eq!(bounds(0.5, None).replacing(&old).calibration, old.calibration);
        assert_eq!(new.clone().replacing(&old).calibration, new.calibration);
        assert_eq!(bounds(0.5, None).superseding(old.ranges()).calibration, None);
    }

    proptest! {
        #[test]
        fn proposed_bounds_contain_the_interval_and_read_back(
            throughput in 0.001..20.0_f64,
            p95 in prop::option::of(0.01..500.0_f64),
            half_width in 0.0..1.0_f64,
            calibration in prop::option::of((0.01..1e7_f64, 0.001..1e5_f64, 1e-6..1e5_f64)),
        ) {
            let comparison = Comparison {
                throughput: Some(figure(throughput, half_width)),
                p95_latency: p95.map(|p95| figure(p95, half_width)),
                calibration: calibration.map(|(iops, write_mib_per_second, flush_milliseconds)| Calibration {
                    iops,
                    write_mib_per_second,
                    flush_milliseconds,
                }),
                ..Comparison::default()
            };
            let bounds = Bounds::proposed(&comparison).unwrap();
            let figure = comparison.throughput.unwrap();
            prop_assert!(bounds.throughput.low <= figure.low && figure.high <= bounds.throughput.high);
            prop_assert_eq!(bounds.calibration.is_some(), comparison.calibration.is_some());
            if let Some((was, is)) = bounds.calibration.zip(comparison.calibration) {
                prop_assert_eq!(calibration::difference(&was, &is), None);
            }
            prop_assert_eq!(Bounds::parse(&bounds.to_string()), Ok(bounds));
        }
    }
}
