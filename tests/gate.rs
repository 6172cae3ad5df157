//! `assert_ratio_bounds!` in a crate of its own, against everything insta can be told.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use rstest::rstest;
use snaptax::gate::Bounds;
use snaptax::report::{history, json};
use snaptax::result::{Calibration, Comparison, Figure, Record, Verdict};

const MANIFEST: &str = r#"
[package]
name = "under-test"
version = "0.1.0"
edition = "2024"

[workspace]

[dev-dependencies]
snaptax = { path = "SNAPTAX", default-features = false }
"#;

/// Depends on snaptax alone: a user's crate need not know insta.
const TEST: &str = r#"
use snaptax::gate::Measurable;
use snaptax::result::{Comparison, Record};

/// What is measured first, and what is measured next.
struct Measured(Vec<Record>);

impl Measurable for Measured {
    fn comparison(&self) -> &Comparison {
        &self.0[0].comparison
    }

    fn again(&self) -> Option<Result<Comparison, Box<dyn std::error::Error>>> {
        println!("measured again");
        Some(Ok(self.0.get(1)?.comparison.clone()))
    }
}

fn measured() -> Measured {
    let measured = std::env::var("MEASURED").unwrap();
    Measured(snaptax::report::json::read(measured.as_ref()).unwrap())
}

#[test]
fn thick_snapshot() {
    snaptax::assert_ratio_bounds!(measured());
}

/// As a name, a module and cases make it.
mod kinds {
    fn judge() {
        snaptax::assert_ratio_bounds!(super::measured());
    }

    mod of_chunks {
        #[test]
        fn case_1_small() {
            snaptax::assert_ratio_bounds!(crate::measured());
        }
    }

    #[test]
    fn in_a_function_of_its_own() {
        judge();
    }
}
"#;

const BOUNDS: &str = "---\nsource: tests/oltp.rs\n---\nthroughput: {low: 0.4, high: 0.5}\n";
const SNAPSHOTS: &str = "tests/snapshots";
const SNAPSHOT: &str = "tests/snapshots/oltp__thick_snapshot@ci-mysql9.snap";
const PENDING: &str = "tests/snapshots/oltp__thick_snapshot@ci-mysql9.snap.new";

const WITHIN: (f64, f64, f64) = (0.45, 0.44, 0.46);
const WORSE: (f64, f64, f64) = (0.30, 0.29, 0.31);
const REACHING_IN: (f64, f64, f64) = (0.39, 0.38, 0.41);

/// The crate's directory and its test binary, built once.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let snaptax = Path::new(env!("CARGO_MANIFEST_DIR"));
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let directory = temporary.join("gate");
        fs::create_dir_all(directory.join("tests")).unwrap();
        fs::create_dir_all(directory.join("src")).unwrap();
        let manifest = MANIFEST.replace("SNAPTAX", snaptax.to_str().unwrap());
        write_if_other(&directory.join("Cargo.toml"), &manifest);
        write_if_other(&directory.join("src/lib.rs"), "");
        write_if_other(&directory.join("tests/oltp.rs"), TEST);
        fs::copy(snaptax.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
        let output = Command::new(env!("CARGO"))
            .args([
                "test",
                "--offline",
                "--no-run",
                "--test",
                "oltp",
                "--message-format",
                "json",
            ])
            .current_dir(&directory)
            .env("CARGO_TARGET_DIR", temporary.join("gate-target"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let binary = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
            .unwrap();
        (directory, binary)
    })
}

/// Keeps cargo from building again what has not changed.
fn write_if_other(path: &Path, text: &str) {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).unwrap();
    }
}

/// A workspace for one case: snapshot files, a measurement, results.
struct Case {
    root: tempfile::TempDir,
}

impl Case {
    /// With this measurement and, if given, this snapshot file.
    fn new(comparison: &Comparison, snapshot: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let case = Self { root };
        case.measure(comparison);
        if let Some(text) = snapshot {
            fs::create_dir_all(case.path(SNAPSHOTS)).unwrap();
            fs::write(case.path(SNAPSHOT), text).unwrap();
        }
        case
    }

    fn measure(&self, comparison: &Comparison) {
        self.measure_in_turn(&[comparison]);
    }

