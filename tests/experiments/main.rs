//! The experiments: `cargo experiments`, or `cargo test -- --ignored` as root on a machine with device-mapper and
//! Docker.

mod oltp;
