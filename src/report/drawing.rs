//! A ratio, its interval and its bounds on one line of text.

use super::number::digits;
use crate::result::{Figure, Range};

/// What the signs of a [`line`] mean.
pub(super) const LEGEND: &str = "* ratio, ( ) its interval, [ ] bounds; the scale is logarithmic";

/// Columns between the numbers at both ends.
const COLUMNS: usize = 40;

/// Room at both ends, as a share of what is drawn.
const MARGIN: f64 = 0.1;

/// `0.47 ---[---(==*==)------]--- 0.73`. Where two signs meet, the ratio hides a bound, and a bound an interval's end.
pub(super) fn line(figure: &Figure, bounds: Range) -> String {
    let (low, high) = (figure.low.min(bounds.low).ln(), figure.high.max(bounds.high).ln());
    let margin = MARGIN * (high - low).max(0.01);
    let (left, right) = (low - margin, high + margin);
    if !(left.is_finite() && right.is_finite()) {
        return String::new();
    }
    let column = |ratio: f64| {
        let share = (ratio.ln() - left) / (right - left);
        ((share * (COLUMNS - 1) as f64).round() as usize).min(COLUMNS - 1)
    };
    let mut signs = ['-'; COLUMNS];
    signs[column(figure.low)..=column(figure.high)].fill('=');
    let drawn = [
        (figure.low, '('),
        (figure.high, ')'),
        (bounds.low, '['),
        (bounds.high, ']'),
        (figure.ratio, '*'),
    ];
    for (ratio, sign) in drawn {
        signs[column(ratio)] = sign;
    }
    let signs: String = signs.iter().collect();
    format!("{:>5} {signs} {}", digits(left.exp()), digits(right.exp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn figure(low: f64, ratio: f64, high: f64) -> Figure {
        Figure {
            without: 1.0,
            with: ratio,
            ratio,
            low,
            high,
        }
    }

    #[rstest]
    #[case::inside(figure(0.58, 0.60, 0.62), "0.496 ---[--------------(===*==)----------]--- 0.700")]
    #[case::below(figure(0.40, 0.41, 0.42), "0.379 ---(=*)-----------[-----------------]--- 0.717")]
    #[case::above(figure(0.70, 0.72, 0.74), "0.491 ---[------------------------]--(=*==)--- 0.768")]
    #[case::at_a_bound(figure(0.49, 0.51, 0.54), "0.474 ---(===*=====)----------------------]--- 0.703")]
    fn where_the_ratio_lies_is_seen_at_a_glance(#[case] figure: Figure, #[case] drawn: &str) {
        let bounds = Range { low: 0.51, high: 0.68 };
        assert_eq!(line(&figure, bounds), drawn);
    }

    #[test]
    fn what_is_no_ratio_is_not_drawn() {
        let bounds = Range { low: 0.5, high: 0.7 };
        assert_eq!(line(&figure(0.0, 0.0, 0.0), bounds), "");
    }

    proptest! {
        #[test]
        fn every_line_has_the_same_columns_and_its_ratio(
            ratio in 0.01..50.0_f64, below in 1.0..3.0_f64, above in 1.0..3.0_f64,
            low in 0.01..50.0_f64, width in 1.0..9.0_f64,
        ) {
            let drawn = line(&figure(ratio / below, ratio, ratio * above), Range { low, high: low * width });
            let signs = drawn.split_whitespace().nth(1).unwrap();
            prop_assert_eq!((signs.len(), signs.matches('*').count()), (COLUMNS, 1));
        }
    }
}
