use super::*;
use rstest::rstest;

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

#[test]
fn output_input_and_locale_reach_the_program() {
    let output = shell("cat; printf %s $LC_ALL >&2").input("rows").run().unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("rows", "C"));
}

#[test]
fn standard_input_is_empty_not_a_terminal() {
    assert_eq!(shell("cat").run().unwrap().stdout, "");
}

#[test]
fn a_failure_carries_the_command_and_what_it_said() {
    let error = shell("echo 'no such volume' >&2; exit 5")
        .run()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("exit status: 5") && error.contains("no such volume"),
        "{error}"
    );
    assert!(error.starts_with("`sh -c "), "{error}");
}

#[test]
fn a_missing_program_is_named() {
    let error = Command::new("no-such-program").run().unwrap_err();
    assert!(matches!(error, Error::NotFound { ref program } if program == "no-such-program"));
}

#[test]
fn a_deadline_kills_the_program_and_its_children() {
    let error = shell("sleep 60 & echo $! >&2; sleep 60")
        .deadline(Duration::from_millis(200))
        .run()
        .unwrap_err();
    let Error::Deadline { stderr, .. } = error else {
        panic!("{error}");
    };
    assert!(is_soon_gone(stderr.trim()), "the child {stderr}");
}

#[test]
fn a_stopped_program_may_tidy_up_and_its_children_go_too() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'echo tidy >tidied; exit' TERM; sleep 60 & echo $! >child; mv child started; wait";
    let error = shell(script)
        .directory(directory.path())
        .run_unless(|| directory.path().join("started").exists())
        .unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    let written = |name| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    assert_eq!(written("tidied"), "tidy\n");
    assert!(is_soon_gone(written("started").trim()));
}

/// A killed process whose parent is gone is there until somebody asks for its status.
fn is_soon_gone(process: &str) -> bool {
    let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        let stat = stat();
        stat.is_empty() || stat.contains(") Z ")
    })
}

#[rstest]
#[case::it_ends("setsid sleep 5 & echo started", None)]
#[case::it_is_killed("setsid sleep 5 & echo started >&2; sleep 60", Some("started"))]
fn what_a_program_leaves_running_is_not_waited_for(#[case] script: &str, #[case] killed: Option<&str>) {
    let started = Instant::now();
    let result = shell(script).deadline(Duration::from_secs(1)).run();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    match (result, killed) {
        (Ok(output), None) => assert_eq!(output.stdout, "started\n"),
        (Err(Error::Deadline { stderr, .. }), Some(said)) => assert_eq!(stderr.trim(), said),
        (result, _) => panic!("{result:?}"),
    }
}

#[test]
fn input_that_nobody_reads_is_not_waited_for() {
    let started = Instant::now();
    let output = shell("exec 3<&0; setsid sleep 5 <&3 & echo started")
        .input(vec![0; 1 << 20])
        .run();
    assert_eq!(output.unwrap().stdout, "started\n");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[test]
fn much_output_on_both_streams_does_not_block() {
    let output = shell("seq 100000; seq 100000 >&2").run().unwrap();
    assert_eq!(output.stdout.lines().count(), 100_000);
    assert_eq!(output.stderr.lines().count(), 100_000);
}

#[rstest]
#[case("lvs", &["--units", "b"], "lvs --units b")]
#[case("mount", &["/a b", ""], "mount '/a b' ''")]
#[case("echo", &["it's"], r"echo 'it'\''s'")]
fn a_command_is_shown_as_one_would_type_it(#[case] program: &str, #[case] args: &[&str], #[case] shown: &str) {
    assert_eq!(Command::new(program).args(args).to_string(), shown);
}
