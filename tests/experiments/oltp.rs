use snaptax::prelude::*;

/// The report this crate grew from: sysbench 0.4.12 OLTP, 16 threads, uniform, read-write, on `vgtest/datalv` without
/// and with the thick snapshot `snapdatalv-1`. It found 80.23 and 35.09 transactions/s in 600 s on 10 000 000 rows;
/// its own scale, which takes four hours:
///
/// ```sh
/// SNAPTAX_ROWS=10000000 SNAPTAX_TIME=600 SNAPTAX_VOLUME_SIZE=20g SNAPTAX_SNAPSHOT_SIZE=10g SNAPTAX_BUDGET=240 \
///     cargo experiments --disk 32g --timeout 800 oltp_under_a_thick_snapshot
/// ```
#[rstest]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn oltp_under_a_thick_snapshot(bench: Bench) -> snaptax::Result<()> {
    let comparison = bench
        .load(Oltp::sysbench_0_4().rows(300_000).threads(16).uniform())
        .with(|rig| rig.volume().thick_snapshot("snapdatalv-1").size(Size::gib(1)).create())
        .measure()?;
    assert_ratio_bounds!(comparison);
    Ok(())
}
