//! Results for people and programs: one file per format.

mod drawing;
pub mod history;
pub mod json;
pub(crate) mod number;
mod table;
pub mod timings;

pub use table::table;
