//! A real server in a container, without LVM: needs Docker, and the image that `SNAPTAX_IMAGE` names.
#![expect(clippy::unwrap_used, reason = "a test's fixture may panic")]

mod fixture;
mod server;
mod statements;
mod windows;
