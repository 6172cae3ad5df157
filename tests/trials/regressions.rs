//! Regressions that a gate has to see.

use std::time::Duration;

use snaptax::bench::{Difference, State, bench};
use snaptax::command::Command;
use snaptax::gate::Bounds;
use snaptax::prelude::*;
use snaptax::result::Verdict;
use snaptax::server::MysqldOptions;
use snaptax::storage::Snapshot;

use crate::{COMPARISONS, bounds_around, judged};

/// What every write to the COW store takes longer.
const DELAY_MILLISECONDS: u32 = 40;

/// The bounds that the ordinary experiment is judged by.
const ORDINARY: &str = include_str!(
    "../experiments/snapshots/experiments__oltp__oltp_under_a_thick_snapshot@guest-tcg-400iops-mysql9.snap"
);

/// Fewer threads than the ordinary experiment has mean shorter latencies, and so a window that holds ten of them may be
/// shorter.
fn load(rows: u64) -> Oltp {
    Oltp::sysbench_0_4().rows(rows).threads(4).uniform()
}

/// A snapshot whose COW store is behind a dm-delay.
struct Slowed(Snapshot);

impl Slowed {
    /// Puts the delay under the snapshot while it is in use.
    fn new(snapshot: Snapshot) -> Self {
        let name = snapshot.path().file_name().unwrap().to_str().unwrap();
        let cow = format!("{name}-cow");
        let table = Command::new("dmsetup").args(["table", &cow]).run().unwrap();
        let table = table.stdout;
        let fields: Vec<&str> = table.split_whitespace().collect();
        let [start, length, "linear", device, offset] = fields[..] else {
            panic!("not one linear piece: {table}");
        };
        let slow = format!("{start} {length} delay {device} {offset} 0 {device} {offset} {DELAY_MILLISECONDS}");
        for arguments in [&["load", &cow, "--table", &slow][..], &["resume", &cow]] {
            Command::new("dmsetup").args(arguments).run().unwrap();
        }
        Self(snapshot)
    }
}

impl Difference for Slowed {
    fn describe(&self) -> String {
        format!(
            "{}, {DELAY_MILLISECONDS} ms before every write to it",
            self.0.describe()
        )
    }

    fn state(&self) -> snaptax::Result<State> {
        self.0.state()
    }

    fn undo(self) -> snaptax::Result<()> {
        self.0.undo()
    }
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_slower_cow_store_is_worse() {
    let comparisons = bench()
        .load(load(300_000))
        .window(Duration::from_secs(15))
        .half_width(0.30)
        .with(|rig| rig.volume().thick_snapshot("snapdatalv-1").create().map(Slowed::new))
        .measure_times(COMPARISONS)
        .unwrap();
    let bounds = Bounds::parse(ORDINARY.splitn(3, "---\n").nth(2).unwrap()).unwrap();
    let records = judged("a_slower_cow_store_is_worse", comparisons, &bounds);
    let worse = records.iter().filter(|record| record.verdict == Verdict::Worse).count();
    assert_eq!((records.len(), worse), (COMPARISONS, COMPARISONS));
}

/// `DETECT_ONLY` writes where a page is to go before it is written, `ON` writes the page itself there as well, many of
/// them in one request. So it takes a disk on which a large request counts as several, as on most that are rented, and a
/// table that the buffer pool holds, so that the disk has little to do but these writes:
///
/// ```sh
/// cargo experiments --iops 500 --io-size 16k --test trials every_page_twice -- --nocapture
/// ```
#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn an_option_that_writes_every_page_twice_is_worse() {
    let profile = std::env::var("SNAPTAX_PROFILE").unwrap();
    assert!(
        profile.ends_with("-16kib"),
        "run it with --iops 500 --io-size 16k: {profile}"
    );
    let mut options = MysqldOptions {
        buffer_pool: Size::mib(64),
        ..MysqldOptions::default()
    };
    options.extra.push("innodb_doublewrite=DETECT_ONLY".to_owned());
    let comparisons = bench()
        .load(load(100_000))
        .window(Duration::from_secs(10))
        .volume_size(Size::mib(512))
        .spare(Size::mib(8))
        .mysqld(options)
        .with(|rig| Ok(rig.server().set_variable("innodb_doublewrite", "ON")?))
        .measure_times(COMPARISONS)
        .unwrap();
    let bounds = bounds_around(1.0, 1.1);
    let records = judged("an_option_that_writes_every_page_twice_is_worse", comparisons, &bounds);
    let worse = records.iter().filter(|record| record.verdict == Verdict::Worse).count();
    assert_eq!((records.len(), worse), (COMPARISONS, COMPARISONS));
}