    fn measure_in_turn(&self, comparisons: &[&Comparison]) {
        let record = |comparison: &&Comparison| Record {
            verdict: Verdict::Inconclusive,
            reason: String::new(),
            bounds: None,
            comparison: (*comparison).clone(),
        };
        let records: Vec<Record> = comparisons.iter().map(record).collect();
        fs::write(self.path("measured.json"), serde_json::to_string(&records).unwrap()).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn run(&self, variables: &[(&str, &str)]) -> Run {
        self.run_test("thick_snapshot", variables)
    }

    fn run_test(&self, test: &str, variables: &[(&str, &str)]) -> Run {
        let mut command = Command::new(&built().1);
        command
            .args(["--nocapture", "--exact", test])
            .env_clear()
            .env("INSTA_WORKSPACE_ROOT", self.root.path())
            .env("SNAPTAX_OUTPUT", "results")
            .env("MEASURED", self.path("measured.json"))
            .envs(variables.iter().copied());
        Run::of(&command.output().unwrap())
    }

    fn recorded(&self) -> Verdict {
        let records = json::read(&self.path("results/results.json")).unwrap();
        assert_eq!(records.len(), 1);
        let (entries, _) = history::read(&self.path("results/results.jsonl")).unwrap();
        assert_eq!(entries.last().unwrap().record.verdict, records[0].verdict);
        records[0].verdict
    }
}

struct Run {
    passed: bool,
    said: String,
}

impl Run {
    fn of(output: &Output) -> Self {
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Self {
            passed: output.status.success(),
            said: said.concat(),
        }
    }
}

fn measured((ratio, low, high): (f64, f64, f64)) -> Comparison {
    let figure = Figure {
        without: 80.0,
        with: 80.0 * ratio,
        ratio,
        low,
        high,
    };
    Comparison {
        name: "thick_snapshot".into(),
        profile: "ci-mysql9".into(),
        throughput: Some(figure),
        target_half_width: 0.05,
        rounds: 8,
        ..Comparison::default()
    }
}

const DISK: Calibration = Calibration {
    iops: 396.2,
    write_mib_per_second: 179.6,
    flush_milliseconds: 0.4012,
};

const CALIBRATION: &str = "calibration: {iops: 396, write_mib_per_second: 180, flush_milliseconds: 0.401}\n";

/// On a disk that does this many random writes per second.
fn on_a_disk_of(iops: f64, throughput: (f64, f64, f64)) -> Comparison {
    Comparison {
        calibration: Some(Calibration { iops, ..DISK }),
        ..measured(throughput)
    }
}

fn invalid() -> Comparison {
    Comparison {
        invalid: Some("the snapshot overflowed".into()),
        ..measured(WITHIN)
    }
}

fn body(snapshot: &str) -> &str {
    snapshot.splitn(3, "---\n").nth(2).unwrap()
}

#[test]
fn bounds_that_hold_pass_and_leave_nothing_behind() {
    let case = Case::new(&measured(WITHIN), Some(BOUNDS));
    fs::write(case.path(PENDING), BOUNDS).unwrap();
    let run = case.run(&[]);
    assert!(run.passed, "{}", run.said);
    assert!(run.said.contains("thick_snapshot on ci-mysql9: Within"), "{}", run.said);
    assert_eq!(case.read(SNAPSHOT).as_deref(), Some(BOUNDS));
    assert_eq!(case.read(PENDING), None);
    assert_eq!(case.recorded(), Verdict::Within);
}

#[rstest]
#[case::plainly(&[])]
#[case::with_force_pass(&[("INSTA_FORCE_PASS", "1")])]
#[case::under_cargo_insta(&[("INSTA_FORCE_PASS", "1"), ("INSTA_UPDATE", "new"), ("INSTA_CARGO_INSTA", "1")])]
#[case::in_ci_when_asked_to(&[("CI", "true"), ("INSTA_UPDATE", "new")])]
fn worse_fails_and_proposes_bounds_that_lack_a_reason(#[case] variables: &[(&str, &str)]) {
    let case = Case::new(&measured(WORSE), Some(BOUNDS));
    let run = case.run(variables);
    assert!(!run.passed, "{}", run.said);
    let said = "thick_snapshot on ci-mysql9: Worse: throughput ratio 0.300 (0.290 to 0.310) is wholly below its bounds";
    assert!(run.said.contains(said), "{}", run.said);
    assert_eq!(case.read(SNAPSHOT).as_deref(), Some(BOUNDS));
    assert_eq!(case.recorded(), Verdict::Worse);

    let pending = case.read(PENDING).unwrap();
    assert_eq!(body(&pending), "throughput: {low: 0.272, high: 0.33}\nreason: \"\"\n");
    assert!(
        pending.contains("80.0 -> 24.0 transactions/s, ratio 0.300"),
        "{pending}"
    );

    fs::rename(case.path(PENDING), case.path(SNAPSHOT)).unwrap();
    let run = case.run(&[]);
    assert!(!run.passed && run.said.contains("reason is empty"), "{}", run.said);
    fs::write(case.path(SNAPSHOT), pending.replace("\"\"", "kernel 6.18 copies more")).unwrap();
    assert!(case.run(&[]).passed);
}

#[rstest]
#[case("always")]
#[case("force")]
#[case("unseen")]
fn worse_fails_even_where_insta_writes_in_place(#[case] update: &str) {
    let case = Case::new(&measured(WORSE), Some(BOUNDS));
    let run = case.run(&[("INSTA_UPDATE", update), ("INSTA_FORCE_PASS", "1")]);
    assert!(
        !run.passed && run.said.contains("Worse: throughput ratio 0.300"),
        "{}",
        run.said
    );
    assert_eq!(case.recorded(), Verdict::Worse);
}

#[rstest]
fn what_says_nothing_never_reaches_insta(
    #[values(invalid(), measured(REACHING_IN), measured((0.45, 0.40, 0.51)))] comparison: Comparison,
    #[values(Some(BOUNDS), None)] snapshot: Option<&str>,
    #[values(
        &[], &[("INSTA_UPDATE", "always")], &[("INSTA_FORCE_PASS", "1")], &[("SNAPTAX_BOUNDS", "propose")],
        &[("INSTA_UPDATE", "force"), ("SNAPTAX_BOUNDS", "propose"), ("INSTA_FORCE_PASS", "1")]
    )]
    variables: &[(&str, &str)],
) {
    // Without bounds to reach into it is precise enough to propose some.
    if snapshot.is_none() && comparison.throughput == measured(REACHING_IN).throughput {
        return;
    }
    let case = Case::new(&comparison, snapshot);
    let run = case.run(variables);
    assert!(!run.passed, "{}", run.said);
    assert_eq!(case.read(SNAPSHOT).as_deref(), snapshot);
    assert_eq!(case.read(PENDING), None);
    let verdict = match comparison.invalid {
        Some(_) => Verdict::Invalid,
        None => Verdict::Inconclusive,
    };
    assert_eq!(case.recorded(), verdict);
}

