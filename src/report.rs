//! Results for people and programs: one file per format.

pub mod json;
pub(crate) mod number;
mod table;

pub use table::table;
