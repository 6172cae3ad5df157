//! The verdict, as a function of measurement and bounds alone.

use super::bounds::Bounds;
use super::calibration;
use crate::compare;
use crate::report::number;
use crate::result::{Comparison, Figure, Range, Side, Verdict};

/// Which side of its bounds a ratio must not be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bad {
    Below,
    Above,
}

/// Judges a measurement by its bounds, and says why in a sentence.
///
/// - `Invalid`: something happened after which nothing may be concluded.
/// - `Worse`: the whole interval of a ratio is beyond the bad side of its bounds.
/// - `Inconclusive`: rounds that follow from each other; bounds of another calibration; an estimate outside its bounds with an interval that
///   reaches into them; a throughput less precise than was aimed at, or whose interval reaches beyond both bounds; a p95
///   latency that has bounds and for which windows with the difference are too short.
/// - `Better`: the whole interval of a ratio is beyond the good side, and no other is worse or in doubt.
/// - `Within`: every estimate is inside.
///
/// A p95 latency that is not estimable, or has no bounds, is not judged, and the sentence says so.
#[must_use]
pub fn judge(comparison: &Comparison, bounds: &Bounds) -> (Verdict, String) {
    let throughput = match (doubt(comparison), &comparison.throughput) {
        (Some(doubt), _) => return doubt,
        (None, Some(throughput)) => throughput,
        (None, None) => return (Verdict::Inconclusive, NOT_ESTIMABLE.into()),
    };
    if let Some(refusal) = refusal(comparison, bounds) {
        return (Verdict::Inconclusive, refusal);
    }
    let imprecise = imprecision(comparison).or_else(|| coarseness(throughput, bounds.throughput));
    let mut findings = vec![judge_figure(
        "throughput",
        throughput,
        bounds.throughput,
        Bad::Below,
        imprecise,
    )];
    let mut notes = notes(comparison);
    if bounds.calibration.is_some() && comparison.calibration.is_none() {
        notes.push("the disk was not calibrated, so it may be another than the bounds were made on".into());
    }
    match (&comparison.p95_latency, bounds.p95_latency) {
        (Some(figure), Some(range)) => findings.push(judge_figure("p95 latency", figure, range, Bad::Above, None)),
        // A server that became slower still must not pass because of that.
        (None, Some(_)) if compare::short(comparison, Side::With).is_some() => {
            findings.push((
                Verdict::Inconclusive,
                "p95 latency has bounds and cannot be judged".into(),
            ));
        }
        (None, Some(_)) => notes.push("p95 latency is not estimable and was not judged".into()),
        (_, None) => notes.push("p95 latency has no bounds and was not judged".into()),
    }
    let gravest = [Verdict::Worse, Verdict::Inconclusive, Verdict::Better]
        .into_iter()
        .find(|verdict| findings.iter().any(|(found, _)| found == verdict));
    let sentences: Vec<String> = findings.into_iter().map(|(_, text)| text).chain(notes).collect();
    (gravest.unwrap_or(Verdict::Within), sentences.join("; "))
}

const NOT_ESTIMABLE: &str = "throughput is not estimable: it takes two rounds in which both sides got something done";

/// Why nothing can be said whatever the bounds are.
pub(super) fn doubt(comparison: &Comparison) -> Option<(Verdict, String)> {
    if let Some(reason) = &comparison.invalid {
        return Some((Verdict::Invalid, reason.clone()));
    }
    if comparison.throughput.is_none() {
        return Some((Verdict::Inconclusive, NOT_ESTIMABLE.into()));
    }
    let correlation = compare::correlation(&comparison.windows).filter(|found| found.is_significant())?;
    let reason = format!(
        "rounds follow from the rounds before them (lag-1 correlation {:.2}, above {:.2}), so the interval is \
         narrower than it should be",
        correlation.lag1, correlation.limit
    );
    Some((Verdict::Inconclusive, reason))
}

