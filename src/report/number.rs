//! How numbers are shown.

use crate::result::Figure;

/// Three significant digits, or all those before the point.
pub(crate) fn digits(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0);
    format!("{value:.*}", decimals as usize)
}

/// A ratio with its interval.
pub(crate) fn ratio(figure: &Figure) -> String {
    format!("{} ({})", digits(figure.ratio), interval(figure))
}

/// A ratio's interval.
pub(crate) fn interval(figure: &Figure) -> String {
    format!("{} to {}", digits(figure.low), digits(figure.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0.43737, "0.437")]
    #[case(0.04, "0.0400")]
    #[case(1.0, "1.00")]
    #[case(80.23, "80.2")]
    #[case(1065.4, "1065")]
    #[case(0.0, "0")]
    #[case(f64::INFINITY, "inf")]
    fn numbers_have_three_digits(#[case] value: f64, #[case] shown: &str) {
        assert_eq!(digits(value), shown);
    }
}