const IMPRECISE: (f64, f64, f64) = (0.45, 0.40, 0.51);

#[rstest]
#[case::precise_at_last(IMPRECISE, WITHIN, Verdict::Within)]
#[case::worse_after_all(REACHING_IN, WORSE, Verdict::Worse)]
#[case::never_precise(IMPRECISE, IMPRECISE, Verdict::Inconclusive)]
fn what_is_inconclusive_is_measured_once_more_and_that_counts(
    #[case] first: (f64, f64, f64),
    #[case] second: (f64, f64, f64),
    #[case] verdict: Verdict,
) {
    let case = Case::new(&measured(first), Some(BOUNDS));
    case.measure_in_turn(&[&measured(first), &measured(second), &measured(WITHIN)]);
    let run = case.run(&[]);
    assert_eq!(run.passed, verdict.passes(), "{}", run.said);
    assert_eq!(run.said.matches("measured again").count(), 1);
    assert_eq!(case.recorded(), verdict);
    let reason = &json::read(&case.path("results/results.json")).unwrap()[0].reason;
    assert!(reason.contains("this is the second measurement"), "{reason}");
}

#[rstest]
#[case::within(measured(WITHIN))]
#[case::worse(measured(WORSE))]
#[case::invalid(invalid())]
fn what_is_conclusive_or_invalid_is_not_measured_again(#[case] comparison: Comparison) {
    let case = Case::new(&comparison, Some(BOUNDS));
    case.measure_in_turn(&[&comparison, &measured(WITHIN)]);
    let run = case.run(&[]);
    assert!(!run.said.contains("measured again"), "{}", run.said);
}