/// Why a measurement must not be judged by these bounds.
pub(super) fn refusal(comparison: &Comparison, bounds: &Bounds) -> Option<String> {
    let (was, is) = bounds.calibration.as_ref().zip(comparison.calibration.as_ref())?;
    let different = calibration::difference(was, is)?;
    Some(format!(
        "the bounds were made under another calibration: {different}. Look for what else uses the disk, restore the \
         machine, name another profile with SNAPTAX_PROFILE, or have new bounds proposed with SNAPTAX_BOUNDS=propose"
    ))
}

/// By how much the throughput is less precise than was aimed at.
pub(super) fn imprecision(comparison: &Comparison) -> Option<String> {
    let half_width = comparison.throughput?.half_width();
    let target = comparison.target_half_width;
    // The number of rounds may make the two equal but for the last bit.
    let reached = half_width <= target * (1.0 + 1e-9);
    (!reached).then(|| {
        format!(
            "the throughput's half-width is {:.1} %, not the {:.1} % aimed at",
            100.0 * half_width,
            100.0 * target
        )
    })
}

/// Whether the throughput is too imprecise for these bounds, whatever was aimed at.
fn coarseness(throughput: &Figure, bounds: Range) -> Option<String> {
    let beyond = throughput.low < bounds.low && throughput.high > bounds.high;
    beyond.then(|| "its interval reaches beyond them on both sides; aim at a smaller half-width".into())
}

