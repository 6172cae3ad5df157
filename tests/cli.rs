//! The command-line tool, as a user starts it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use assert_cmd::Command;
use rstest::rstest;
use snaptax::gate::Bounds;
use snaptax::report::history::{self, Entry};
use snaptax::result::{Comparison, Figure, Record, Verdict};
use snaptax::settings::KNOBS;

fn snaptax(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("snaptax").unwrap();
    command.args(args);
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn doctor_exits_with_5_exactly_when_something_is_missing_and_gives_each_a_fix() {
    let (code, stdout, _) = output(&mut snaptax(&["doctor"]));
    let missing = stdout.lines().filter(|line| line.starts_with("missing ")).count();
    let fixes = stdout
        .lines()
        .filter(|line| line.trim_start().starts_with("fix: "))
        .count();
    assert_eq!(code, Some(if missing > 0 { 5 } else { 0 }), "{stdout}");
    assert_eq!(fixes, missing, "{stdout}");
}

#[test]
fn doctor_reports_a_work_directory_that_is_not_there_together_with_everything_else() {
    let (code, stdout, _) = output(snaptax(&["doctor"]).env("SNAPTAX_WORK_DIR", "/no/such/directory"));
    assert_eq!(code, Some(5), "{stdout}");
    assert!(
        stdout.contains("missing  the work directory /no/such/directory"),
        "{stdout}"
    );
    assert!(stdout.contains("SNAPTAX_WORK_DIR"), "{stdout}");
    assert!(stdout.contains("loop"), "{stdout}");
}

#[test]
fn doctor_offers_the_guest_where_docker_does_not_answer() {
    let (code, stdout, _) = output(snaptax(&["doctor"]).env("DOCKER_HOST", "unix:///no/such.sock"));
    assert_eq!(code, Some(5), "{stdout}");
    assert!(
        stdout.contains("no Docker Engine at unix:///no/such.sock") && stdout.contains("cargo experiments"),
        "{stdout}"
    );
}

#[test]
fn a_setting_that_cannot_be_used_is_a_usage_error() {
    let (code, _, stderr) = output(snaptax(&["doctor"]).env("SNAPTAX_ROWS", "0"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("SNAPTAX_ROWS=0"), "{stderr}");
}

#[test]
fn settings_lists_every_knob_with_what_it_does() {
    let (code, stdout, _) = output(&mut snaptax(&["settings"]));
    assert_eq!(code, Some(0));
    for knob in KNOBS {
        assert!(
            stdout.contains(&format!("{}={}\n    {}", knob.name, knob.value, knob.about)),
            "{}",
            knob.name
        );
    }
}

#[rstest]
#[case(&["--help"])]
#[case(&["doctor", "--help"])]
#[case(&["sweep", "--help"])]
#[case(&["history", "--help"])]
#[case(&["bounds", "--help"])]
#[case(&["settings", "--help"])]
fn help_has_examples(#[case] args: &[&str]) {
    let (code, stdout, _) = output(&mut snaptax(args));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Example"), "{stdout}");
}

#[test]
fn the_experiments_that_help_shows_are_built_as_the_harness_builds_them() {
    let (_, stdout, _) = output(&mut snaptax(&["--help"]));
    let command = "cargo test --profile experiments --test experiments -- --ignored";
    assert!(stdout.contains(command), "{stdout}");
}

#[test]
fn help_with_another_scale_says_what_bounds_are_for() {
    for args in [&["--help"][..], &["doctor", "--help"], &["settings", "--help"]] {
        let (_, stdout, _) = output(&mut snaptax(args));
        let scaled = ["SNAPTAX_ROWS", "SNAPTAX_TIME", "SNAPTAX_VOLUME_SIZE"];
        let scaled = scaled.iter().any(|name| stdout.contains(name));
        assert!(
            !scaled || stdout.contains("Bounds are for the default scale"),
            "{stdout}"
        );
    }
}

#[rstest]
#[case(&[])]
#[case(&["docter"])]
fn a_command_line_that_makes_no_sense_is_a_usage_error(#[case] args: &[&str]) {
    assert_eq!(output(&mut snaptax(args)).0, Some(2));
}

/// Twelve runs, the last six of them a tenth lower.
fn history_with_a_change() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let entry = |run: u32| {
        let ratio = if run < 6 { 0.60 } else { 0.54 } + 0.002 * f64::from(run % 3);
        Entry::now(&Record {
            verdict: Verdict::Within,
            reason: String::new(),
            bounds: None,
            comparison: Comparison {
                name: "thick".into(),
                throughput: Some(Figure {
                    without: 1.0,
                    with: ratio,
                    ratio,
                    low: ratio,
                    high: ratio,
                }),
                ..Comparison::default()
            },
        })
    };
    history::append(file.path(), &(0..12).map(entry).collect::<Vec<_>>()).unwrap();
    file
}

#[test]
fn history_shows_where_a_ratio_came_to_a_new_level() {
    let file = history_with_a_change();
    let path = file.path().to_str().unwrap();
    let (code, stdout, _) = output(&mut snaptax(&["history", "thick", "--file", path]));
    assert_eq!(
        (code, stdout.matches("a new level: ").count()),
        (Some(0), 1),
        "{stdout}"
    );
    assert_eq!(stdout.matches("Within").count(), 12, "{stdout}");
}

#[test]
fn bounds_from_the_last_runs_are_the_body_of_a_snapshot_file() {
    let file = history_with_a_change();
    let path = file.path().to_str().unwrap();
    let (code, stdout, stderr) = output(&mut snaptax(&["bounds", "--last", "6", "--file", path]));
    assert_eq!(code, Some(0), "{stderr}");
    let (title, body) = stdout.split_once('\n').unwrap();
    assert!(
        title.starts_with("# thick on ") && title.ends_with("from 6 runs"),
        "{title}"
    );
    let bounds = Bounds::parse(body).unwrap().throughput;
    assert!(bounds.low < 0.53 && (0.55..0.60).contains(&bounds.high), "{body}");
}

#[rstest]
#[case::across_a_change(&["--last", "12"], "the ratio came to a new level within the last 12 runs; only 6 are")]
#[case::too_few_runs(&["--last", "13"], "12 runs from which something may be concluded, and 13 are needed")]
#[case::fewer_than_ever_do(&["--last", "4"], "4 is not in 5..")]
#[case::no_such_experiment(&["thin"], "no run that matches")]
fn bounds_take_runs_enough(#[case] args: &[&str], #[case] said: &str) {
    let file = history_with_a_change();
    let args = [&["bounds", "--file", file.path().to_str().unwrap()], args].concat();
    let (code, stdout, stderr) = output(&mut snaptax(&args));
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    assert!(stderr.contains(said), "{stderr}");
}

#[rstest]
#[case::no_such_experiment("thin", None, 2, "no run that matches")]
#[case::no_history("thick", Some("/no/such/results.jsonl"), 5, "/no/such/results.jsonl")]
fn history_says_what_it_does_not_have(
    #[case] filter: &str,
    #[case] path: Option<&str>,
    #[case] expected: i32,
    #[case] said: &str,
) {
    let file = history_with_a_change();
    let path = path.unwrap_or(file.path().to_str().unwrap());
    let (code, _, stderr) = output(&mut snaptax(&["history", filter, "--file", path]));
    assert_eq!(code, Some(expected));
    assert!(stderr.contains(said), "{stderr}");
}
