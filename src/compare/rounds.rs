//! Windows paired into rounds.

use std::collections::BTreeMap;

use crate::result::{Side, Window};

/// One window on each side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round<'a> {
    without: &'a Window,
    with: &'a Window,
}

impl<'a> Round<'a> {
    /// Counted from 1.
    pub(super) fn number(&self) -> usize {
        self.without.round
    }

    /// The rig it was measured on.
    pub(super) fn rig(&self) -> usize {
        self.without.rig
    }

    pub(super) fn window(&self, side: Side) -> &'a Window {
        match side {
            Side::Without => self.without,
            Side::With => self.with,
        }
    }
}

/// The complete rounds, in order; a window without its counterpart is left out.
pub(super) fn pair(windows: &[Window]) -> Vec<Round<'_>> {
    let mut sides: BTreeMap<usize, (Option<&Window>, Option<&Window>)> = BTreeMap::new();
    for window in windows {
        let round = sides.entry(window.round).or_default();
        match window.side {
            Side::Without => round.0 = Some(window),
            Side::With => round.1 = Some(window),
        }
    }
    sides
        .into_values()
        .filter_map(|(without, with)| without.zip(with))
        .map(|(without, with)| Round { without, with })
        .collect()
}

/// ln(with / without) of every round; `None` if any is undefined. Leaving such a round out instead would
/// drop the very windows in which nothing got done.
pub(super) fn log_ratios(rounds: &[Round<'_>], value: impl Fn(&Window) -> f64) -> Option<Vec<f64>> {
    let ratio = |round: &Round<'_>| (value(round.with) / value(round.without)).ln();
    rounds
        .iter()
        .map(ratio)
        .map(|ratio| ratio.is_finite().then_some(ratio))
        .collect()
}

/// The values of rounds, rig by rig.
pub(super) fn by_rig(rounds: &[Round<'_>], values: &[f64]) -> Vec<Vec<f64>> {
    let mut rigs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (round, value) in rounds.iter().zip(values) {
        rigs.entry(round.rig()).or_default().push(*value);
    }
    rigs.into_values().collect()
}
