//! An experiment whose snapshot does not last.

use serial_test::file_serial;
use snaptax::settings::{Settings, Size};

use crate::kills::{assert_nothing_is_left, smallest_experiment};

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn a_snapshot_that_overflows_under_load_makes_the_measurement_invalid_and_ends_it() {
    // Six chunks, which a server writes to in a moment.
    let chunk = Size::kib(512);
    let comparison = smallest_experiment()
        .with(|rig| {
            rig.volume()
                .thick_snapshot("snap")
                .size(Size::mib(4))
                .chunk_size(chunk)
                .create()
        })
        .spare(Size::mib(8))
        .measure()
        .unwrap();
    let why = comparison.invalid.as_deref().unwrap();
    assert!(
        why.starts_with("round 1: snapshot ") && why.contains(" is lost "),
        "{why}"
    );
    assert_eq!(comparison.windows.len(), 2, "nothing is measured after it");
    assert!(comparison.windows.iter().all(|window| window.counts.transactions > 0));
    assert_nothing_is_left(&Settings::from_env().unwrap().work_dir);
}
