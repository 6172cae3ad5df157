//! What needs root and device-mapper; `cargo experiments` provides them.
#![expect(clippy::unwrap_used)]

mod guest;
mod oltp;
mod storage;
