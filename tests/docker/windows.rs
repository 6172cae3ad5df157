use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use snaptax::command::Command;
use snaptax::workload::{Error, Load, Oltp, Sample, Table};

use crate::fixture::{Observer, Rig, connect, running};

#[test]
#[ignore = "needs Docker"]
fn windows_in_a_row_hold_everything_that_the_server_counted() {
    let rig = Rig::new();
    let server = rig.start();
    let threads = 4;
    let oltp = Oltp::sysbench_0_4().rows(20_000).threads(threads).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let load = Load::start(&oltp, &connect(&server), 1).unwrap();
    load.window(Duration::from_secs(1), &running()).unwrap();

    let commits = || server.status(&["Com_commit"]).unwrap()["Com_commit"];
    let before = commits();
    let windows: Vec<Sample> = (0..4)
        .map(|_| load.window(Duration::from_secs(1), &running()).unwrap())
        .collect();
    let committed = commits() - before;

    let total: u64 = windows.iter().map(|window| window.counts.transactions).sum();
    assert!(total > 100, "{total}");
    // The two questions to the server take a few milliseconds of load.
    let slack = committed / 50 + u64::from(2 * threads);
    assert!(
        total <= committed && committed - total <= slack,
        "{total} in windows, {committed} on the server"
    );
    for window in &windows {
        let counts = window.counts;
        assert_eq!(window.latencies.len(), counts.transactions);
        assert!((1.0..1.05).contains(&window.seconds), "{}", window.seconds);
        let edge = u64::from(threads) * 21;
        assert!(
            counts.reads.abs_diff(14 * counts.transactions) <= edge + 14 * counts.deadlocks,
            "{counts:?}"
        );
        assert!(
            counts.writes.abs_diff(5 * counts.transactions) <= edge + 5 * counts.deadlocks,
            "{counts:?}"
        );
        assert!(
            counts.other.abs_diff(2 * counts.transactions) <= edge + 2 * counts.deadlocks,
            "{counts:?}"
        );
        // A closed loop: threads = throughput x mean latency.
        let busy = window.latencies.mean() / 1e6 * counts.transactions as f64 / window.seconds;
        assert!(
            (busy / f64::from(threads) - 1.0).abs() < 0.1,
            "{busy} threads busy of {threads}"
        );
    }
    load.stop().unwrap();
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn load_leaves_dirty_pages_and_a_checkpoint_behind() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().rows(20_000).threads(4).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let load = Load::start(&oltp, &connect(&server), 1).unwrap();
    load.window(Duration::from_secs(1), &running()).unwrap();
    let state = server.engine_state().unwrap();
    load.stop().unwrap();
    assert!(
        state.dirty_pages > 0 && state.dirty_pages <= state.pool_pages,
        "{state:?}"
    );
    assert!(state.checkpoint_age > 0 && state.checkpoint_age < 32 << 20, "{state:?}");
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_server_killed_during_a_window_ends_it_at_once_with_the_statement() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().threads(4).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let load = Load::start(&oltp, &connect(&server), 1).unwrap();

    let (result, killed) = thread::scope(|scope| {
        let killer = scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            Command::new("docker")
                .args(["kill", server.container_id()])
                .run()
                .unwrap();
            Instant::now()
        });
        let result = load.window(Duration::from_secs(60), &running());
        let ended = Instant::now();
        (result, ended.saturating_duration_since(killer.join().unwrap()))
    });
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Statement { code: None, .. }), "{error:?}");
    assert!(killed < Duration::from_secs(1), "{killed:?} after the kill");

    let next = load.window(Duration::from_secs(60), &running()).unwrap_err();
    assert!(matches!(next, Error::Ended), "{next:?}");
    load.stop().unwrap();
    assert!(!server.is_running().unwrap());
}

#[test]
#[ignore = "needs Docker"]
fn the_stop_flag_ends_a_window_and_leaves_the_load_running() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().threads(2).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let load = Load::start(&oltp, &connect(&server), 1).unwrap();
    let stop = AtomicBool::new(true);
    let started = Instant::now();
    assert!(matches!(
        load.window(Duration::from_secs(60), &stop),
        Err(Error::Interrupted)
    ));
    assert!(started.elapsed() < Duration::from_secs(5));
    stop.store(false, Ordering::Relaxed);
    let sample = load.window(Duration::from_secs(1), &stop).unwrap();
    assert!(sample.counts.transactions > 0);
    load.stop().unwrap();
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn an_error_other_than_a_deadlock_ends_the_load_and_is_told() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().threads(2).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let load = Load::start(&oltp, &connect(&server), 1).unwrap();
    Observer::new(&server).run("DROP TABLE sbtest.sbtest");
    let error = load.window(Duration::from_secs(60), &running()).unwrap_err();
    assert!(matches!(error, Error::Statement { code: Some(1146), .. }), "{error:?}");
    load.stop().unwrap();
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn ageing_changes_a_thirtieth_of_the_rows_and_leaves_the_tables_identity() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().rows(20_000).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let before = Table::at(&connect(&server)).unwrap();
    assert_eq!((before.first, before.last), (Some(1), Some(20_000)));

    oltp.age(&connect(&server), 1, &running()).unwrap();
    let mut observer = Observer::new(&server);
    let changed: u64 = observer.row("SELECT COUNT(*) FROM sbtest.sbtest WHERE k > 0 OR c <> '' OR pad LIKE 'a%'");
    // Some rows are drawn twice.
    assert!((660..=667).contains(&changed), "{changed}");
    let rows: u64 = observer.row("SELECT COUNT(*) FROM sbtest.sbtest");
    assert_eq!(rows, 20_000);
    assert_eq!(Table::at(&connect(&server)).unwrap(), before);

    thread::sleep(Duration::from_millis(1100));
    observer.run("TRUNCATE TABLE sbtest.sbtest");
    let truncated = Table::at(&connect(&server)).unwrap();
    assert_eq!((truncated.first, truncated.last), (None, None));
    observer.run("ALTER TABLE sbtest.sbtest FORCE");
    let rebuilt = Table::at(&connect(&server)).unwrap();
    assert_ne!(rebuilt.created, before.created);
    server.stop().unwrap();
}
