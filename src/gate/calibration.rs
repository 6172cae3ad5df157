//! When two calibrations are clearly not of the same disk.

use crate::report::number::digits;
use crate::result::Calibration;

/// By what factor random writes per second may differ: a third more or less moves a ratio by as much as its bounds are
/// wide.
const WRITES: f64 = 1.25;

/// Where a disk does more random writes per second than this, in the geometric mean of both figures, processors are measured, too, and who else uses them.
const FAST: f64 = 10_000.0;

/// By what factor other figures may differ, and the random writes of a fast disk: on a busy machine they scatter by 2.
const OTHERS: f64 = 3.0;

/// How far apart, in milliseconds, two flushes may be whatever the factor: those below a millisecond scatter by ten.
const FLUSH_MILLISECONDS: f64 = 5.0;

/// What became different, as in `random writes per second were 396 and are 210, by a factor of 1.89 (1.25 is
/// tolerated)`; `None` while the disk passes for the same.
pub(crate) fn difference(was: &Calibration, is: &Calibration) -> Option<String> {
    let writes = if (was.iops * is.iops).sqrt() < FAST {
        WRITES
    } else {
        OTHERS
    };
    let sequential = (was.write_mib_per_second, is.write_mib_per_second);
    let flush = (was.flush_milliseconds, is.flush_milliseconds);
    let figures = [
        ("random writes per second", (was.iops, is.iops), writes, 0.0),
        ("sequential MiB per second", sequential, OTHERS, 0.0),
        ("milliseconds of a flush", flush, OTHERS, FLUSH_MILLISECONDS),
    ];
    let different = figures.into_iter().filter_map(|(name, (was, is), tolerated, apart)| {
        let factor = (was / is).max(is / was);
        // A figure that is no number is no sign of the same disk.
        let same = factor <= tolerated || (was - is).abs() <= apart;
        (!same).then(|| {
            format!(
                "{name} were {} and are {}, by a factor of {factor:.2} ({tolerated} is tolerated)",
                digits(was),
                digits(is)
            )
        })
    });
    let different: Vec<String> = different.collect();
    (!different.is_empty()).then(|| different.join("; "))
}

/// What is wrong with a calibration, if anything.
pub(super) fn check(calibration: &Calibration) -> Result<(), String> {
    let figures = [
        ("iops", calibration.iops),
        ("write_mib_per_second", calibration.write_mib_per_second),
        ("flush_milliseconds", calibration.flush_milliseconds),
    ];
    let wrong = figures.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0);
    match wrong {
        Some((name, value)) => Err(format!("calibration: {name} is {value}, not a number above 0")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const fn of(iops: f64, write_mib_per_second: f64, flush_milliseconds: f64) -> Calibration {
        Calibration {
            iops,
            write_mib_per_second,
            flush_milliseconds,
        }
    }

    const WAS: Calibration = of(400.0, 100.0, 4.0);

    #[rstest]
    #[case::the_same(WAS)]
    #[case::as_many_writes_as_may_be(of(500.0, 100.0, 4.0))]
    #[case::as_few(of(320.0, 100.0, 4.0))]
    #[case::as_fast(of(400.0, 300.0, 4.0))]
    #[case::as_slow(of(400.0, 34.0, 4.0))]
    #[case::a_flush_of_three_times_the_length(of(400.0, 100.0, 12.0))]
    #[case::a_quick_flush(of(400.0, 100.0, 0.01))]
    #[case::a_slow_flush_of_less_than_five_more(of(400.0, 100.0, 9.0))]
    fn figures_that_scatter_pass_for_the_same(#[case] is: Calibration) {
        assert_eq!(difference(&WAS, &is), None);
        assert_eq!(difference(&is, &WAS), None);
    }

    #[rstest]
    #[case::more_writes(
        of(504.0, 100.0, 4.0),
        "random writes per second were 400 and are 504, by a factor of 1.26 (1.25 is tolerated)"
    )]
    #[case::fewer_writes(
        of(200.0, 100.0, 4.0),
        "random writes per second were 400 and are 200, by a factor of 2.00"
    )]
    #[case::faster(
        of(400.0, 310.0, 4.0),
        "sequential MiB per second were 100 and are 310, by a factor of 3.10 (3 is tolerated)"
    )]
    #[case::slower(
        of(400.0, 25.0, 4.0),
        "sequential MiB per second were 100 and are 25.0, by a factor of 4.00"
    )]
    #[case::longer_flushes(
        of(400.0, 100.0, 14.0),
        "milliseconds of a flush were 4.00 and are 14.0, by a factor of 3.50 (3 is tolerated)"
    )]
    #[case::no_number(of(f64::NAN, 100.0, 4.0), "random writes per second were 400 and are NaN")]
    #[case::infinite(of(400.0, f64::INFINITY, 4.0), "and are inf, by a factor of inf")]
    fn figures_that_differ_clearly_are_named(#[case] is: Calibration, #[case] said: &str) {
        let different = difference(&WAS, &is).unwrap();
        assert!(different.contains(said), "{different}");
        assert_eq!(different.matches("tolerated").count(), 1, "{different}");
        assert!(difference(&is, &WAS).is_some());
    }

    #[rstest]
    #[case::slow(7_000.0, 12_000.0, true)]
    #[case::just_fast(9_500.0, 12_000.0, false)]
    #[case::fast(11_000.0, 30_000.0, false)]
    #[case::fast_and_much_faster(11_000.0, 34_000.0, true)]
    fn a_fast_disk_may_scatter_more(#[case] was: f64, #[case] is: f64, #[case] different: bool) {
        let (was, is) = (of(was, 100.0, 4.0), of(is, 100.0, 4.0));
        assert_eq!(difference(&was, &is).is_some(), different);
        assert_eq!(difference(&is, &was).is_some(), different);
    }

    #[test]
    fn shorter_flushes_are_another_disk_too() {
        let different = difference(&of(400.0, 100.0, 14.0), &WAS).unwrap();
        assert!(different.contains("were 14.0 and are 4.00"), "{different}");
    }

    #[test]
    fn all_figures_that_differ_are_named() {
        let different = difference(&WAS, &of(4000.0, 1000.0, 0.1)).unwrap();
        assert_eq!(different.matches("tolerated").count(), 2, "{different}");
    }
}
