//! What it costs the server to be looked at: everything that is read at the edges of a window, read again and again in the
//! middle of it instead, against not at all. A measurement reads it so seldom that noise would hide the cost: so it is
//! read far more often here, and the cost divided by how much more often. Takes eleven minutes.
//!
//! ```sh
//! SNAPTAX_IMAGE=snaptax/mysql:debian cargo bench --bench sampling
//! ```
//!
//! Needs Docker. The server has its data in memory, so that nothing but processors is short.
#![expect(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use snaptax::compare;
use snaptax::result::{Side, Window};
use snaptax::server::{Server, ServerOptions};
use snaptax::settings::{Settings, Size};
use snaptax::workload::{Connect, Load, Oltp, Sample, Table};

/// As short as may be: what else the machine does is then the same on both sides of most rounds.
const WINDOW: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_millis(100);

/// A reading before and one after each window, of 10 s where the default is 20.
const MEASUREMENT_READINGS_PER_SECOND: f64 = 0.2;

/// Ten minutes.
const ROUNDS: usize = 300;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let image = Settings::from_env().unwrap().image;
    let path = directory.path();
    let mut options = ServerOptions::new(image, path.join("data"), path.join("run"));
    options.mysqld.buffer_pool = Size::mib(256);
    options.mysqld.extra = ["sync_binlog=0", "innodb_flush_log_at_trx_commit=2"]
        .map(String::from)
        .to_vec();
    let stop = AtomicBool::new(false);
    let server = Server::start(options, &stop).unwrap();
    let connect = Connect::socket(server.socket());
    let oltp = Oltp::sysbench_0_4().rows(100_000).threads(8).uniform();
    oltp.prepare(&connect, &stop, |_| ()).unwrap();

    let load = Load::start(&oltp, &connect, 1).unwrap();
    load.window(WARM_UP, &stop).unwrap();
    let readings = AtomicU32::new(0);
    let windows: Vec<Window> = (1..=ROUNDS)
        .flat_map(|round| compare::order(round).map(|side| (round, side)))
        .map(|(round, side)| {
            let reading = (side == Side::With).then_some(&readings);
            let sample = window(&server, &connect, &load, reading);
            Window::new(round, side, sample.seconds, sample.counts, sample.latencies)
        })
        .collect();
    load.stop().unwrap();
    server.stop().unwrap();

    let figure = compare::estimate(&windows, ROUNDS).throughput.unwrap();
    let seconds: f64 = windows
        .iter()
        .filter(|window| window.side == Side::With)
        .map(|window| window.seconds)
        .sum();
    let rate = f64::from(readings.into_inner()) / seconds;
    let scaled = |ratio: f64| 100.0 * (1.0 - ratio) * MEASUREMENT_READINGS_PER_SECOND / rate;
    println!(
        "without reading {:.0} transactions/s, with {rate:.1} readings/s {:.0}: ratio {:.4} ({:.4} to {:.4}), {ROUNDS} \
         rounds of 2 x {} s",
        figure.without,
        figure.with,
        figure.ratio,
        figure.low,
        figure.high,
        WINDOW.as_secs()
    );
    println!(
        "a measurement, with {MEASUREMENT_READINGS_PER_SECOND} readings/s, costs {:.3} % ({:.3} to {:.3} %)",
        scaled(figure.ratio),
        scaled(figure.high),
        scaled(figure.low)
    );
}

/// Counts the readings, if there are to be any.
fn window(server: &Server, connect: &Connect, load: &Load, readings: Option<&AtomicU32>) -> Sample {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let Some(readings) = readings else { return };
            while !done.load(Ordering::Relaxed) {
                server.engine_state().unwrap();
                server.variables().unwrap();
                server.status(&["Uptime"]).unwrap();
                Table::at(connect).unwrap();
                readings.fetch_add(1, Ordering::Relaxed);
                thread::park_timeout(EVERY);
            }
        });
        let sample = load.window(WINDOW, &AtomicBool::new(false)).unwrap();
        done.store(true, Ordering::Relaxed);
        reading.thread().unpark();
        sample
    })
}
