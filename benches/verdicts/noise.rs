//! The noise of windows: what a simulated measurement is made of.

use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use snaptax::compare::order;
use snaptax::result::{Counts, Side, Window};

/// Statements of a transaction of sysbench's `oltp`: 14 reads, 5 writes, `BEGIN` and `COMMIT`.
pub(crate) const STATEMENTS: f64 = 21.0;

/// The 95 % point of the standard normal distribution.
pub(crate) const Z95: f64 = 1.6449;

/// A model of a run's windows. Rates are statements per second; everything with `sd` is a standard deviation of
/// logarithms, so that 0.03 is about 3 %.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// Rate without the difference.
    pub(crate) rate: f64,
    /// Logarithm of the ratio of rates, with / without.
    pub(crate) log_ratio: f64,
    /// Length of a window in seconds.
    pub(crate) seconds: f64,
    /// Threads of the load, each with one transaction under way: mean latency is threads / throughput.
    pub(crate) threads: f64,
    /// Between runs, of the level that both sides share.
    pub(crate) level_sd: f64,
    /// Between runs, of the ratio: a fresh server and data set have another one.
    pub(crate) ratio_sd: f64,
    /// Of a window, without.
    pub(crate) without_sd: f64,
    /// Of a window, with.
    pub(crate) with_sd: f64,
    /// Correlation of a window with the next one.
    pub(crate) phi: f64,
    /// Between runs, of the linear drift per window.
    pub(crate) drift_sd: f64,
    /// The share of windows that stall.
    pub(crate) stall_chance: f64,
    /// What a stalled window loses, least and most.
    pub(crate) stall_loss: (f64, f64),
    /// Of latencies in a window, which are lognormal.
    pub(crate) latency_sd: f64,
    /// Between runs, of p95 / mean latency on the with side.
    pub(crate) p95_run_sd: f64,
    /// Of a window, of p95 / mean latency.
    pub(crate) p95_window_sd: f64,
}

/// Which latencies a simulated window gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latencies {
    /// One for each transaction.
    All,
    /// None: p95 is not estimable, and a window costs next to nothing.
    None,
}

impl Noise {
    /// A run: an endless sequence of rounds on one rig.
    pub(crate) fn run(&self, seed: u64, latencies: Latencies) -> Run<'_> {
        let mut rng = StdRng::seed_from_u64(seed);
        let level = self.level_sd * normal(&mut rng);
        let log_ratio = self.log_ratio + self.ratio_sd * normal(&mut rng);
        let drift = self.drift_sd * normal(&mut rng);
        let p95 = self.p95_run_sd * normal(&mut rng);
        let state = normal(&mut rng);
        Run {
            noise: self,
            latencies,
            rng,
            level,
            log_ratio,
            drift,
            p95,
            state,
            windows: Vec::new(),
        }
    }
}

/// A run under way.
pub(crate) struct Run<'a> {
    noise: &'a Noise,
    latencies: Latencies,
    rng: StdRng,
    level: f64,
    /// The ratio of this rig, which its interval is to cover.
    pub(crate) log_ratio: f64,
    drift: f64,
    p95: f64,
    /// Of the autoregression, with standard deviation 1.
    state: f64,
    /// What was measured so far.
    pub(crate) windows: Vec<Window>,
}

impl Run<'_> {
    /// Measures until there are so many rounds.
    pub(crate) fn measure(&mut self, rounds: usize) {
        for round in self.windows.len() / 2 + 1..=rounds {
            for side in order(round) {
                let window = self.window(round, side);
                self.windows.push(window);
            }
        }
    }

    fn window(&mut self, round: usize, side: Side) -> Window {
        let noise = self.noise;
        let phi = noise.phi;
        self.state = phi * self.state + (1.0 - phi * phi).sqrt() * normal(&mut self.rng);
        let stall = match self.rng.random_bool(noise.stall_chance) {
            true => (1.0 - self.rng.random_range(noise.stall_loss.0..=noise.stall_loss.1)).ln(),
            false => 0.0,
        };
        let (ratio, sd, p95) = match side {
            Side::Without => (0.0, noise.without_sd, 0.0),
            Side::With => (self.log_ratio, noise.with_sd, self.p95),
        };
        let log = self.level + ratio + sd * self.state + stall + self.drift * self.windows.len() as f64;
        let rate = noise.rate * log.exp();
        let transactions = (rate * noise.seconds / STATEMENTS) as u64;
        let reads = (rate * noise.seconds).round() as u64;
        let p95 = p95 + noise.p95_window_sd * normal(&mut self.rng);
        let counts = Counts {
            transactions,
            reads,
            ..Counts::default()
        };
        let latencies = self.latencies(rate, p95, transactions);
        Window::new(round, side, noise.seconds, counts, latencies)
    }

    /// Lognormal latencies of this mean, whose p95 is beyond the usual one by a factor of exp(`p95`).
    fn latencies(&mut self, rate: f64, p95: f64, transactions: u64) -> Histogram<u64> {
        let mut histogram = empty();
        if self.latencies == Latencies::None {
            return histogram;
        }
        // ln(p95 / mean) is Z95 sd - sd^2 / 2.
        let sd = (self.noise.latency_sd + p95 / (Z95 - self.noise.latency_sd)).clamp(0.05, 1.5);
        let mean = 1e6 * self.noise.threads * STATEMENTS / rate;
        let median = mean.ln() - sd * sd / 2.0;
        histogram.auto(true);
        for _ in 0..transactions {
            let latency = (median + sd * normal(&mut self.rng)).exp();
            // It grows as needed, so that it takes any latency.
            let _ = histogram.record(latency as u64);
        }
        histogram
    }
}

/// A small histogram: simulations make very many of them.
pub(crate) fn empty() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that HdrHistogram accepts")]
    Histogram::new_with_bounds(1, 2, 3).expect("valid bounds")
}

/// A standard normal value (Box and Muller).
pub(crate) fn normal(rng: &mut StdRng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