fn judge_figure(name: &str, figure: &Figure, range: Range, bad: Bad, imprecise: Option<String>) -> (Verdict, String) {
    let shown = format!("{name} ratio {}", number::ratio(figure));
    let below = figure.high < range.low;
    let above = figure.low > range.high;
    if below || above {
        let worse = below == (bad == Bad::Below);
        let place = if below { "below" } else { "above" };
        let text = format!("{shown} is wholly {place} its bounds {range}");
        return match worse {
            true => (Verdict::Worse, text),
            false => (Verdict::Better, format!("{text}, which are loose")),
        };
    }
    if !range.contains(figure.ratio) {
        let text = format!("{shown} is outside its bounds {range}, but its interval reaches into them");
        return (Verdict::Inconclusive, text);
    }
    let text = format!("{shown} is inside its bounds {range}");
    match imprecise {
        Some(imprecise) => (Verdict::Inconclusive, format!("{text}, but {imprecise}")),
        None => (Verdict::Within, text),
    }
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.throughput.is_some_and(|figure| figure.low > 1.0) {
        notes.push("the difference made the server faster, which is suspicious".to_owned());
    }
    if let Some(short) = compare::short(comparison, Side::With) {
        notes.push(format!(
            "with the difference, {short}: without that, latencies are not judged"
        ));
    }
    if let Some(correlation) = compare::correlation(&comparison.windows).filter(|found| found.is_notable()) {
        notes.push(format!(
            "the lag-1 correlation of rounds is {:.2}, which chance may explain (it counts above {:.2})",
            correlation.lag1, correlation.limit
        ));
    }
    notes.extend(compare::outliers(&comparison.windows).iter().map(|outlier| {
        format!(
            "round {} is an outlier (ratio {:.2} against a median of {:.2}); it is kept",
            outlier.round, outlier.ratio, outlier.median
        )
    }));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Calibration;
    use rstest::rstest;

    const THROUGHPUT: Range = Range { low: 0.40, high: 0.50 };
    const P95: Range = Range { low: 2.0, high: 3.0 };

    fn figure((ratio, low, high): (f64, f64, f64)) -> Figure {
        Figure {
            without: 80.0,
            with: 80.0 * ratio,
            ratio,
            low,
            high,
        }
    }

    fn comparison(throughput: (f64, f64, f64), p95: Option<(f64, f64, f64)>) -> Comparison {
        Comparison {
            throughput: Some(figure(throughput)),
            p95_latency: p95.map(figure),
            target_half_width: 0.05,
            ..Comparison::default()
        }
    }

    const GOOD_P95: Option<(f64, f64, f64)> = Some((2.5, 2.3, 2.7));

    #[rstest]
    #[case::within((0.45, 0.44, 0.46), GOOD_P95, Verdict::Within, "is inside its bounds 0.4 to 0.5")]
    #[case::at_the_lower_bound((0.40, 0.39, 0.41), GOOD_P95, Verdict::Within, "inside")]
    #[case::at_the_upper_bound((0.50, 0.49, 0.51), GOOD_P95, Verdict::Within, "inside")]
    #[case::wholly_below((0.35, 0.34, 0.36), GOOD_P95, Verdict::Worse, "throughput ratio 0.350 (0.340 to 0.360) is wholly below")]
    #[case::interval_ends_at_the_bound((0.39, 0.38, 0.40), GOOD_P95, Verdict::Inconclusive, "reaches into them")]
    #[case::wholly_below_though_imprecise((0.2, 0.1, 0.3), GOOD_P95, Verdict::Worse, "wholly below")]
    #[case::wholly_above((0.6, 0.58, 0.62), GOOD_P95, Verdict::Better, "wholly above its bounds 0.4 to 0.5, which are loose")]
    #[case::above_but_reaching_in((0.51, 0.49, 0.53), GOOD_P95, Verdict::Inconclusive, "outside its bounds")]
    #[case::imprecise((0.45, 0.42, 0.48), GOOD_P95, Verdict::Inconclusive, "half-width is 6.7 %, not the 5.0 %")]
    #[case::wider_than_its_bounds((0.45, 0.39, 0.51), GOOD_P95, Verdict::Inconclusive, "half-width is 13")]
    #[case::p95_worse((0.45, 0.44, 0.46), Some((3.5, 3.1, 3.9)), Verdict::Worse, "p95 latency ratio 3.50 (3.10 to 3.90) is wholly above")]
    #[case::p95_better((0.45, 0.44, 0.46), Some((1.5, 1.3, 1.9)), Verdict::Better, "wholly below its bounds 2 to 3, which are loose")]
    #[case::p95_reaching_in((0.45, 0.44, 0.46), Some((3.1, 2.9, 3.3)), Verdict::Inconclusive, "p95 latency ratio")]
    #[case::p95_imprecise_is_no_matter((0.45, 0.44, 0.46), Some((2.5, 1.0, 6.0)), Verdict::Within, "inside")]
    #[case::p95_not_estimable((0.45, 0.44, 0.46), None, Verdict::Within, "p95 latency is not estimable and was not judged")]
    #[case::worse_beats_better((0.35, 0.34, 0.36), Some((1.5, 1.3, 1.9)), Verdict::Worse, "loose")]
    #[case::better_does_not_hide_doubt((0.6, 0.58, 0.62), Some((3.1, 2.9, 3.3)), Verdict::Inconclusive, "reaches into")]
    #[case::not_a_number((f64::NAN, f64::NAN, f64::NAN), GOOD_P95, Verdict::Inconclusive, "outside")]
    fn verdicts(
        #[case] throughput: (f64, f64, f64),
        #[case] p95: Option<(f64, f64, f64)>,
        #[case] verdict: Verdict,
        #[case] said: &str,
    ) {
        let bounds = Bounds {
            throughput: THROUGHPUT,
            p95_latency: Some(P95),
            calibration: None,
            reason: None,
        };
        let (judged, reason) = judge(&comparison(throughput, p95), &bounds);
        assert_eq!(judged, verdict, "{reason}");
        assert!(reason.contains(said), "{reason}");
    }

    const THROUGHPUT_ONLY: Bounds = Bounds {
        throughput: THROUGHPUT,
        p95_latency: None,
        calibration: None,
        reason: None,
    };

    #[test]
    fn bounds_may_leave_p95_out() {
        let (verdict, reason) = judge(&comparison((0.45, 0.44, 0.46), GOOD_P95), &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Within);
        assert!(
            reason.contains("p95 latency has no bounds and was not judged"),
            "{reason}"
        );
    }

    const DISK: Calibration = Calibration {
        iops: 396.0,
        write_mib_per_second: 180.0,
        flush_milliseconds: 0.4,
    };

    const SLOW: Calibration = Calibration { iops: 210.0, ..DISK };

    /// What was measured under one calibration, judged by bounds made under another.
    fn judged(throughput: (f64, f64, f64), was: Option<Calibration>, is: Option<Calibration>) -> (Verdict, String) {
        let bounds = Bounds {
            calibration: was,
            ..THROUGHPUT_ONLY
        };
        let comparison = Comparison {
            calibration: is,
            ..comparison(throughput, GOOD_P95)
        };
        judge(&comparison, &bounds)
    }

    #[rstest]
    fn bounds_of_another_calibration_are_refused(
        #[values((0.45, 0.44, 0.46), (0.35, 0.34, 0.36), (0.6, 0.58, 0.62))] throughput: (f64, f64, f64),
    ) {
        let (verdict, reason) = judged(throughput, Some(DISK), Some(SLOW));
        assert_eq!(verdict, Verdict::Inconclusive);
        for said in [
            "random writes per second were 396 and are 210, by a factor of 1.89",
            "SNAPTAX_PROFILE",
            "SNAPTAX_BOUNDS=propose",
        ] {
            assert!(reason.contains(said), "{reason}");
        }
        assert_eq!(judged(throughput, Some(SLOW), Some(DISK)).0, Verdict::Inconclusive);
    }

    #[rstest]
    #[case::the_same(Some(DISK), Some(DISK), false)]
    #[case::none_of_the_bounds(None, Some(DISK), false)]
    #[case::none_of_either(None, None, false)]
    #[case::none_of_the_measurement(Some(DISK), None, true)]
    fn where_calibrations_do_not_differ_the_ratio_decides(
        #[case] was: Option<Calibration>,
        #[case] is: Option<Calibration>,
        #[case] remarked: bool,
    ) {
        let (verdict, reason) = judged((0.45, 0.44, 0.46), was, is);
        assert_eq!(verdict, Verdict::Within, "{reason}");
        assert_eq!(reason.contains("the disk was not calibrated"), remarked, "{reason}");
        assert_eq!(judged((0.35, 0.34, 0.36), was, is).0, Verdict::Worse);
    }

    #[test]
    fn an_invalid_measurement_is_invalid_however_good_it_looks() {
        let mut comparison = comparison((0.45, 0.44, 0.46), GOOD_P95);
        comparison.invalid = Some("the snapshot overflowed in round 3".into());
        let judged = judge(&comparison, &THROUGHPUT_ONLY);
        assert_eq!(judged, (Verdict::Invalid, "the snapshot overflowed in round 3".into()));
    }

    #[test]
    fn without_a_throughput_nothing_can_be_said() {
        let (verdict, reason) = judge(&Comparison::default(), &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Inconclusive);
        assert!(reason.contains("not estimable"), "{reason}");
    }

    #[test]
    fn a_half_width_that_is_just_reached_counts_as_reached() {
        let (low, high) = (0.45 * (-0.05_f64).exp(), 0.45 * 0.05_f64.exp());
        let (verdict, reason) = judge(&comparison((0.45, low, high), GOOD_P95), &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Within, "{reason}");
    }

    #[test]
    fn an_interval_wider_than_the_bounds_is_inconclusive_however_little_was_aimed_at() {
        let mut coarse = comparison((0.45, 0.39, 0.51), GOOD_P95);
        coarse.target_half_width = 0.5;
        let (verdict, reason) = judge(&coarse, &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Inconclusive);
        assert!(reason.contains("reaches beyond them on both sides"), "{reason}");
        coarse.throughput = Some(figure((0.45, 0.39, 0.49)));
        assert_eq!(judge(&coarse, &THROUGHPUT_ONLY).0, Verdict::Within);
    }

    /// Windows of this many transactions by 16 threads on each side, in three rounds.
    fn slowed(without: u64, with: u64, throughput: (f64, f64, f64)) -> Comparison {
        let mut slowed = comparison(throughput, None);
        slowed.load.threads = 16;
        slowed.load.window_seconds = 20.0;
        slowed.windows = rounds([0.3; 3]);
        for window in &mut slowed.windows {
            window.counts.transactions = if window.side == Side::Without { without } else { with };
        }
        slowed
    }

    #[rstest]
    #[case::worse((0.30, 0.28, 0.32), Verdict::Worse)]
    #[case::inside_its_bounds((0.45, 0.44, 0.46), Verdict::Inconclusive)]
    fn a_server_so_slow_that_its_windows_are_short_is_worse_or_cannot_be_judged(
        #[case] throughput: (f64, f64, f64),
        #[case] verdict: Verdict,
    ) {
        let bounds = Bounds {
            p95_latency: Some(P95),
            ..THROUGHPUT_ONLY
        };
        let (judged, reason) = judge(&slowed(320, 96, throughput), &bounds);
        assert_eq!(judged, verdict, "{reason}");
        assert!(
            reason.contains("with the difference, windows of 20 s are only 6.0 mean latencies long"),
            "{reason}"
        );
        assert!(
            !judge(&slowed(320, 160, throughput), &bounds)
                .1
                .contains("mean latencies")
        );
    }

    #[test]
    fn where_only_throughput_has_bounds_short_windows_do_not_matter() {
        let (verdict, reason) = judge(&slowed(320, 96, (0.45, 0.44, 0.46)), &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Within, "{reason}");
    }

    #[test]
    fn a_server_made_faster_is_remarked_upon() {
        let bounds = Bounds {
            throughput: Range { low: 0.9, high: 1.1 },
            ..THROUGHPUT_ONLY
        };
        let (verdict, reason) = judge(&comparison((1.05, 1.02, 1.08), None), &bounds);
        assert_eq!(verdict, Verdict::Within);
        assert!(reason.contains("suspicious"), "{reason}");
    }

    /// Rounds whose throughput ratios are these.
    fn rounds(ratios: impl IntoIterator<Item = f64>) -> Vec<crate::result::Window> {
        use crate::result::{Counts, Side, Window, latency_histogram};
        let window = |round, side, reads| {
            let counts = Counts {
                transactions: 1,
                reads,
                ..Counts::default()
            };
            Window::new(round, side, 1.0, counts, latency_histogram())
        };
        let round = |(index, ratio): (usize, f64)| {
            let reads = (1e6 * ratio) as u64;
            [
                window(index + 1, Side::Without, 1_000_000),
                window(index + 1, Side::With, reads),
            ]
        };
        ratios.into_iter().enumerate().flat_map(round).collect()
    }

    #[test]
    fn an_outlier_is_named_and_kept() {
        let mut comparison = comparison((0.45, 0.44, 0.46), GOOD_P95);
        comparison.windows = rounds([0.45, 0.44, 0.46, 0.45, 0.44, 0.46, 0.44, 0.90]);
        let (verdict, reason) = judge(&comparison, &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Within);
        assert!(
            reason.contains("round 8 is an outlier (ratio 0.90 against a median of 0.45); it is kept"),
            "{reason}"
        );
    }

    #[test]
    fn rounds_that_follow_from_each_other_are_inconclusive_even_if_worse() {
        let mut comparison = comparison((0.35, 0.34, 0.36), GOOD_P95);
        comparison.windows = rounds((0..24).map(|round| 0.5 - 0.01 * f64::from(round)));
        let (verdict, reason) = judge(&comparison, &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Inconclusive);
        assert!(reason.contains("lag-1 correlation 0.8"), "{reason}");
    }

    #[test]
    fn a_correlation_that_chance_explains_is_only_mentioned() {
        let mut comparison = comparison((0.45, 0.44, 0.46), GOOD_P95);
        comparison.windows = rounds([0.44, 0.45, 0.46, 0.46, 0.44, 0.43, 0.44, 0.45]);
        let (verdict, reason) = judge(&comparison, &THROUGHPUT_ONLY);
        assert_eq!(verdict, Verdict::Within, "{reason}");
        assert!(reason.contains("which chance may explain"), "{reason}");
    }
}
