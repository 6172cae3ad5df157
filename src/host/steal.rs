use std::fs;
use std::time::Duration;

/// A clock tick in `/proc`, which Linux fixes for programs.
const TICK: Duration = Duration::from_millis(10);

/// Time since the boot in which this machine's processors had work to do and its hypervisor ran something else on
/// them, of all of them together. None was stolen where there is no hypervisor.
#[must_use]
pub fn stolen() -> Option<Duration> {
    steal(&fs::read_to_string("/proc/stat").ok()?)
}

/// The eighth field of the first line: proc_stat(5).
fn steal(stat: &str) -> Option<Duration> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: u32 = fields.nth(7)?.parse().ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::of_a_virtual_machine("cpu  100 0 50 1000 500 0 25 375 10 0\ncpu0 1 2 3 4 5 6 7 8\n", Some(3750))]
    #[case::of_a_machine("cpu  100 0 50 1000 500 0 25 0 0 0\n", Some(0))]
    #[case::of_an_old_kernel("cpu  100 0 50 1000 500 0 25\n", None)]
    #[case::of_one_processor("cpu0 100 0 50 1000 500 0 25 375 10 0\n", None)]
    #[case::none("", None)]
    fn stolen_time_is_the_eighth_field_of_all_processors(#[case] stat: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(steal(stat), milliseconds.map(Duration::from_millis));
    }

    #[test]
    fn this_machine_tells() {
        assert!(stolen().is_some());
    }
}
