//! What the server may have put off when a window begins: the same for every window.

use std::fmt;

use crate::result::{EngineBand, EngineState};

/// Tenths of the states seen in the warm-up that are outside the band of dirty pages, on either side. Page cleaners work
/// in bursts: the number goes up and down by the half within seconds, and comes through its middle in each.
const TENTHS_OUTSIDE: usize = 1;

/// By how much checkpoint age may be outside what the warm-up has shown. It goes up and down by a tenth.
const CHECKPOINT_AGE_SLACK: f64 = 0.5;

/// By what factor the history list may be longer than in the warm-up, and by how many transactions: it is cut in steps
/// of a hundred and more. A short one is no work put off.
const HISTORY_SLACK: (f64, u64) = (2.0, 500);

/// A state outside the band.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// What is outside: `dirty pages`.
    pub what: &'static str,
    /// What it is.
    pub value: u64,
    /// The lowest that it may be.
    pub low: u64,
    /// The highest that it may be.
    pub high: u64,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, low, high } = self;
        write!(f, "{what} {value}, not within {low} to {high}")
    }
}

impl EngineState {
    /// The median of each.
    pub(super) fn middle_of(seen: &[Self]) -> Self {
        let median = |value: fn(&Self) -> u64| {
            let values = sorted(seen, value);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self {
            dirty_pages: median(|state| state.dirty_pages),
            pool_pages: median(|state| state.pool_pages),
            checkpoint_age: median(|state| state.checkpoint_age),
            history_length: median(|state| state.history_length),
        }
    }
}

fn sorted(seen: &[EngineState], value: fn(&EngineState) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = seen.iter().map(value).collect();
    values.sort_unstable();
    values
}

impl EngineBand {
    /// The band around what was seen under load without a difference; `None` when nothing was seen.
    pub(super) fn around(seen: &[EngineState]) -> Option<Self> {
        let dirty = sorted(seen, |state| state.dirty_pages);
        let age = sorted(seen, |state| state.checkpoint_age);
        let history = sorted(seen, |state| state.history_length);
        let outside = dirty.len() * TENTHS_OUTSIDE / 10;
        let scaled = |value: u64, by: f64| (value as f64 * by) as u64;
        let pool_pages = seen.last()?.pool_pages;
        // A server that has nearly nothing put off is not to be held to exactly that.
        let least = pool_pages / 50;
        Some(Self {
            low: EngineState {
                dirty_pages: dirty.get(outside)?.saturating_sub(least),
                pool_pages,
                checkpoint_age: scaled(*age.first()?, 1.0 - CHECKPOINT_AGE_SLACK),
                history_length: 0,
            },
            high: EngineState {
                dirty_pages: dirty.get(dirty.len() - 1 - outside)? + least,
                pool_pages,
                checkpoint_age: scaled(*age.last()?, 1.0 + CHECKPOINT_AGE_SLACK),
                history_length: scaled(*history.last()?, HISTORY_SLACK.0) + HISTORY_SLACK.1,
            },
        })
    }

    /// What of a state is outside, if anything.
    pub(super) fn outside(&self, state: &EngineState) -> Option<Outside> {
        let outside = |what, of: fn(&EngineState) -> u64| {
            let (value, low, high) = (of(state), of(&self.low), of(&self.high));
            let inside = (low..=high).contains(&value);
            (!inside).then_some(Outside { what, value, low, high })
        };
        outside("dirty pages", |state| state.dirty_pages)
            .or_else(|| outside("bytes of redo since the checkpoint", |state| state.checkpoint_age))
            .or_else(|| outside("transactions to be purged", |state| state.history_length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn state(dirty_pages: u64, checkpoint_age: u64, history_length: u64) -> EngineState {
        EngineState {
            dirty_pages,
            pool_pages: 4096,
            checkpoint_age,
            history_length,
        }
    }

    /// A page cleaner at work, seen twice a second.
    fn seen() -> Vec<EngineState> {
        let dirty = [
            239, 384, 301, 355, 453, 248, 333, 390, 442, 324, 220, 324, 397, 451, 316, 223, 283, 408, 689, 142,
        ];
        dirty.map(|dirty| state(dirty, 2_200_000, 200)).to_vec()
    }

    #[rstest]
    #[case::in_the_middle(state(330, 2_200_000, 120), None)]
    #[case::after_a_burst_of_purge(state(689, 2_200_000, 120), Some("dirty pages 689, not within 142 to 532"))]
    #[case::clean(state(12, 2_200_000, 120), Some("dirty pages 12, not within 142 to 532"))]
    #[case::far_from_the_checkpoint(
        state(330, 9_000_000, 120),
        Some("bytes of redo since the checkpoint 9000000, not within 1100000 to 3300000")
    )]
    #[case::purge_lags(
        state(330, 2_200_000, 5000),
        Some("transactions to be purged 5000, not within 0 to 900")
    )]
    #[case::purged(state(330, 2_200_000, 0), None)]
    fn what_is_outside_is_named(#[case] state: EngineState, #[case] outside: Option<&str>) {
        let band = EngineBand::around(&seen()).unwrap();
        assert_eq!(
            band.outside(&state).map(|outside| outside.to_string()).as_deref(),
            outside
        );
    }

    #[test]
    fn a_server_that_still_cleans_up_is_not_where_it_was() {
        let filling: Vec<_> = (0..20).map(|step| state(3000 - 100 * step, 2_200_000, 200)).collect();
        let before = EngineBand::around(&filling).unwrap();
        assert!(before.outside(&EngineState::middle_of(&seen())).is_some());
        let steady = EngineBand::around(&seen()).unwrap();
        assert_eq!(steady.outside(&EngineState::middle_of(&seen())), None);
        assert_eq!(EngineState::middle_of(&seen()), state(333, 2_200_000, 200));
    }

    #[test]
    fn nothing_seen_gives_no_band() {
        assert_eq!(EngineBand::around(&[]), None);
    }

    proptest! {
        #[test]
        fn most_of_what_was_seen_is_inside(dirty in prop::collection::vec(0..4096_u64, 1..60)) {
            let seen: Vec<_> = dirty.iter().map(|dirty| state(*dirty, 1000, 3)).collect();
            let band = EngineBand::around(&seen).unwrap();
            let inside = seen.iter().filter(|state| band.outside(state).is_none()).count();
            prop_assert!(inside * 10 >= seen.len() * 8, "{inside} of {}", seen.len());
        }
    }
}
