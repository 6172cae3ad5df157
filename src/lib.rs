//! Measure what an LVM snapshot costs MySQL, and fail CI when that cost gets worse.

pub mod command;
pub mod compare;
pub mod gate;
pub mod report;
pub mod result;
#[cfg(feature = "experiments")]
pub mod server;
pub mod settings;
pub mod workload;
