//! Measure what an LVM snapshot costs MySQL, and fail CI when that cost gets worse.
//!
//! Every experiment is a `#[test]`: a fixture builds a volume group on a loop device, MySQL runs in a container with
//! its data directory on a logical volume, an OLTP load runs without and with a snapshot, and the *ratio* of the two
//! is judged by bounds in an insta snapshot file.
//!
//! ```no_run
//! use snaptax::prelude::*;
//!
//! #[rstest]
//! #[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
//! #[file_serial(storage)]
//! fn oltp_under_a_thick_snapshot(bench: Bench) -> snaptax::Result<()> {
//!     let comparison = bench
//!         .load(Oltp::sysbench_0_4().threads(16).uniform())
//!         .with(|rig| rig.volume().thick_snapshot("snapdatalv-1").size(Size::gib(1)).create())
//!         .measure()?;
//!     assert_ratio_bounds!(comparison);
//!     Ok(())
//! }
//! ```
//!
//! Where to go from here: [`mod@bench`] is what experiments are written with, [`gate`] judges and explains bounds,
//! [`settings`] lists the knobs, [`storage`], [`server`] and [`workload`] can be used on their own, and [`result`] is
//! the schema of `results.json`.

#[cfg(feature = "experiments")]
pub mod bench;
pub mod command;
pub mod compare;
pub mod gate;
pub mod host;
pub mod report;
pub mod result;
#[cfg(feature = "experiments")]
pub mod server;
pub mod settings;
pub mod storage;
pub mod sweep;
pub mod text;
pub mod workload;

#[cfg(feature = "experiments")]
pub use bench::Error;

/// The result of an experiment's test function.
#[cfg(feature = "experiments")]
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an experiment's file needs.
#[cfg(feature = "experiments")]
pub mod prelude {
    pub use rstest::rstest;
    pub use serial_test::file_serial;

    pub use crate::assert_ratio_bounds;
    pub use crate::bench::{Bench, Difference, Rig, bench};
    pub use crate::settings::Size;
    pub use crate::workload::Oltp;
}

/// The README's example compiles.
#[cfg(all(doctest, feature = "experiments"))]
#[doc = include_str!("../README.md")]
struct Readme;
