//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use snaptax::settings::Size;

const EXAMPLES: &str = "\
Examples:
  cargo experiments                          run every experiment
  cargo experiments thick                    run those with \"thick\" in their name
  cargo experiments --list                   list them, without a guest
  cargo experiments --test hardening         run the tests of another target in the guest
  cargo experiments --iops 200 thick         on a slower disk
  cargo experiments --io-size 16k thick      on one where 32 KiB take two of its requests
  SNAPTAX_IMAGE=mysql:5.7 cargo experiments  with another server
  cargo experiments thick -- --exact         with arguments for the test binary

Results are written to target/snaptax/latest: results.json, timings.json, console.log.

Exit codes: 0 all within their bounds (or better), 1 worse, 2 usage, 3 inconclusive, 4 invalid,
5 the experiments could not be built or run, 130 interrupted. Of several verdicts the first of 1, 4, 3 counts.

Settings of the experiments themselves (SNAPTAX_ROWS, SNAPTAX_TIME, ...) are read from the environment.";

/// The test that kills.
const KILLS: &str = "kills::";

/// What a kill takes at most, with all before and after it.
const MINUTES_PER_KILL: u64 = 3;

/// Runs snaptax's experiments in a throw-away virtual machine.
#[derive(Debug, Parser)]
#[command(name = "cargo experiments", bin_name = "cargo experiments", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

/// What else than running experiments can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a test binary in a guest; cargo starts this.
    #[command(name = "__guest", hide = true)]
    Guest {
        /// The test binary.
        binary: PathBuf,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs a program that ends when its parent does; the harness starts this.
    #[command(name = "__bound", hide = true)]
    Bound {
        /// The parent's process.
        parent: u32,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
    /// Kill a short experiment again and again at random moments, and look at what is left afterwards
    #[command(
        after_help = "Each killed run is followed by the sweep with which every run begins; nothing of ours may be left then, and \
        a volume group beside it must have lost nothing.\n\n\
        Examples:\n  \
        cargo experiments kills --count 60\n  \
        SNAPTAX_SEED=7 cargo experiments kills    the same moments again"
    )]
    Kills {
        /// How often
        #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=3000))]
        count: u32,
    },
    /// Prints where the tar of the server made from Debian packages is, and what is in it; .ci/mysql-image starts this.
    #[command(name = "__server-archive", hide = true)]
    ServerArchive {
        /// Directory that keeps images.
        #[arg(long, value_name = "DIR", env = "SNAPTAX_CACHE")]
        cache: Option<PathBuf>,
    },
}

/// How the guest's processors are to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accel {
    /// KVM where it boots a guest, else emulation
    Auto,
    /// Emulation
    Tcg,
    /// KVM
    Kvm,
}

/// How experiments are run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Run only experiments whose name contains one of these
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,

    /// List the experiments that match, and run none
    #[arg(long)]
    pub(crate) list: bool,

    /// Memory of the guest, 1g or more
    #[arg(long, value_name = "SIZE", env = "SNAPTAX_MEMORY", default_value = "2560m", value_parser = memory)]
    pub(crate) memory: Size,

    /// Requests per second that the measured disk serves, reads and writes together
    #[arg(long, value_name = "N", env = "SNAPTAX_IOPS", default_value = "400", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iops: u32,

    /// Bytes of one request of --iops: a larger one counts as several, 512 or more [default: any size is one]
    #[arg(long, value_name = "SIZE", env = "SNAPTAX_IO_SIZE", value_parser = io_size)]
    pub(crate) io_size: Option<Size>,

    /// Size of the measured disk, 256m or more
    #[arg(long, value_name = "SIZE", env = "SNAPTAX_DISK", default_value = "3g", value_parser = disk)]
    pub(crate) disk: Size,

    /// Directory that keeps images [default: $XDG_CACHE_HOME/snaptax or ~/.cache/snaptax]
    #[arg(long, value_name = "DIR", env = "SNAPTAX_CACHE")]
    pub(crate) cache: Option<PathBuf>,

    /// How the guest's processors run; auto is kvm where that boots a guest, else tcg
    #[arg(long, env = "SNAPTAX_ACCEL", default_value = "auto")]
    pub(crate) accel: Accel,

    /// Time that all experiments together may take, in minutes
    #[arg(long, value_name = "MINUTES", env = "SNAPTAX_TIMEOUT", default_value = "120", value_parser = clap::value_parser!(u64).range(1..=10080))]
    pub(crate) timeout: u64,

    /// Package whose experiments are run
    #[arg(short, long, value_name = "NAME")]
    pub(crate) package: Option<String>,

    /// Test target that holds the experiments
    #[arg(long, value_name = "NAME", default_value = "experiments")]
    pub(crate) test: String,

    /// Arguments for the test binary
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) libtest: Vec<String>,
}

