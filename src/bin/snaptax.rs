//! The command-line tool.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use snaptax::compare;
use snaptax::gate::{self, Proposal};
use snaptax::host::{self, Finding};
use snaptax::report::history::{self, Series};
use snaptax::report::json;
use snaptax::settings::{HARNESS, KNOBS, Settings};
use snaptax::storage::{Life, RunId};
use snaptax::sweep;

/// A setting or an argument cannot be used.
const USAGE: u8 = 2;
/// Experiments cannot run here.
const ENVIRONMENT: u8 = 5;

/// Measures what an LVM snapshot costs MySQL.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        snaptax doctor      can experiments run on this machine?\n  \
        snaptax sweep       remove what killed runs left behind\n  \
        snaptax settings    what SNAPTAX_* variables are there?\n\n\
        Experiments themselves are tests. In a guest, without root:\n  \
        cargo experiments\n\
        On this machine, as root:\n  \
        sudo -E env PATH=\"$PATH\" cargo test --profile experiments --test experiments -- --ignored"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look whether experiments can run on this machine, and say what is missing
    #[command(
        after_help = "Exit status: 0 when they can, 2 when a setting is wrong, 5 when they cannot.\n\n\
        Examples:\n  \
        sudo -E env PATH=\"$PATH\" snaptax doctor\n  \
        sudo -E env PATH=\"$PATH\" SNAPTAX_WORK_DIR=/mnt/disk snaptax doctor"
    )]
    Doctor,
    /// Remove what killed runs left behind: containers, mounts, devices, files
    #[command(
        after_help = "Every experiment begins with a sweep. Only runs that have ended are swept, and only what they made.\n\n\
        Exit status: 0 when nothing of them is left, or with --dry-run, 2 when a setting is wrong, 5 when something could not be removed.\n\n\
        Examples:\n  \
        snaptax sweep --dry-run    what is there?\n  \
        snaptax sweep              remove it\n  \
        snaptax sweep --kept       and what was kept with SNAPTAX_KEEP=1\n  \
        snaptax sweep --run 812-90417-4026531836    that run only, also one that is out of sight"
    )]
    Sweep {
        /// Show what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
        /// Sweep kept runs too
        #[arg(long)]
        kept: bool,
        /// Sweep this run only, and also if neither its process nor its directory is in sight, as after a killed container
        #[arg(long, value_name = "ID")]
        run: Option<RunId>,
    },
    /// Show each experiment's runs, and where its throughput ratio came to a new level
    #[command(
        after_help = "Every judged measurement is added to the history. A drift that stays inside the bounds fails no run, but is \
        seen here.\n\n\
        Exit status: 0, 2 when a setting is wrong or no run matches, 5 when there is no history.\n\n\
        Examples:\n  \
        snaptax history                   the last 20 runs of each experiment\n  \
        snaptax history thick --last 100  more of those with \"thick\" in their name\n  \
        snaptax history --file nightly/results.jsonl"
    )]
    History {
        /// Only experiments whose name contains one of these
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
        /// How many runs to show; changes are looked for among the newest 300
        #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
        last: u32,
        /// The history [default: results.jsonl in SNAPTAX_OUTPUT, or target/snaptax]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Propose bounds from the last runs of each experiment
    #[command(
        after_help = "Bounds from one run, which a test proposes by itself, are wide. Those from five or more say what the next run \
        will be inside of, unless something changed. The output is the body of a snapshot file.\n\n\
        Exit status: 0, 2 when a setting is wrong or no experiment that matches has runs enough, 5 when there is no history.\n\n\
        Examples:\n  \
        snaptax bounds                 from the last 5 runs of each experiment\n  \
        snaptax bounds thick --last 8  from the last 8 of those with \"thick\" in their name"
    )]
    Bounds {
        /// Only experiments whose name contains one of these
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
        /// From how many runs; those from which nothing may be concluded do not count
        #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(5..))]
        last: u32,
        /// The history [default: results.jsonl in SNAPTAX_OUTPUT, or target/snaptax]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List the SNAPTAX_* environment variables
    #[command(after_help = "Examples:\n  \
        SNAPTAX_GATE=warn cargo experiments oltp\n  \
        SNAPTAX_ROWS=100000 SNAPTAX_TIME=60 SNAPTAX_GATE=warn cargo experiments oltp\n\n\
        The second runs at another scale. Bounds are for the default scale, so its verdict says nothing.")]
    Settings,
}

fn main() -> ExitCode {
    let (text, code) = match Cli::parse().command {
        Command::Doctor => doctor(),
        Command::Sweep { dry_run, kept, run } => sweep(dry_run, kept, run),
        Command::History { filters, last, file } => history(&filters, last as usize, file),
        Command::Bounds { filters, last, file } => bounds(&filters, last as usize, file),
        Command::Settings => (settings(), 0),
    };
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that went away, as `head` does, is no failure, and must not change the answer.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write: {error}"));
            ExitCode::from(ENVIRONMENT)
        }
        _ => ExitCode::from(code),
    }
}

/// On standard error, if that is there.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "snaptax: {text}");
}

/// The settings, or what is wrong with them on standard error.
fn from_env() -> Option<Settings> {
    Settings::from_env()
        .inspect_err(|errors| errors.iter().for_each(|error| complain(&error.to_string())))
        .ok()
}

