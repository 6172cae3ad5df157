//! What the storage rooms and the guest promise, on real devices: `cargo experiments --test hardening`.
#![expect(clippy::unwrap_used)]

mod guest;
mod kills;
mod native;
mod storage;
mod sweep;
