//! One measurement on several rigs, at the smallest scale.

use std::time::Duration;

use snaptax::bench::bench;
use snaptax::prelude::*;
use snaptax::server::MysqldOptions;

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_measurement_on_two_rigs_has_a_pilot_on_the_first_and_four_rounds_on_the_other() {
    let options = MysqldOptions {
        buffer_pool: Size::mib(8),
        redo_capacity: Size::mib(8),
        ..MysqldOptions::default()
    };
    let comparison = bench()
        .load(Oltp::sysbench_0_4().rows(2000).threads(1).uniform())
        .window(Duration::from_secs(3))
        .half_width(10.0)
        .rigs(2)
        .volume_size(Size::mib(320))
        .mysqld(options)
        .with(|rig| rig.volume().thick_snapshot("snap").create())
        .measure()
        .unwrap();
    assert_eq!(comparison.invalid, None);
    let windows_of = |rig| comparison.windows.iter().filter(|window| window.rig == rig).count();
    assert_eq!((windows_of(1), windows_of(2)), (12, 8));
    assert!(comparison.profile.ends_with("-rigs2"), "{}", comparison.profile);
    assert!(comparison.throughput.is_some());
}
