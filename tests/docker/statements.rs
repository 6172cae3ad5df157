use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use snaptax::server::Server;
use snaptax::workload::{Error, Load, Oltp};

use crate::fixture::{Observer, Rig, connect, running};

/// What sysbench 0.4.12 sends, with `N` for numbers.
const TRANSACTION: [(&str, &str); 21] = [
    ("Query", "BEGIN"),
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    POINT,
    ("Execute", "SELECT c from sbtest where id between N and N"),
    ("Execute", "SELECT SUM(K) from sbtest where id between N and N"),
    ("Execute", "SELECT c from sbtest where id between N and N order by c"),
    (
        "Execute",
        "SELECT DISTINCT c from sbtest where id between N and N order by c",
    ),
    ("Execute", "UPDATE sbtest set k=k+N where id=N"),
    ("Execute", "UPDATE sbtest set c='N-N-N-N-N-N-N-N-N-N' where id=N"),
    ("Execute", "UPDATE sbtest set k=k+N where id=N"),
    ("Execute", "DELETE from sbtest where id=N"),
    (
        "Execute",
        "INSERT INTO sbtest values(N,N,' ','aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')",
    ),
    ("Execute", "COMMIT"),
];
const POINT: (&str, &str) = ("Execute", "SELECT c from sbtest where id=N");

