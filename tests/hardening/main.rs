//! What the storage rooms and the guest promise, on real devices: `cargo experiments --test hardening`.
#![expect(clippy::unwrap_used)]

mod guest;
mod invalid;
mod kills;
mod native;
mod overflow;
mod storage;
mod sweep;

/// For what changes the machine itself.
fn require_guest(why: &str) {
    assert!(
        std::env::var_os("SNAPTAX_VERSIONS").is_some(),
        "{why}: for a guest only"
    );
}
