//! Text that others wrote, made fit to be shown.

/// The text on one line, without what a terminal would obey.
///
/// ```
/// assert_eq!(snaptax::text::printable("/mnt/\u{1b}[2J\nx"), "/mnt/\\u{1b}[2J\\nx");
/// assert_eq!(snaptax::text::printable("/mnt/données"), "/mnt/données");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    shown.collect()
}
