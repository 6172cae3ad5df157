//! What the server may have put off when a window begins: the same for every window.

use std::fmt;

use crate::result::{EngineBand, EngineState};

/// Tenths of the states seen in the warm-up that are outside the band of dirty pages, on either side. Page cleaners work
/// in bursts: the number goes up and down by the half within seconds, and comes through its middle in each.
const TENTHS_OUTSIDE: usize = 1;

/// This part of the pool's pages is added to the band of dirty pages on either side.
const LEAST_DIRTY: u64 = 50;

/// By how much the middle of checkpoint age may move from one stretch of load to the next in a server at its pace. While a
/// redo log fills up it grows by the same in each, for minutes.
const AGE_DRIFT: f64 = 0.1;

/// Checkpoint ages below this are those of a server that has nearly nothing put off, in bytes: some hundreds of
/// transactions, and less than half of the smallest redo log, whatever it was a moment ago.
const LITTLE_AGE: u64 = 3 << 20;

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

/// The median of each.
fn middle(seen: &[EngineState]) -> EngineState {
    let median = |value: fn(&EngineState) -> u64| {
        let values = sorted(seen, value);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    EngineState {
        dirty_pages: median(|state| state.dirty_pages),
        pool_pages: median(|state| state.pool_pages),
        checkpoint_age: median(|state| state.checkpoint_age),
        history_length: median(|state| state.history_length),
    }
}

fn sorted(seen: &[EngineState], value: fn(&EngineState) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = seen.iter().map(value).collect();
    values.sort_unstable();
    values
}

impl EngineBand {
    /// The band around what was seen under load without a difference; that of nothing holds nothing.
    pub(super) fn around(seen: &[EngineState]) -> Self {
        let dirty = sorted(seen, |state| state.dirty_pages);
        let age = sorted(seen, |state| state.checkpoint_age);
        let history = sorted(seen, |state| state.history_length);
        let outside = dirty.len() * TENTHS_OUTSIDE / 10;
        let at = |values: &[u64], index: usize| values.get(index).copied().unwrap_or_default();
        let scaled = |value: u64, by: f64| (value as f64 * by) as u64;
        let last = seen.len().saturating_sub(1);
        let pool_pages = seen.last().map_or(0, |state| state.pool_pages);
        // A server that has nearly nothing put off is not to be held to exactly that.
        let least = pool_pages / LEAST_DIRTY;
        let youngest = scaled(at(&age, 0), 1.0 - CHECKPOINT_AGE_SLACK);
        Self {
            low: EngineState {
                dirty_pages: at(&dirty, outside).saturating_sub(least),
                pool_pages,
                checkpoint_age: if youngest > LITTLE_AGE { youngest } else { 0 },
                history_length: 0,
            },
            high: EngineState {
                dirty_pages: at(&dirty, last.saturating_sub(outside)) + least,
                pool_pages,
                checkpoint_age: scaled(at(&age, last), 1.0 + CHECKPOINT_AGE_SLACK).max(LITTLE_AGE),
                history_length: scaled(at(&history, last), HISTORY_SLACK.0) + HISTORY_SLACK.1,
            },
        }
    }

    /// What moved from one stretch of load to the next: the middle of the later one is outside the band of the earlier
    /// one, or its checkpoint age has gone on.
    pub(super) fn drift(before: &[EngineState], after: &[EngineState]) -> Option<Outside> {
        let (earlier, later) = (middle(before), middle(after));
        let tolerated = (earlier.checkpoint_age as f64 * AGE_DRIFT) as u64 + LITTLE_AGE / 8;
        let band = Self::around(before);
        let steady = Self {
            low: EngineState {
                checkpoint_age: earlier.checkpoint_age.saturating_sub(tolerated),
                ..band.low
            },
            high: EngineState {
                checkpoint_age: earlier.checkpoint_age + tolerated,
                ..band.high
            },
        };
        steady.outside(&later)
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
        Some("bytes of redo since the checkpoint 9000000, not within 0 to 3300000")
    )]
    #[case::purge_lags(
        state(330, 2_200_000, 5000),
        Some("transactions to be purged 5000, not within 0 to 900")
    )]
    #[case::purged(state(330, 2_200_000, 0), None)]
    fn what_is_outside_is_named(#[case] state: EngineState, #[case] outside: Option<&str>) {
        let band = EngineBand::around(&seen());
        assert_eq!(
            band.outside(&state).map(|outside| outside.to_string()).as_deref(),
            outside
        );
    }

    /// So many looks, this far apart.
    fn ramp(from: u64, by: i64, state_of: fn(u64) -> EngineState) -> Vec<EngineState> {
        (0..20)
            .map(|look| state_of(from.saturating_add_signed(by * look)))
            .collect()
    }

    #[rstest]
    #[case::at_its_pace(seen(), seen(), None)]
    #[case::still_cleaning_up(
        ramp(3000, -40, |dirty| state(dirty, 2_200_000, 200)),
        ramp(2200, -40, |dirty| state(dirty, 2_200_000, 200)),
        Some("dirty pages")
    )]
    #[case::a_redo_log_that_fills_up(
        ramp(20_000_000, 500_000, |age| state(330, age, 200)),
        ramp(30_000_000, 500_000, |age| state(330, age, 200)),
        Some("bytes of redo")
    )]
    #[case::a_redo_log_that_begins_to(
        ramp(0, 100_000, |age| state(330, age, 200)),
        ramp(2_000_000, 100_000, |age| state(330, age, 200)),
        Some("bytes of redo")
    )]
    #[case::nothing_put_off(
        ramp(0, 0, |none| state(none, 300, none)),
        ramp(0, 0, |none| state(none, 9000, none)),
        None
    )]
    fn a_server_that_drifts_is_not_at_its_pace(
        #[case] before: Vec<EngineState>,
        #[case] after: Vec<EngineState>,
        #[case] what: Option<&str>,
    ) {
        let drift = EngineBand::drift(&before, &after).map(|outside| outside.to_string());
        assert_eq!(drift.is_some(), what.is_some(), "{drift:?}");
        assert!(drift.is_none_or(|drift| drift.starts_with(what.unwrap())));
    }

    proptest! {
        #[test]
        fn most_of_what_was_seen_is_inside(dirty in prop::collection::vec(0..4096_u64, 1..60)) {
            let seen: Vec<_> = dirty.iter().map(|dirty| state(*dirty, 1000, 3)).collect();
            let band = EngineBand::around(&seen);
            let inside = seen.iter().filter(|state| band.outside(state).is_none()).count();
            prop_assert!(inside * 10 >= seen.len() * 8, "{inside} of {}", seen.len());
        }
    }
}