#[test]
fn a_profile_without_bounds_fails_in_ci_and_says_how_to_create_them() {
    let case = Case::new(&measured(WITHIN), None);
    let run = case.run(&[("CI", "true")]);
    assert!(!run.passed, "{}", run.said);
    for said in [
        "Inconclusive: there are no bounds for the profile ci-mysql9",
        "INSTA_UPDATE=new",
        "cargo insta review",
        SNAPSHOT,
        "throughput: {low: 0.409, high: 0.495}",
    ] {
        assert!(run.said.contains(said), "{said}:\n{}", run.said);
    }
    assert!(!case.path(SNAPSHOTS).exists());
    assert_eq!(case.recorded(), Verdict::Inconclusive);
}

#[test]
fn bounds_of_one_profile_are_not_those_of_another() {
    let case = Case::new(&measured(WITHIN), Some(BOUNDS));
    let elsewhere = Comparison {
        profile: "laptop-mysql9".into(),
        ..measured(WITHIN)
    };
    case.measure(&elsewhere);
    let run = case.run(&[("INSTA_UPDATE", "always")]);
    assert!(
        !run.passed && run.said.contains("no bounds for the profile laptop-mysql9"),
        "{}",
        run.said
    );
    assert_eq!(case.read(SNAPSHOT).as_deref(), Some(BOUNDS));
    let own = SNAPSHOT.replace("ci-mysql9", "laptop-mysql9");
    assert!(case.read(&own).is_some());
    assert!(case.run(&[]).passed);
}

#[rstest]
#[case::a_case("kinds::of_chunks::case_1_small", "oltp__kinds__of_chunks__case_1_small")]
#[case::a_function("kinds::in_a_function_of_its_own", "oltp__kinds__judge")]
fn bounds_lie_where_the_macro_stands(#[case] test: &str, #[case] file: &str) {
    let mut comparison = measured(WITHIN);
    comparison.name = String::new();
    let case = Case::new(&comparison, None);
    let run = case.run_test(test, &[("INSTA_UPDATE", "always")]);
    assert!(!run.passed, "{}", run.said);
    let path = format!("{SNAPSHOTS}/{file}@ci-mysql9.snap");
    assert!(case.read(&path).is_some(), "{path}: {}", run.said);
    assert!(case.run_test(test, &[]).passed);
}

#[test]
fn a_profile_without_bounds_gets_some_to_review_and_passes_once_accepted() {
    let case = Case::new(&measured(WITHIN), None);
    let run = case.run(&[("INSTA_FORCE_PASS", "1")]);
    assert!(
        !run.passed && run.said.contains("look at them with `cargo insta review`"),
        "{}",
        run.said
    );
    let pending = case.read(PENDING).unwrap();
    assert_eq!(body(&pending), "throughput: {low: 0.409, high: 0.495}\n");
    assert!(Bounds::parse(body(&pending)).is_ok());

    fs::rename(case.path(PENDING), case.path(SNAPSHOT)).unwrap();
    assert!(case.run(&[]).passed);
    case.measure(&measured(WORSE));
    assert!(!case.run(&[]).passed);
}

#[test]
fn a_new_profile_fails_though_insta_writes_its_bounds_at_once() {
    let case = Case::new(&measured(WITHIN), None);
    let run = case.run(&[("INSTA_UPDATE", "always")]);
    assert!(
        !run.passed && run.said.contains("new bounds were written to"),
        "{}",
        run.said
    );
    assert_eq!(
        body(&case.read(SNAPSHOT).unwrap()),
        "throughput: {low: 0.409, high: 0.495}\n"
    );
    assert!(case.run(&[]).passed);
}

#[test]
fn warn_reports_without_failing() {
    let case = Case::new(&measured(WORSE), Some(BOUNDS));
    let run = case.run(&[("SNAPTAX_GATE", "warn")]);
    assert!(run.passed && run.said.contains("ci-mysql9: Worse"), "{}", run.said);
    assert_eq!(case.recorded(), Verdict::Worse);
    case.measure(&invalid());
    assert!(case.run(&[("SNAPTAX_GATE", "warn")]).passed);
}

#[test]
fn bounds_are_proposed_on_request_while_the_verdict_decides() {
    let case = Case::new(&measured(WITHIN), Some(BOUNDS));
    let run = case.run(&[("SNAPTAX_BOUNDS", "propose")]);
    assert!(run.passed, "{}", run.said);
    assert_eq!(
        body(&case.read(PENDING).unwrap()),
        "throughput: {low: 0.409, high: 0.495}\n"
    );
    assert_eq!(case.read(SNAPSHOT).as_deref(), Some(BOUNDS));
}

