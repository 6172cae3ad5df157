//! Exit codes of the harness, and how a run's records become one.

use std::process::ExitCode;

use snaptax::result::{Record, Verdict};
use snaptax::settings::GateMode;

/// How the harness ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Every experiment is inside its bounds, or better.
    Within,
    /// An experiment got worse.
    Worse,
    /// The command line is wrong, or no experiment matches.
    Usage,
    /// An experiment was not measured precisely enough.
    Inconclusive,
    /// An experiment's measurement is void.
    Invalid,
    /// Experiments could not be run, or failed without a verdict.
    Environment,
    /// A signal ended the run.
    Interrupted,
}

impl Exit {
    /// The code a shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Within => 0,
            Self::Worse => 1,
            Self::Usage => 2,
            Self::Inconclusive => 3,
            Self::Invalid => 4,
            Self::Environment => 5,
            Self::Interrupted => 130,
        }
    }

    /// Sums up a run: a worse result is the most important news, then a void one, then an imprecise one.
    ///
    /// A test binary that failed although every record passes met an error outside the measurements; one that
    /// passed although a record does not pass was told to (`SNAPTAX_GATE=warn`), and then no record fails one either.
    pub(crate) fn of_run(records: &[Record], gate: GateMode, tests_passed: bool) -> Self {
        let has = |verdict| records.iter().any(|record| record.verdict == verdict);
        if tests_passed {
            return Self::Within;
        }
        let failing = [
            (Verdict::Worse, Self::Worse),
            (Verdict::Invalid, Self::Invalid),
            (Verdict::Inconclusive, Self::Inconclusive),
        ];
        let found = failing
            .into_iter()
            .find(|(verdict, _)| gate == GateMode::Fail && has(*verdict));
        found.map_or(Self::Environment, |(_, exit)| exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use snaptax::result::Comparison;

    use super::*;

    #[rstest]
    #[case(&[Verdict::Within, Verdict::Better], true, 0)]
    #[case(&[], true, 0)]
    #[case(&[Verdict::Within, Verdict::Worse], false, 1)]
    #[case(&[Verdict::Invalid, Verdict::Worse, Verdict::Inconclusive], false, 1)]
    #[case(&[Verdict::Inconclusive, Verdict::Invalid], false, 4)]
    #[case(&[Verdict::Inconclusive, Verdict::Within], false, 3)]
    #[case(&[Verdict::Within], false, 5)]
    #[case(&[], false, 5)]
    #[case(&[Verdict::Worse], true, 0)]
    fn the_most_important_verdict_decides(#[case] verdicts: &[Verdict], #[case] tests_passed: bool, #[case] code: u8) {
        let records: Vec<_> = verdicts
            .iter()
            .map(|&verdict| Record {
                verdict,
                reason: String::new(),
                bounds: None,
                comparison: Comparison::default(),
            })
            .collect();
        assert_eq!(Exit::of_run(&records, GateMode::Fail, tests_passed).code(), code);
        let when_warned = if tests_passed { 0 } else { 5 };
        assert_eq!(Exit::of_run(&records, GateMode::Warn, tests_passed).code(), when_warned);
    }
}
