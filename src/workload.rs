//! The load: sysbench 0.4.12's `oltp` test, mode `complex`, over ordinary client connections.
//!
//! Statements, their order, how ids are drawn and what counts as a deadlock are those of sysbench 0.4.12
//! (branch `0.4` of akopytov/sysbench), so that results can be set beside its reports. Two things differ on
//! purpose: the generators are always seeded (0.4.12 replays the same ids in every run unless told
//! otherwise), and counts are cut into windows from a load that keeps running.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use snaptax::workload::{Connect, Load, Oltp};
//!
//! let connect = Connect::socket("/run/mysqld/mysqld.sock").user("root");
//! let oltp = Oltp::sysbench_0_4().rows(400_000).threads(16).uniform();
//! let stop = AtomicBool::new(false);
//! oltp.prepare(&connect, &stop, |rows| eprintln!("{rows} rows"))?;
//! let load = Load::start(&oltp, &connect, 1)?;
//! let sample = load.window(Duration::from_secs(60), &stop)?;
//! println!("{:.2} transactions/s", sample.counts.transactions as f64 / sample.seconds);
//! load.stop()?;
//! # Ok::<(), snaptax::workload::Error>(())
//! ```

mod connect;
mod error;
mod ids;
mod oltp;
mod prepare;
mod runner;
mod statements;
mod table;
mod worker;

pub use connect::Connect;
pub use error::Error;
pub use oltp::{Distribution, Oltp};
pub use runner::{Load, Sample};
pub use table::Table;