#[test]
fn a_p95_that_still_holds_keeps_its_bounds_when_throughput_is_worse() {
    let snapshot = format!("{BOUNDS}p95_latency: {{low: 2.2, high: 3.5}}\n");
    let mut comparison = measured(WORSE);
    comparison.p95_latency = comparison.throughput.map(|figure| Figure {
        ratio: 2.77,
        low: 2.5,
        high: 3.0,
        ..figure
    });
    let case = Case::new(&comparison, Some(&snapshot));
    assert!(!case.run(&[]).passed);
    let proposed = "throughput: {low: 0.272, high: 0.33}\np95_latency: {low: 2.2, high: 3.5}\nreason: \"\"\n";
    assert_eq!(body(&case.read(PENDING).unwrap()), proposed);
}

#[test]
fn bounds_that_hold_keep_their_values_when_insta_rewrites_every_snapshot() {
    let case = Case::new(&measured(WITHIN), Some(BOUNDS));
    let run = case.run(&[("INSTA_UPDATE", "force"), ("INSTA_REQUIRE_FULL_MATCH", "1")]);
    assert!(run.passed, "{}", run.said);
    assert_eq!(body(&case.read(SNAPSHOT).unwrap()), body(BOUNDS));
}

#[rstest]
#[case::exchanged("throughput: {low: 0.5, high: 0.4}", "low 0.5 is above high 0.4")]
#[case::measured("throughput: 0.437", "throughput")]
#[case::no_disk(
    "throughput: {low: 0.4, high: 0.5}\ncalibration: {iops: 0, write_mib_per_second: 180, flush_milliseconds: 0.4}",
    "calibration: iops is 0, not a number above 0"
)]
#[case::half_a_disk(
    "throughput: {low: 0.4, high: 0.5}\ncalibration: {iops: 396}",
    "write_mib_per_second"
)]
fn bounds_that_cannot_be_used_fail_and_name_their_file(#[case] bounds: &str, #[case] problem: &str) {
    let snapshot = format!("---\nsource: tests/oltp.rs\n---\n{bounds}\n");
    let case = Case::new(&measured(WITHIN), Some(&snapshot));
    let run = case.run(&[("INSTA_UPDATE", "always")]);
    assert!(!run.passed, "{}", run.said);
    assert!(
        run.said.contains(SNAPSHOT) && run.said.contains(problem),
        "{}",
        run.said
    );
    assert_eq!(case.read(SNAPSHOT), Some(snapshot));
}

#[test]
fn proposed_bounds_say_what_the_disk_did_and_hold_on_it() {
    let case = Case::new(&on_a_disk_of(396.2, WITHIN), None);
    assert!(!case.run(&[("INSTA_UPDATE", "always")]).passed);
    let proposed = format!("throughput: {{low: 0.409, high: 0.495}}\n{CALIBRATION}");
    assert_eq!(body(&case.read(SNAPSHOT).unwrap()), proposed);
    let run = case.run(&[]);
    assert!(
        run.passed && run.said.contains("396 writes/s of 16 KiB"),
        "{}",
        run.said
    );

    case.measure(&measured(WITHIN));
    let run = case.run(&[]);
    assert!(
        run.passed && run.said.contains("the disk was not calibrated"),
        "{}",
        run.said
    );
}

#[test]
fn old_bounds_get_a_calibration_on_request_only() {
    let case = Case::new(&on_a_disk_of(396.2, WITHIN), Some(BOUNDS));
    assert!(case.run(&[]).passed);
    assert_eq!(case.read(PENDING), None);
    assert!(case.run(&[("SNAPTAX_BOUNDS", "propose")]).passed);
    let proposed = format!("throughput: {{low: 0.409, high: 0.495}}\n{CALIBRATION}");
    assert_eq!(body(&case.read(PENDING).unwrap()), proposed);
}

