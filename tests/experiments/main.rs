//! The experiments: `cargo experiments`, or `cargo test --profile experiments --test experiments -- --ignored` as root on
//! a machine with device-mapper and Docker.

mod oltp;
