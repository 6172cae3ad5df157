//! Calls of cargo.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use snaptax::command::{self, Command};
use snaptax::text::printable;

use crate::bound::bound;
use crate::cli::Run;
use crate::interrupt::{self, Interrupt};
use crate::plan::PLAN;

/// A build of everything on a slow machine.
const BUILD_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// The subcommand of this program that is the runner.
const RUNNER: &str = "__guest";

/// Why cargo did not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It failed.
    #[error(transparent)]
    Command(#[from] command::Error),
    /// A build failed to run, or a signal came.
    #[error(transparent)]
    Supervise(interrupt::Error),
    /// The experiments do not compile.
    #[error("the experiments do not build:\n{0}")]
    Build(String),
    /// There is no such package.
    #[error("there is no package {name} here; there are: {}", known.join(", "))]
    NoPackage {
        /// Its name.
        name: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// There is no such test target.
    #[error("there is no test target {name}; there are: {}\n  hint: --test NAME chooses one", known.join(", "))]
    NoTarget {
        /// Its name.
        name: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// The test binary does not list its tests.
    #[error(
        "the test binary does not list its tests: {0}\n  hint: what follows -- is for it; see `cargo test -- --help`"
    )]
    List(command::Error),
    /// This program cannot be found by PATH.
    #[error("{} has a colon in it, which no path in PATH can have\n  hint: set CARGO_TARGET_DIR to another directory", .0.display())]
    Colon(PathBuf),
    /// It gave something unexpected.
    #[error("cargo's answer is not understood: {0}")]
    Answer(String),
    /// A process could not be started or waited for.
    #[error("cannot run cargo: {0}")]
    Start(#[from] io::Error),
}

/// The workspace in the current directory.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Its root.
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Where builds go.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Workspace {
    /// Checks that there is what is to be built, and that it can be run.
    ///
    /// # Errors
    /// When there is no such package or test target (it names those that are there), or no runner could be found.
    pub(crate) fn check(&self, run: &Run) -> Result<(), Error> {
        search_path(&std::env::current_exe()?)?;
        let wanted = |package: &&Package| run.package.as_ref().is_none_or(|name| package.name == *name);
        let packages: Vec<&Package> = self.packages.iter().filter(wanted).collect();
        if let (Some(name), true) = (&run.package, packages.is_empty()) {
            return Err(Error::NoPackage {
                name: printable(name),
                known: self.packages.iter().map(|package| package.name.clone()).collect(),
            });
        }
        let targets = packages.iter().flat_map(|package| &package.targets);
        let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
        let known: Vec<String> = tests.map(|target| target.name.clone()).collect();
        match known.contains(&run.test) {
            true => Ok(()),
            false => Err(Error::NoTarget {
                name: printable(&run.test),
                known,
            }),
        }
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Finds the workspace.
///
/// # Errors
/// When there is none.
pub(crate) fn workspace() -> Result<Workspace, Error> {
    let output = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .run()?;
    serde_json::from_str(&output.stdout).map_err(|error| Error::Answer(error.to_string()))
}

/// Builds the experiments and returns the test binary.
///
/// # Errors
/// When they do not build.
pub(crate) fn build(run: &Run, interrupt: &Interrupt) -> Result<PathBuf, Error> {
    let command = bound(&cargo().to_string_lossy())
        .args(test_args(run))
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .deadline(BUILD_DEADLINE);
    let output = interrupt.run(&command).map_err(|error| match error {
        interrupt::Error::Command(command::Error::Failed { stderr, .. }) => Error::Build(stderr.trim_end().to_owned()),
        other => Error::Supervise(other),
    })?;
    executable(&output.stdout, &run.test)
        .ok_or_else(|| Error::Answer(format!("it names no test binary for the target {}", run.test)))
}

fn test_args(run: &Run) -> Vec<String> {
    let mut args: Vec<String> = ["test", "--profile", "experiments", "--test", &run.test]
        .map(str::to_owned)
        .into();
    if let Some(package) = &run.package {
        args.extend(["--package".to_owned(), package.clone()]);
    }
    args
}

fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == test && message["profile"]["test"] == true)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Arguments that select tests, and how they run. Experiments are ignored tests, and run one at a time: two would
/// disturb each other's measurements.
pub(crate) fn libtest_args(run: &Run) -> Vec<String> {
    let given = |names: &[&str]| {
        run.libtest.iter().any(|arg| {
            names
                .iter()
                .any(|name| arg == name || arg.starts_with(&format!("{name}=")))
        })
    };
    let mut args = Vec::new();
    if !given(&["--ignored", "--include-ignored"]) {
        args.push("--ignored".to_owned());
    }
    if !given(&["--test-threads"]) {
        args.push("--test-threads=1".to_owned());
    }
    args.extend(run.libtest.iter().chain(&run.filters).cloned());
    args
}

/// Names of the tests that these arguments select.
///
/// # Errors
/// When the test binary does not list them, or knows no such arguments.
pub(crate) fn list(binary: &Path, args: &[String]) -> Result<Vec<String>, Error> {
    // First, so that no argument can take it for its value: the tests would run, here.
    let list = Command::new(binary)
        .args(["--list", "--format=terse"])
        .args(without_format(args));
    let output = list.run().map_err(Error::List)?;
    Ok(output
        .stdout
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// The arguments but for the format of the tests' own output.
fn without_format(args: &[String]) -> Vec<&String> {
    let mut format_follows = false;
    args.iter()
        .filter(|arg| {
            let is_format = std::mem::replace(&mut format_follows, *arg == "--format");
            !(is_format || *arg == "--format" || arg.starts_with("--format="))
        })
        .collect()
}

/// PATH with the directory of this program: cargo splits a runner at blanks, so its path cannot be written out.
fn search_path(program: &Path) -> Result<OsString, Error> {
    let directory = program.parent().unwrap_or(Path::new("/"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(directories).map_err(|_| Error::Colon(directory.to_owned()))
}

/// Makes a call of cargo start test binaries with this program, a name in PATH with arguments, whatever they are
/// built for. Otherwise experiments would run on this machine, perhaps as root.
///
/// For the targets that the guest can run, a variable wins over the user's configuration; for all others, and for
/// those too if it gets lost, what the command line says holds. Both are split at blanks.
fn with_runner(mut command: process::Command, runner: &str) -> process::Command {
    for target in ["GNU", "MUSL"] {
        command.env(format!("CARGO_TARGET_X86_64_UNKNOWN_LINUX_{target}_RUNNER"), runner);
    }
    command
        .arg("--config")
        .arg(format!("target.'cfg(all())'.runner='{runner}'"));
    command
}

/// Runs `cargo test` with this program as the runner and these variables set; what it prints goes to this process's output.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn test(
    run: &Run,
    args: &[String],
    plan: &Path,
    variables: &[(&str, String)],
    interrupt: &Interrupt,
) -> Result<ExitStatus, Error> {
    let program = std::env::current_exe()?;
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = process::Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "--"])
        .arg(cargo())
        .args(test_args(run));
    let runner = format!("setpriv --pdeathsig TERM -- {name} {RUNNER}");
    let mut child = with_runner(command, &runner)
        .arg("--")
        .args(args)
        .env("PATH", search_path(&program)?)
        .env(PLAN, plan)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .spawn()?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt.is_set() && !told {
            told = true;
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        thread::sleep(Duration::from_millis(30));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;
    use crate::cli::Cli;

    #[rstest]
    #[case(&["thick"], &["--ignored", "--test-threads=1", "thick"])]
    #[case(&["--", "--exact", "--include-ignored"], &["--test-threads=1", "--exact", "--include-ignored"])]
    #[case(&["--", "--test-threads=2"], &["--ignored", "--test-threads=2"])]
    fn ignored_tests_run_one_at_a_time_unless_told_otherwise(#[case] words: &[&str], #[case] expected: &[&str]) {
        let cli = Cli::try_parse_from(["x"].iter().chain(words)).unwrap();
        assert_eq!(libtest_args(&cli.run), expected);
    }

    /// A user's runner for the same target gives way; where the variables say nothing about the target, as with one
    /// that is not named in them, the command line holds.
    #[rstest]
    #[case("[target.x86_64-unknown-linux-gnu]\nrunner = ['false']", false)]
    #[case("", true)]
    fn cargo_starts_tests_with_the_runner(#[case] configuration: &str, #[case] other_target: bool) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            (".cargo/config.toml", configuration),
            (
                "Cargo.toml",
                "[package]\nname = 'p'\nedition = '2024'\n[workspace]\n[lib]\npath = 'lib.rs'\n",
            ),
            ("lib.rs", "#[test] fn escaped() { panic!(\"no runner\") }"),
        ] {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut command = process::Command::new(cargo());
        command.args(["test", "--offline", "--lib", "--target-dir", "t"]);
        let mut command = with_runner(command, "echo ran by");
        if other_target {
            command.env_remove("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
        }
        let output = command.current_dir(directory.path()).output().unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(stdout.starts_with("ran by /"), "{stdout}{stderr}");
    }

    #[rstest]
    #[case(&["--test", "gate"], None)]
    #[case(&["--test", "nope"], Some("there is no test target nope; there are: "))]
    #[case(&["--package", "nope"], Some("there is no package nope here; there are: "))]
    #[case(&["--package", "snaptax-harness", "--test", "gate"], Some("there is no test target gate; there are: command_line"))]
    fn what_is_not_there_to_be_built_is_told_before_a_build(#[case] words: &[&str], #[case] said: Option<&str>) {
        let cli = Cli::try_parse_from(["x"].iter().chain(words)).unwrap();
        let checked = workspace().unwrap().check(&cli.run);
        match said {
            Some(said) => assert!(checked.unwrap_err().to_string().starts_with(said)),
            None => checked.unwrap(),
        }
    }

    #[rstest]
    #[case(&["--format=pretty", "thick"], &["thick"])]
    #[case(&["--format", "pretty", "thick"], &["thick"])]
    #[case(&["--exact", "thick"], &["--exact", "thick"])]
    fn tests_are_listed_in_one_format_whatever_they_print_in(#[case] args: &[&str], #[case] left: &[&str]) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(without_format(&args), left);
    }

    #[test]
    fn a_place_that_path_cannot_name_is_told() {
        let error = search_path(Path::new("/a:b/debug/harness")).unwrap_err().to_string();
        assert!(
            error.starts_with("/a:b/debug has a colon") && error.contains("CARGO_TARGET_DIR"),
            "{error}"
        );
        assert!(search_path(Path::new("/a b/debug/harness")).is_ok());
    }

    #[test]
    fn an_argument_without_its_value_does_not_run_the_tests_that_are_to_be_listed() {
        let own = std::env::current_exe().unwrap();
        let listed = list(
            &own,
            &["--exact".into(), "cargo::tests::no_such".into(), "--skip".into()],
        );
        assert!(listed.is_err() || listed.is_ok_and(|names| names.is_empty()));
    }

    #[test]
    fn the_test_binary_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"snaptax"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"name":"experiments"},"profile":{"test":true},"executable":"/t/experiments-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "experiments"), Some("/t/experiments-1".into()));
        assert_eq!(executable(messages, "docker"), None);
    }
}