#[rstest]
fn bounds_made_on_another_disk_are_refused(
    #[values(210.0, 800.0)] iops: f64,
    #[values(WITHIN, WORSE)] throughput: (f64, f64, f64),
    #[values(&[], &[("INSTA_UPDATE", "always")], &[("INSTA_FORCE_PASS", "1")])] variables: &[(&str, &str)],
) {
    let snapshot = format!("{BOUNDS}{CALIBRATION}");
    let case = Case::new(&on_a_disk_of(iops, throughput), Some(&snapshot));
    let run = case.run(variables);
    assert!(!run.passed, "{}", run.said);
    let said = format!(
        "ci-mysql9: Inconclusive: the bounds were made under another calibration: random writes per second were 396 \
         and are {iops}, by a factor of {:.2}",
        (iops / 396.0).max(396.0 / iops)
    );
    assert!(run.said.contains(&said), "{}", run.said);
    assert!(
        run.said.contains("name another profile with SNAPTAX_PROFILE"),
        "{}",
        run.said
    );
    assert_eq!(case.read(SNAPSHOT).as_deref(), Some(&*snapshot));
    assert_eq!(case.read(PENDING), None);
    assert_eq!(case.recorded(), Verdict::Inconclusive);
}

#[test]
fn bounds_for_another_disk_are_proposed_on_request_and_hold_there_once_accepted() {
    let snapshot = format!("{BOUNDS}p95_latency: {{low: 2.2, high: 3.5}}\n{CALIBRATION}");
    let case = Case::new(&on_a_disk_of(210.0, WITHIN), Some(&snapshot));
    let run = case.run(&[("SNAPTAX_BOUNDS", "propose")]);
    assert!(
        !run.passed && run.said.contains("look at them with `cargo insta review`"),
        "{}",
        run.said
    );
    assert_eq!(case.recorded(), Verdict::Inconclusive);
    let pending = case.read(PENDING).unwrap();
    let calibration = CALIBRATION.replace("396", "210");
    let proposed = format!("throughput: {{low: 0.409, high: 0.495}}\n{calibration}reason: \"\"\n");
    assert_eq!(body(&pending), proposed);

    let accepted = pending.replace("reason: \"\"", "reason: another disk, on which p95 is not estimable");
    fs::write(case.path(SNAPSHOT), accepted).unwrap();
    let run = case.run(&[]);
    assert!(run.passed, "{}", run.said);
}

#[test]
fn no_bounds_for_another_disk_are_proposed_from_an_imprecise_measurement() {
    let snapshot = format!("{BOUNDS}{CALIBRATION}");
    let case = Case::new(&on_a_disk_of(210.0, (0.45, 0.40, 0.51)), Some(&snapshot));
    let run = case.run(&[("SNAPTAX_BOUNDS", "propose")]);
    assert!(
        !run.passed && run.said.contains("None are proposed: the throughput's half-width"),
        "{}",
        run.said
    );
    assert_eq!(case.read(PENDING), None);
}

#[test]
fn another_disk_may_be_warned_of_only() {
    let snapshot = format!("{BOUNDS}{CALIBRATION}");
    let case = Case::new(&on_a_disk_of(210.0, WITHIN), Some(&snapshot));
    let run = case.run(&[("SNAPTAX_GATE", "warn")]);
    assert!(
        run.passed && run.said.contains("made under another calibration"),
        "{}",
        run.said
    );
}

#[test]
fn a_misspelt_setting_fails_before_anything_is_judged() {
    let case = Case::new(&measured(WITHIN), Some(BOUNDS));
    let run = case.run(&[("SNAPTAX_GATES", "warn")]);
    assert!(
        !run.passed && run.said.contains("did you mean SNAPTAX_GATE?"),
        "{}",
        run.said
    );
}

#[test]
fn without_being_told_files_are_found_beside_the_test_and_results_in_the_target_directory() {
    let (directory, binary) = built();
    let case = Case::new(&measured(WITHIN), None);
    fs::create_dir_all(directory.join(SNAPSHOTS)).unwrap();
    fs::write(directory.join(SNAPSHOT), BOUNDS).unwrap();
    let mut command = Command::new(binary);
    command
        .args(["--exact", "thick_snapshot"])
        .current_dir("/")
        .env("MEASURED", case.path("measured.json"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("INSTA_") || text.starts_with("SNAPTAX_") || text == "CI" {
            command.env_remove(&name);
        }
    }
    let run = Run::of(&command.output().unwrap());
    assert!(run.passed, "{}", run.said);
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gate-target/snaptax/native/results.json");
    assert_eq!(json::read(&results).unwrap()[0].verdict, Verdict::Within);
    assert!(results.with_file_name("../results.jsonl").exists());
}
