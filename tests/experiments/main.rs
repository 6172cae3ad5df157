//! What needs root and device-mapper; `cargo experiments` provides them.

mod guest;
mod oltp;
mod storage;
