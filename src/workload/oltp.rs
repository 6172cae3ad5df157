use super::Error;

/// How the ids of rows are drawn from `1..=rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Every row alike.
    Uniform,
    /// sysbench 0.4's default: three quarters of the draws from the middle hundredth of the table, the rest
    /// from a bell curve around it.
    #[default]
    Special,
}

/// A transaction profile with its table and threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oltp {
    rows: u64,
    threads: u32,
    distribution: Distribution,
}

impl Oltp {
    /// sysbench 0.4.12's `oltp` in mode `complex`: 10 point selects, 4 ranges of 100 rows, 3 updates, a delete
    /// and an insert between `BEGIN` and `COMMIT`; with its defaults, one thread on 10 000 rows.
    #[must_use]
    pub fn sysbench_0_4() -> Self {
        Self {
            rows: 10_000,
            threads: 1,
            distribution: Distribution::default(),
        }
    }

    /// Rows of the table, 101 (the ranges span so many ids) to 4294967295 (the ids' type holds no more).
    #[must_use]
    pub fn rows(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// Threads, each with a connection of its own, 1 or more.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Draws every row alike.
    #[must_use]
    pub fn uniform(mut self) -> Self {
        self.distribution = Distribution::Uniform;
        self
    }

    /// The profile's name, as in a result.
    #[must_use]
    pub fn name(&self) -> &'static str {
        "sysbench 0.4 oltp complex"
    }

    /// The distribution's name, as sysbench spells it.
    #[must_use]
    pub fn distribution_name(&self) -> &'static str {
        match self.distribution {
            Distribution::Uniform => "uniform",
            Distribution::Special => "special",
        }
    }

    /// Rows of the table.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// Threads.
    #[must_use]
    pub fn thread_count(&self) -> u32 {
        self.threads
    }

    /// How ids are drawn.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let problem = if !(101..=u64::from(u32::MAX)).contains(&self.rows) {
            "use 101 to 4294967295 rows"
        } else if self.threads == 0 {
            "use 1 load thread or more"
        } else {
            return Ok(());
        };
        Err(Error::Profile {
            problem: problem.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Oltp::sysbench_0_4().rows(100), "101 to 4294967295 rows")]
    #[case(Oltp::sysbench_0_4().rows(1 << 32), "101 to 4294967295 rows")]
    #[case(Oltp::sysbench_0_4().threads(0), "1 load thread")]
    fn a_profile_that_cannot_run_is_refused(#[case] oltp: Oltp, #[case] hint: &str) {
        assert!(oltp.check().unwrap_err().to_string().contains(hint));
    }
}
