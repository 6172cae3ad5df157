//! Gives experiments a machine.
fn main() {}