fn doctor() -> (String, u8) {
    let Some(settings) = from_env() else {
        return (String::new(), USAGE);
    };
    let findings = host::survey(&settings);
    let text: String = findings.iter().map(line).collect();
    match findings
        .iter()
        .filter(|finding| matches!(finding, Finding::Missing(_)))
        .count()
    {
        0 => (text + "\nExperiments can run here.\n", 0),
        count => {
            let end = format!(
                "\nExperiments cannot run here, {count} missing. `cargo experiments` brings everything in a guest.\n"
            );
            (text + &end, ENVIRONMENT)
        }
    }
}

fn sweep(dry_run: bool, kept: bool, asked: Option<RunId>) -> (String, u8) {
    let Some(settings) = from_env() else {
        return (String::new(), USAGE);
    };
    if !dry_run && !rustix::process::geteuid().is_root() {
        complain("only root can remove devices and mounts; use sudo, or --dry-run");
        return (String::new(), ENVIRONMENT);
    }
    let found = match sweep::find(&settings.work_dir) {
        Ok(found) => found,
        Err(error) => {
            complain(&error.to_string());
            return (String::new(), ENVIRONMENT);
        }
    };
    let (mut text, mut code) = (String::new(), 0);
    for remains in found {
        let run = remains.run();
        if asked.is_some_and(|asked| asked != run) {
            continue;
        }
        let things = format!("  {}\n", remains.to_string().replace('\n', "\n  "));
        let out_of_sight = asked.is_some() && remains.life() == Life::OutOfSight;
        let swept = remains.is_dead() || (kept && remains.is_kept()) || out_of_sight;
        if !swept {
            let why = match remains.life() {
                Life::Ended => "was kept, see --kept",
                Life::Running => "is running",
                Life::OutOfSight => "may be running out of sight, in a container say; if it does not, see --run",
            };
            text += &format!("run {run} {why}\n{things}");
        } else if dry_run {
            text += &format!("run {run} would be removed\n{things}");
        } else {
            complain(&format!("removing what run {run} left"));
            match remains.remove() {
                Ok(()) => text += &format!("run {run} removed\n{things}"),
                Err(error) => {
                    complain(&format!("run {run}: {error}"));
                    code = ENVIRONMENT;
                }
            }
        }
    }
    if text.is_empty() && code == 0 {
        text = "nothing to sweep\n".into();
    }
    (text, code)
}

fn history(filters: &[String], last: usize, file: Option<PathBuf>) -> (String, u8) {
    let series = match series(filters, file) {
        Ok(series) => series,
        Err(code) => return (String::new(), code),
    };
    let shown: Vec<String> = series
        .iter()
        .map(|series| series.table(&compare::changes(&series.log_ratios()), last))
        .collect();
    (shown.join("\n"), 0)
}

fn bounds(filters: &[String], last: usize, file: Option<PathBuf>) -> (String, u8) {
    let series = match series(filters, file) {
        Ok(series) => series,
        Err(code) => return (String::new(), code),
    };
    let mut proposed = Vec::new();
    for series in series {
        let of = format!("{} on {}", series.name, series.profile);
        match gate::propose(&series, last) {
            Ok(Proposal { bounds, remarks }) => {
                for remark in remarks {
                    complain(&format!("{of}: note: {remark}"));
                }
                proposed.push(format!("# {of}, from {last} runs\n{bounds}"));
            }
            Err(refusal) => complain(&format!("{of}: {refusal}")),
        }
    }
    let code = if proposed.is_empty() { USAGE } else { 0 };
    (proposed.join("\n"), code)
}

/// The series of the history that match, or the exit code after what is wrong was said.
fn series(filters: &[String], file: Option<PathBuf>) -> Result<Vec<Series>, u8> {
    let settings = from_env().ok_or(USAGE)?;
    let file = file.unwrap_or_else(|| {
        let output = json::output_directory(settings.output.as_deref());
        history::path(settings.output.as_deref(), &output)
    });
    let (entries, broken) = history::read(&file).map_err(|error| {
        complain(&format!(
            "{error}; a run of an experiment begins the history, --file names another one"
        ));
        ENVIRONMENT
    })?;
    if broken > 0 {
        let lines = if broken == 1 {
            "1 line is no result"
        } else {
            &format!("{broken} lines are no results")
        };
        complain(&format!("{}: {lines} of this version", file.display()));
    }
    let mut found = history::series(entries);
    found.retain(|series| filters.is_empty() || filters.iter().any(|filter| series.name.contains(filter)));
    if found.is_empty() {
        complain(&format!("{} has no run that matches", file.display()));
        return Err(USAGE);
    }
    Ok(found)
}

fn line(finding: &Finding) -> String {
    match finding {
        Finding::Good(text) => format!("ok       {text}\n"),
        Finding::Note(text) => format!("note     {text}\n"),
        Finding::Missing(reason) => format!("missing  {}\n         fix: {}\n", reason.what, reason.fix),
    }
}

fn settings() -> String {
    let knobs = KNOBS
        .iter()
        .map(|knob| format!("{}={}\n    {}\n", knob.name, knob.value, knob.about));
    let harness = format!(
        "{}\n    read by cargo experiments; see its --help\n",
        HARNESS.join("\n")
    );
    knobs.chain([harness]).collect()
}