impl Cli {
    /// The command line and the environment, in which an empty variable counts as not given.
    pub(crate) fn from_env() -> Self {
        let command = without_empty(Self::command(), |name| std::env::var_os(name));
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

fn without_empty(command: clap::Command, value: impl Fn(&OsStr) -> Option<OsString>) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        let value = arg.get_env().and_then(&value);
        value.is_some_and(|value| value.to_string_lossy().trim().is_empty())
    };
    command.mut_args(|arg| if is_empty(&arg) { arg.env(None) } else { arg })
}

impl Run {
    /// A run of the tests of kills, which says what became of each.
    pub(crate) fn kills(count: u32) -> Self {
        let minutes = (10 + u64::from(count) * MINUTES_PER_KILL).to_string();
        let target = ["--test", "hardening", "--timeout", &minutes];
        let words = ["cargo experiments"]
            .iter()
            .chain(&target)
            .chain(&[KILLS, "--", "--nocapture"]);
        Cli::parse_from(words).run
    }
}

fn at_least(minimum: Size, text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size < minimum {
        return Err(format!("use {minimum} or more"));
    }
    Ok(size)
}

fn memory(text: &str) -> Result<Size, String> {
    at_least(Size::gib(1), text)
}

fn disk(text: &str) -> Result<Size, String> {
    at_least(Size::mib(256), text)
}

fn io_size(text: &str) -> Result<Size, String> {
    at_least(Size::bytes(512), text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[rstest]
    #[case(&["thick", "thin", "--iops", "400", "--", "--exact"], &["thick", "thin"], &["--exact"])]
    #[case(&["--", "--nocapture"], &[], &["--nocapture"])]
    #[case(&["guest"], &["guest"], &[])]
    fn what_is_no_option_is_a_filter(#[case] words: &[&str], #[case] filters: &[&str], #[case] libtest: &[&str]) {
        let cli = Cli::try_parse_from(["cargo experiments"].iter().chain(words)).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(
            (cli.run.filters, cli.run.libtest),
            (
                filters.iter().map(|f| f.to_string()).collect(),
                libtest.iter().map(|f| f.to_string()).collect()
            )
        );
    }

    #[test]
    fn kills_are_tests_with_time_for_each() {
        let cli = Cli::try_parse_from(["x", "kills", "--count", "60"]).unwrap();
        let Some(Command::Kills { count }) = cli.command else {
            panic!("no kills");
        };
        let run = Run::kills(count);
        assert_eq!(
            (run.test.as_str(), run.filters, run.timeout),
            ("hardening", vec![KILLS.to_owned()], 190)
        );
    }

    #[test]
    fn the_runner_passes_every_argument_on() {
        let cli = Cli::try_parse_from(["x", "__guest", "/t/experiments-1", "--ignored", "--", "-x"]).unwrap();
        let Some(Command::Guest { args, .. }) = cli.command else {
            panic!("no runner");
        };
        assert_eq!(args, ["--ignored", "--", "-x"]);
    }

    #[rstest]
    #[case("--memory", "64m", "use 1 GiB or more")]
    #[case("--disk", "big", "such as 512m")]
    #[case("--iops", "0", "0 is not in 1..")]
    #[case("--io-size", "100", "use 512 B or more")]
    #[case("--accel", "xen", "[possible values: auto, tcg, kvm]")]
    fn a_value_that_does_not_fit_is_refused(#[case] option: &str, #[case] value: &str, #[case] hint: &str) {
        let error = Cli::try_parse_from(["x", option, value]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(hint), "{error}");
    }
}
