//! What varies from one transaction to the next: ids of rows, and contents of column `c`.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Distribution;

/// How far the longest range reaches beyond its first id.
const RANGE: u64 = 100;

/// The ids of one transaction. A transaction that was a deadlock's victim starts anew with the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ids {
    /// Rows that are read one by one.
    pub(super) points: [u64; 10],
    /// First rows of the four ranges.
    pub(super) ranges: [u64; 4],
    /// The row whose indexed column is updated.
    pub(super) index_update: u64,
    /// The row whose column without an index is updated.
    pub(super) non_index_update: u64,
    /// The row that is updated, deleted and inserted again.
    pub(super) replaced: u64,
}

/// One thread's source of ids and contents.
#[derive(Debug)]
pub(super) struct Generator {
    random: StdRng,
    rows: u64,
    distribution: Distribution,
}

impl Generator {
    pub(super) fn new(seed: u64, rows: u64, distribution: Distribution) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            rows,
            distribution,
        }
    }

    pub(super) fn ids(&mut self) -> Ids {
        Ids {
            points: std::array::from_fn(|_| self.id()),
            ranges: std::array::from_fn(|_| self.range_start()),
            index_update: self.id(),
            non_index_update: self.id(),
            replaced: self.id(),
        }
    }

    fn id(&mut self) -> u64 {
        match self.distribution {
            Distribution::Uniform => self.uniform(),
            Distribution::Special => self.special(),
        }
    }

    fn range_start(&mut self) -> u64 {
        let last = self.rows.saturating_sub(RANGE);
        self.id().min(last).max(1)
    }

    fn uniform(&mut self) -> u64 {
        self.random.random_range(1..=self.rows)
    }

    fn gaussian(&mut self) -> u64 {
        let sum: u64 = (0..12).map(|_| self.uniform()).sum();
        sum / 12
    }

    fn special(&mut self) -> u64 {
        let draw = self.random.random_range(1..=4 * self.rows);
        if draw <= self.rows {
            return self.gaussian();
        }
        let width = (self.rows / 100).max(1);
        draw % width + self.rows / 2 - self.rows / 200
    }

    /// Writes a new content for column `c`: ten numbers below 2^30 - 1, joined by `-`, not padded.
    pub(super) fn write_content(&mut self, content: &mut String) {
        content.clear();
        for position in 0..10 {
            // As lrand48() does, from 0 to 2^31 - 1.
            let number = (self.random.random::<u32>() >> 1) % 0x3fff_ffff;
            let separator = if position == 0 { "" } else { "-" };
            // Writing to a string does not fail.
            let _ = write!(content, "{separator}{number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn generator(seed: u64, rows: u64, distribution: Distribution) -> Generator {
        Generator::new(seed, rows, distribution)
    }

    fn distribution() -> impl Strategy<Value = Distribution> {
        prop_oneof![Just(Distribution::Uniform), Just(Distribution::Special)]
    }

    proptest! {
        #[test]
        fn ids_and_ranges_stay_in_the_table(
            seed: u64, rows in 101..=u64::from(u32::MAX), distribution in distribution()
        ) {
            let mut generator = generator(seed, rows, distribution);
            for _ in 0..50 {
                let ids = generator.ids();
                let single = ids.points.iter().chain([&ids.index_update, &ids.non_index_update, &ids.replaced]);
                for id in single {
                    prop_assert!((1..=rows).contains(id), "{id}");
                }
                for start in ids.ranges {
                    prop_assert!((1..=rows - 100).contains(&start), "{start}");
                }
            }
        }

        #[test]
        fn contents_are_ten_plain_numbers_that_fit_the_column(seed: u64) {
            let mut content = String::from("left over");
            generator(seed, 101, Distribution::Uniform).write_content(&mut content);
            let numbers: Vec<&str> = content.split('-').collect();
            prop_assert_eq!(numbers.len(), 10);
            prop_assert!(content.len() <= 120);
            for text in numbers {
                let number: u32 = text.parse().unwrap();
                prop_assert!(number < 0x3fff_ffff);
                prop_assert_eq!(number.to_string(), text, "not padded");
            }
        }

        #[test]
        fn the_seed_alone_decides_what_is_drawn(seed: u64) {
            let draw = |seed| {
                let mut generator = generator(seed, 400_000, Distribution::Uniform);
                let mut content = String::new();
                generator.write_content(&mut content);
                (generator.ids(), content)
            };
            prop_assert_eq!(draw(seed), draw(seed));
            prop_assert_ne!(draw(seed), draw(seed.wrapping_add(1)));
        }
    }

    #[test]
    fn a_range_near_the_end_is_clamped_and_the_last_one_reaches_the_last_row() {
        let mut generator = generator(1, 150, Distribution::Uniform);
        let starts: Vec<u64> = (0..2000).map(|_| generator.range_start()).collect();
        assert_eq!(starts.iter().max(), Some(&50));
        let clamped = starts.iter().filter(|start| **start == 50).count();
        assert!(
            (1200..1480).contains(&clamped),
            "101 of 150 draws are clamped: {clamped}"
        );
    }

    #[test]
    fn uniform_draws_reach_every_tenth_of_the_table_alike() {
        let mut generator = generator(7, 1000, Distribution::Uniform);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[(generator.id() as usize - 1) / 100] += 1;
        }
        // Four standard deviations of a binomial with n = 100 000, p = 0.1.
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 380), "{tenths:?}");
    }

    #[test]
    fn special_draws_favour_the_middle_hundredth() {
        let mut generator = generator(7, 10_000, Distribution::Special);
        let middle = (0..100_000).filter(|_| (4950..5050).contains(&generator.id())).count();
        // Three quarters fall there, and about 4.8 % of the bell curve's quarter.
        assert!((75_500..77_000).contains(&middle), "{middle}");
    }
}
