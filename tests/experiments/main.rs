//! What needs root and device-mapper; `cargo experiments` provides them.

mod oltp;
mod storage;
