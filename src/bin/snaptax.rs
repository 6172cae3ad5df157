//! The command-line tool.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use snaptax::host::{self, Finding};
use snaptax::settings::{KNOBS, Settings};

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
        Command::Settings => (settings(), 0),
    };
    // A reader that went away, as `head` does, is no failure, and must not change the answer.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::from(code)
}

fn doctor() -> (String, u8) {
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("snaptax: {error}"));
            return (String::new(), USAGE);
        }
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

fn line(finding: &Finding) -> String {
    match finding {
        Finding::Good(text) => format!("ok       {text}\n"),
        Finding::Note(text) => format!("note     {text}\n"),
        Finding::Missing(reason) => format!("missing  {}\n         fix: {}\n", reason.what, reason.fix),
    }
}

fn settings() -> String {
    KNOBS
        .iter()
        .map(|knob| format!("{}={}\n    {}\n", knob.name, knob.value, knob.about))
        .collect()
}
