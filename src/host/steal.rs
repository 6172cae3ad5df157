use std::fs;
use std::time::Duration;

/// A clock tick in `/proc`, which Linux fixes for programs.
const TICK: u64 = 10;

/// Time since the boot in which one of this machine's processors, on average, had work to do and its hypervisor ran
/// something else on it. None was stolen where there is no hypervisor.
#[must_use]
pub fn stolen() -> Option<Duration> {
    steal(&fs::read_to_string("/proc/stat").ok()?)
}

/// The eighth field of the first line, which is of all processors, that have a line each: proc_stat(5).
fn steal(stat: &str) -> Option<Duration> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: u64 = fields.nth(7)?.parse().ok()?;
    let processors = stat.lines().skip(1).filter(|line| line.starts_with("cpu")).count();
    Some(Duration::from_millis(TICK * ticks / processors.max(1) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::of_a_virtual_machine("cpu  100 0 50 1000 500 0 25 375 10 0\ncpu0 1 2 3 4 5 6 7 8\n", Some(3750))]
    #[case::of_three_processors("cpu  0 0 0 0 0 0 0 375 0 0\ncpu0 1\ncpu1 1\ncpu2 1\nintr 1\n", Some(1250))]
    #[case::of_years("cpu  0 0 0 0 0 0 0 9000000000 0 0\n", Some(90_000_000_000))]
    #[case::of_a_machine("cpu  100 0 50 1000 500 0 25 0 0 0\n", Some(0))]
    #[case::of_an_old_kernel("cpu  100 0 50 1000 500 0 25\n", None)]
    #[case::of_one_processor("cpu0 100 0 50 1000 500 0 25 375 10 0\n", None)]
    #[case::none("", None)]
    fn stolen_time_is_the_eighth_field_shared_by_all_processors(#[case] stat: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(steal(stat), milliseconds.map(Duration::from_millis));
    }

    #[test]
    fn this_machine_tells() {
        assert!(stolen().is_some());
    }
}