#[test]
#[ignore = "needs Docker"]
fn prepare_makes_the_table_of_sysbench_0_4() {
    let rig = Rig::new();
    let server = rig.start();
    let mut progress = Vec::new();
    Oltp::sysbench_0_4()
        .rows(25_000)
        .prepare(&connect(&server), &running(), |rows| progress.push(rows))
        .unwrap();
    assert_eq!(progress, [10_000, 20_000, 25_000]);

    let mut observer = Observer::new(&server);
    let (_, table): (String, String) = observer.row("SHOW CREATE TABLE sbtest.sbtest");
    for part in [
        "PRIMARY KEY (`id`)",
        "KEY `k` (`k`)",
        "`c` char(120)",
        "`pad` char(60)",
        "ENGINE=InnoDB",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let rows: (u64, u64, u64) = observer.row("SELECT COUNT(*), MIN(id), MAX(id) FROM sbtest.sbtest");
    assert_eq!(rows, (25_000, 1, 25_000));
    let row: (u32, String, String) = observer.row("SELECT k, c, pad FROM sbtest.sbtest WHERE id = 25000");
    let pad = "qqqqqqqqqqwwwwwwwwwweeeeeeeeeerrrrrrrrrrtttttttttt";
    assert_eq!(
        row,
        (0, String::new(), pad.to_owned()),
        "char columns lose trailing blanks"
    );

    let again = Oltp::sysbench_0_4().prepare(&connect(&server), &running(), |_| ());
    let message = again.unwrap_err().to_string();
    assert!(
        message.contains("CREATE TABLE sbtest") && message.contains("already exists"),
        "{message}"
    );
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn prepare_refuses_a_table_whose_ids_have_gaps() {
    let rig = Rig::new();
    let mut options = rig.options();
    options.mysqld.extra = vec!["auto_increment_increment=2".into()];
    let server = Server::start(options, &running()).unwrap();
    let result = Oltp::sysbench_0_4()
        .rows(1000)
        .prepare(&connect(&server), &running(), |_| ());
    let error = result.unwrap_err();
    let expected = (1000, Some(1), Some(1999));
    assert!(
        matches!(error, Error::Rows { found, first, last, .. } if (found, first, last) == expected),
        "{error}"
    );
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn prepare_heeds_the_stop_flag() {
    let rig = Rig::new();
    let server = rig.start();
    let stop = AtomicBool::new(false);
    let mut done = 0;
    let result = Oltp::sysbench_0_4()
        .rows(1_000_000)
        .prepare(&connect(&server), &stop, |rows| {
            done = rows;
            stop.store(true, Ordering::Relaxed);
        });
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert_eq!(done, 10_000);
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn the_server_sees_the_21_statements_in_order() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().rows(10_000).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let log = log_of(&server, &oltp, Duration::from_secs(1));
    let (_, entries) = log.iter().next().unwrap();

    let prepared: Vec<&str> = of_kind(entries, "Prepare");
    assert_eq!(
        prepared,
        [
            "SELECT c from sbtest where id=?",
            "SELECT c from sbtest where id between ? and ?",
            "SELECT SUM(K) from sbtest where id between ? and ?",
            "SELECT c from sbtest where id between ? and ? order by c",
            "SELECT DISTINCT c from sbtest where id between ? and ? order by c",
            "UPDATE sbtest set k=k+1 where id=?",
            "UPDATE sbtest set c=? where id=?",
            "DELETE from sbtest where id=?",
            "INSERT INTO sbtest values(?,0,' ','aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')",
            "COMMIT",
        ]
    );
    let attempts = attempts(entries);
    assert!(attempts.len() > 10);
    for attempt in &attempts {
        let seen: Vec<(&str, String)> = attempt
            .iter()
            .map(|(kind, text)| (kind.as_str(), shape(text)))
            .collect();
        let seen: Vec<(&str, &str)> = seen.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        assert_eq!(seen, TRANSACTION);
        let lengths: Vec<u64> = attempt[11..15].iter().map(|(_, text)| range_length(text)).collect();
        assert_eq!(lengths, [99, 99, 99, 100]);
        let replaced: Vec<u64> = attempt[17..20].iter().map(|(_, text)| row_of(text)).collect();
        assert_eq!(replaced, [replaced[0]; 3], "updated, deleted and inserted again");
    }
    assert_ne!(numbers(&attempts[0][1].1), numbers(&attempts[1][1].1), "fresh ids");
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_deadlocks_victim_is_counted_and_starts_anew_with_the_same_ids() {
    let rig = Rig::new();
    let server = rig.start();
    let oltp = Oltp::sysbench_0_4().rows(101).threads(4).uniform();
    oltp.prepare(&connect(&server), &running(), |_| ()).unwrap();
    let done = running();
    let (log, others_victims) = thread::scope(|scope| {
        let adversary = scope.spawn(|| update_every_row(&server, &done));
        let log = log_of(&server, &oltp, Duration::from_secs(3));
        done.store(true, Ordering::Relaxed);
        (log, adversary.join().unwrap())
    });
    let mut victims = 0;
    for entries in log.values() {
        for pair in attempts(entries).windows(2) {
            let [attempt, next] = pair else { unreachable!() };
            if attempt.last().unwrap().1 == "COMMIT" {
                continue;
            }
            victims += 1;
            // Either may have been cut short.
            let pairs: Vec<(u64, u64)> = ids(attempt).into_iter().zip(ids(next)).collect();
            assert!(
                pairs.len() >= 18 && pairs.iter().all(|(old, new)| old == new),
                "{pairs:?}"
            );
            let content = |attempt: &[(String, String)]| attempt.get(16).map(|(_, text)| text.clone());
            if let (Some(old), Some(new)) = (content(attempt), content(next)) {
                assert_ne!(old, new, "a new content of c");
            }
        }
    }
    assert!(victims > 5, "{victims} victims in the log");
    let metric = "SELECT count FROM information_schema.INNODB_METRICS WHERE name = 'lock_deadlocks'";
    let deadlocks: u64 = Observer::new(&server).row(metric);
    let seen = victims + others_victims;
    // At the load's end a victim does not start anew. MariaDB from 11.6 on has a second reason to start anew,
    // error 1020, which is no deadlock to it.
    assert!(deadlocks <= seen + 4, "{seen} of the server's {deadlocks}");
    if server.description().unwrap().series.starts_with("mysql") {
        assert!(seen <= deadlocks, "{seen}, but the server counted {deadlocks}");
    }
    server.stop().unwrap();
}

/// Runs transactions that lock the table row by row, against which others deadlock; having changed more, it is
/// rarely the victim itself. Returns how often it was.
fn update_every_row(server: &Server, done: &AtomicBool) -> u64 {
    let mut connection = Observer::new(server);
    let mut victim = 0;
    while !done.load(Ordering::Relaxed) {
        connection.run("BEGIN");
        let updated = (1..=101)
            .try_for_each(|id| connection.attempt(&format!("UPDATE sbtest.sbtest SET k = k + 1 WHERE id = {id}")));
        match updated {
            Ok(()) => connection.run("COMMIT"),
            Err(mysql::Error::MySqlError(error)) if error.code == 1213 => victim += 1,
            Err(error) => panic!("{error}"),
        }
    }
    victim
}

type Entry = (String, String);

/// The general query log of a load's connections: kind and text of every entry, by connection.
fn log_of(server: &Server, oltp: &Oltp, duration: Duration) -> BTreeMap<u64, Vec<Entry>> {
    let mut observer = Observer::new(server);
    observer.run("SET GLOBAL log_output = 'TABLE'");
    observer.run("SET GLOBAL general_log = ON");
    let load = Load::start(oltp, &connect(server), 1).unwrap();
    let deadlocks = load.window(duration, &running()).unwrap().counts.deadlocks;
    assert_eq!(deadlocks > 0, oltp.thread_count() > 1);
    load.stop().unwrap();
    observer.run("SET GLOBAL general_log = OFF");
    // The log is a CSV table: its order is that of the entries.
    let entries: Vec<(u64, String, String)> = observer.rows(
        "SELECT thread_id, command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log \
         WHERE command_type IN ('Prepare', 'Execute', 'Query')",
    );
    let mut log: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    for (connection, kind, text) in entries {
        log.entry(connection).or_default().push((kind, text));
    }
    log.retain(|_, entries| entries.iter().any(|(kind, _)| kind == "Prepare"));
    assert_eq!(log.len(), oltp.thread_count() as usize);
    log
}

fn of_kind<'a>(entries: &'a [Entry], kind: &str) -> Vec<&'a str> {
    let wanted = entries.iter().filter(|(other, _)| other == kind);
    wanted.map(|(_, text)| text.as_str()).collect()
}

/// The entries from one `BEGIN` to before the next.
fn attempts(entries: &[Entry]) -> Vec<Vec<Entry>> {
    let mut attempts: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        if entry.1 == "BEGIN" {
            attempts.push(Vec::new());
        }
        if let Some(attempt) = attempts.last_mut() {
            attempt.push(entry.clone());
        }
    }
    attempts
}

fn numbers(text: &str) -> Vec<u64> {
    let parts = text.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// A statement with `N` for every number.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if shape.ends_with('N') => {}
            '0'..='9' => shape.push('N'),
            c => shape.push(c),
        }
    }
    shape
}

fn range_length(text: &str) -> u64 {
    let ends = numbers(text);
    ends[1] - ends[0]
}

/// The row that an update, a delete or the insert is about.
fn row_of(text: &str) -> u64 {
    let numbers = numbers(text);
    if text.starts_with("INSERT") {
        numbers[0]
    } else {
        numbers[numbers.len() - 1]
    }
}

/// Every id in an attempt, in order, without the contents of `c`.
fn ids(attempt: &[Entry]) -> Vec<u64> {
    let texts = attempt.iter().map(|(_, text)| text);
    texts
        .flat_map(|text| {
            if text.contains("set c=") {
                vec![row_of(text)]
            } else {
                numbers(text)
            }
        })
        .collect()
}
