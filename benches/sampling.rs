//! What it costs the server to be looked at: everything that is read at the edges of a window, read once a second in the
//! middle of it instead, against not at all. Takes eleven minutes.
//!
//! ```sh
//! SNAPTAX_IMAGE=snaptax/mysql:debian cargo bench --bench sampling
//! ```
//!
//! Needs Docker. The server has its data in memory, so that nothing but processors is short.
#![expect(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use snaptax::compare;
use snaptax::result::{Side, Window};
use snaptax::server::{Server, ServerOptions};
use snaptax::settings::{Settings, Size};
use snaptax::workload::{Connect, Load, Oltp, Table};

/// As short as may be: what else the machine does is then the same on both sides of most rounds.
const WINDOW: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(1);

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
    let windows: Vec<Window> = (1..=ROUNDS)
        .flat_map(|round| compare::order(round).map(|side| (round, side)))
        .map(|(round, side)| window(&server, &connect, &load, round, side))
        .collect();
    load.stop().unwrap();
    server.stop().unwrap();

    let figure = compare::estimate(&windows, ROUNDS).throughput.unwrap();
    println!(
        "without sampling {:.0} transactions/s, with it {:.0}",
        figure.without, figure.with
    );
    println!(
        "ratio {:.4} ({:.4} to {:.4}), {ROUNDS} rounds of 2 x {} s: sampling costs {:.2} %",
        figure.ratio,
        figure.low,
        figure.high,
        WINDOW.as_secs(),
        100.0 * (1.0 - figure.ratio)
    );
}

fn window(server: &Server, connect: &Connect, load: &Load, round: usize, side: Side) -> Window {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            while side == Side::With && !done.load(Ordering::Relaxed) {
                server.engine_state().unwrap();
                server.variables().unwrap();
                server.status(&["Uptime"]).unwrap();
                Table::at(connect).unwrap();
                thread::park_timeout(EVERY);
            }
        });
        let sample = load.window(WINDOW, &AtomicBool::new(false)).unwrap();
        done.store(true, Ordering::Relaxed);
        sampling.thread().unpark();
        Window::new(round, side, sample.seconds, sample.counts, sample.latencies)
    })
}
