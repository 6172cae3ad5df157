//! The cargo target runner: runs a test binary in a guest.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snaptax::settings::Size;
use walkdir::WalkDir;

use crate::cache::{self, Cache};
use crate::file;
use crate::guest::job::{self, Job, exports, quoted};
use crate::guest::qemu::{Drive, Format};
use crate::guest::{self, Boot, returned};
use crate::image::{self, disk, initramfs::Kernel};
use crate::interrupt::Interrupt;
use crate::libc::{self, Version};
use crate::plan::{self, Outcome, PLAN, Plan};
use crate::progress::Progress;

/// Where the guest mounts the measured disk.
const WORK: &str = "/snaptax/disk";
/// Where an experiment writes what is to be sent back.
const OUTPUT: &str = "/snaptax/output";
/// Where the guest keeps the newest line that it was told of its host.
const HOST_DELAY: &str = "/run/snaptax-host";

/// Variables handed to the test binary, and beginnings of further ones.
const PASSED: &[&str] = &[
    "CI",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
];
const PASSED_PREFIXES: &[&str] = &["SNAPTAX_", "INSTA_", "CARGO_MANIFEST_", "CARGO_PKG_"];

/// The harness's own variables, and those with another value in the guest.
const NOT_PASSED: &[&str] = &[
    "SNAPTAX_ACCEL",
    "SNAPTAX_CACHE",
    "SNAPTAX_DISK",
    "SNAPTAX_HOST_DELAY",
    "SNAPTAX_IMAGE",
    "SNAPTAX_IOPS",
    "SNAPTAX_IO_SIZE",
    "SNAPTAX_MEMORY",
    "SNAPTAX_OUTPUT",
    "SNAPTAX_STARTED",
    "SNAPTAX_TIMEOUT",
    "SNAPTAX_VERSIONS",
    "SNAPTAX_WORK_DIR",
    PLAN,
];

/// Why a test binary could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Started by something else than `cargo experiments`.
    #[error("the runner is started by `cargo experiments` only: {PLAN} names no plan: {0}")]
    Plan(io::Error),
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// A disk could not be made.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The guest failed.
    #[error(transparent)]
    Guest(#[from] guest::Error),
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] file::Error),
    /// The host is newer than the guest.
    #[error(
        "{} needs GNU libc {needed}, the guest has {guest}\n  \
         hint: build on a system with libc {guest} or older, or link statically (x86_64-unknown-linux-musl)",
        binary.display()
    )]
    Libc {
        /// The test binary.
        binary: PathBuf,
        /// What it needs.
        needed: Version,
        /// What the guest has.
        guest: Version,
    },
}

/// Runs a test binary with its arguments in a guest and returns its exit code.
///
/// # Errors
/// When it could not be run to its end.
pub(crate) fn run(binary: &Path, args: &[OsString], interrupt: &Interrupt) -> Result<i32, Error> {
    let path = std::env::var_os(PLAN).unwrap_or_default();
    let plan: Plan = plan::read(Path::new(&path)).map_err(Error::Plan)?;
    let progress = Progress::new();
    let result = run_planned(&plan, binary, args, &progress, interrupt);
    let outcome = Outcome {
        code: result.as_ref().ok().copied(),
        interrupted: interrupt.is_set(),
        timings: progress.timings(),
    };
    let file = plan::outcome_file(&plan.run);
    let written = plan::write(&file, &outcome).map_err(file::error("write", &file));
    // The run's own error first.
    let code = result?;
    written?;
    Ok(code)
}

fn run_planned(
    plan: &Plan,
    binary: &Path,
    args: &[OsString],
    progress: &Progress,
    interrupt: &Interrupt,
) -> Result<i32, Error> {
    check_libc(&plan.libc, binary)?;
    let cache = Cache::open(&plan.cache, progress, interrupt)?;
    let _alone = cache.alone()?;
    let scratch = cache.scratch()?;
    disk::require_scratch(scratch.path())?;
    let overlay = scratch.path().join("docker.qcow2");
    disk::overlay(&overlay, &plan.docker)?;

    let kernel = Kernel {
        vmlinuz: plan.vmlinuz.clone(),
        initramfs: plan.initramfs.clone(),
    };
    let job = job(plan, binary, args);
    let console = plan.run.join("console.log");
    let boot = Boot {
        machine: plan.machine,
        kernel: &kernel,
        arguments: &[],
        drives: drives(plan, overlay),
        job: &job,
        scratch: scratch.path(),
        console: &console,
        prefix: "",
        timeout: Duration::from_secs(60 * plan.timeout),
    };
    let began = Instant::now();
    let outcome = boot.run(progress, interrupt, |bytes| {
        let mut stdout = io::stdout().lock();
        // A reader that went away is no reason to end a measurement.
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    })?;
    let command = plan.run.join("qemu.txt");
    std::fs::write(&command, outcome.command.clone() + "\n").map_err(file::error("write", &command))?;
    let archive = guest::open_archive(&outcome)?;
    let written =
        returned::unpack(archive, &plan.run, &plan.workspace).map_err(file::error("unpack", &outcome.archive))?;
    for path in written {
        progress.note(&format!("snapshot file from the guest: {}", path.display()));
    }
    // Memory that runs out ends a job like a time that does.
    if began.elapsed() >= boot.timeout && [job::TIMED_OUT, job::KILLED].contains(&outcome.code) {
        progress.note(&format!(
            "the experiments were ended after {} minutes (--timeout); what had finished by then is in the results",
            plan.timeout
        ));
    }
    Ok(outcome.code)
}

fn check_libc(guest: &str, binary: &Path) -> Result<(), Error> {
    let needed = libc::needed(binary).map_err(file::error("read", binary))?;
    match (needed, guest.parse::<Version>()) {
        (Some(needed), Ok(guest)) if needed > guest => Err(Error::Libc {
            binary: binary.to_owned(),
            needed,
            guest,
        }),
        _ => Ok(()),
    }
}

fn drives(plan: &Plan, docker: PathBuf) -> Vec<Drive> {
    let writable = |serial, path, format, throttle| Drive {
        serial,
        path,
        format,
        read_only: false,
        throttle,
    };
    vec![
        Drive::read_only("root", &plan.root),
        writable("docker", docker, Format::Qcow2, None),
        writable("measured", plan.measured.clone(), Format::Raw, Some(plan.throttle)),
    ]
}

fn job(plan: &Plan, binary: &Path, args: &[OsString]) -> Job {
    let program = Path::new("/snaptax/job/bin").join(binary.file_name().unwrap_or(OsStr::new("test")));
    let directory = std::env::current_dir().unwrap_or_else(|_| plan.workspace.clone());
    let mut script = exports(&environment(plan, std::env::vars_os()));
    let mut line = |words: &[&OsStr]| {
        script.extend(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' '));
        script.push(b'\n');
    };
    line(&[
        "mkdir".as_ref(),
        "-p".as_ref(),
        directory.as_os_str(),
        plan.workspace.as_os_str(),
    ]);
    line(&["cd".as_ref(), directory.as_os_str()]);
    let mut words: Vec<&OsStr> = vec!["exec".as_ref(), program.as_os_str()];
    words.extend(args.iter().map(OsString::as_os_str));
    line(&words);

    let mut files = vec![(binary.to_owned(), program.clone())];
    files.extend(snapshot_files(&plan.workspace).map(|path| (path.clone(), path)));
    Job {
        script,
        files,
        workspace: plan.workspace.clone(),
        daemon_env: Vec::new(),
    }
}

/// insta's snapshot files in the workspace.
fn snapshot_files(workspace: &Path) -> impl Iterator<Item = PathBuf> {
    let unwanted = |name: &OsStr| name == "target" || name == ".git" || name == "node_modules";
    WalkDir::new(workspace)
        .into_iter()
        .filter_entry(move |entry| !unwanted(entry.file_name()))
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|extension| extension == "snap"))
}

fn environment(plan: &Plan, callers: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = callers
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            let passed = PASSED.contains(&&*name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            passed && !NOT_PASSED.contains(&&*name)
        })
        .collect();
    let given = |name: &str| variables.iter().any(|(known, _)| known == name);
    let io_size = plan.throttle.io_size.map_or(String::new(), |bytes| {
        format!("-{}", Size::bytes(bytes)).replace(' ', "").to_lowercase()
    });
    let profile = format!("guest-{}-{}iops{io_size}", plan.machine.accelerator, plan.throttle.iops);
    let profile = (!given("SNAPTAX_PROFILE")).then_some(("SNAPTAX_PROFILE", profile));
    let versions = serde_json::to_string(&plan.versions).unwrap_or_default();
    let own = [
        ("HOME", "/root".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("SNAPTAX_HOST_DELAY", HOST_DELAY.to_owned()),
        ("SNAPTAX_IMAGE", plan.image.clone()),
        ("SNAPTAX_OUTPUT", OUTPUT.to_owned()),
        ("SNAPTAX_STARTED", format!("{:.3}", plan.started)),
        ("SNAPTAX_VERSIONS", versions),
        ("SNAPTAX_WORK_DIR", WORK.to_owned()),
    ];
    let workspace = ("INSTA_WORKSPACE_ROOT".into(), plan.workspace.clone().into_os_string());
    variables.retain(|(name, _)| name != "INSTA_WORKSPACE_ROOT");
    variables.extend(
        own.into_iter()
            .chain(profile)
            .map(|(name, value)| (name.into(), value.into())),
    );
    variables.push(workspace);
    variables
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::guest::qemu::{Accelerator, Machine, Throttle};

    fn plan() -> Plan {
        Plan {
            cache: "/c".into(),
            run: "/w/target/snaptax/runs/1".into(),
            workspace: "/w".into(),
            machine: Machine {
                accelerator: Accelerator::Tcg,
                processors: 2,
                memory_mib: 2560,
            },
            throttle: Throttle {
                iops: 400,
                io_size: None,
            },
            timeout: 60,
            vmlinuz: "/c/vmlinuz".into(),
            initramfs: "/c/initramfs".into(),
            root: "/c/root".into(),
            libc: "2.41".into(),
            docker: "/c/docker".into(),
            image: "snaptax/mysql:debian".into(),
            measured: "/c/disk".into(),
            started: 1.5,
            versions: BTreeMap::from([("qemu".into(), "10.0.2".into())]),
        }
    }

    #[test]
    fn a_disk_whose_requests_have_a_size_is_another_profile() {
        let mut plan = plan();
        plan.throttle.io_size = Some(16 << 10);
        let variables = environment(&plan, std::iter::empty());
        let profile = variables.iter().find(|(name, _)| name == "SNAPTAX_PROFILE").unwrap();
        assert_eq!(profile.1, "guest-tcg-400iops-16kib");
    }

    fn environment_of(callers: &[(&str, &str)]) -> BTreeMap<String, String> {
        let callers = callers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let text = |word: OsString| word.into_string().unwrap();
        let variables = environment(&plan(), callers);
        variables
            .into_iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn settings_of_experiments_are_passed_on_and_the_harnesss_own_are_not() {
        let variables = environment_of(&[
            ("SNAPTAX_ROWS", "5000"),
            ("INSTA_UPDATE", "new"),
            ("CI", "true"),
            ("SNAPTAX_MEMORY", "4g"),
            ("SNAPTAX_WORK_DIR", "/var/tmp"),
            ("INSTA_WORKSPACE_ROOT", "/elsewhere"),
            ("PATH", "/bin"),
        ]);
        let get = |name: &str| variables.get(name).map(String::as_str);
        assert_eq!(
            (get("SNAPTAX_ROWS"), get("INSTA_UPDATE"), get("CI")),
            (Some("5000"), Some("new"), Some("true"))
        );
        assert_eq!((get("SNAPTAX_MEMORY"), get("PATH")), (None, None));
        assert_eq!(
            (get("SNAPTAX_WORK_DIR"), get("INSTA_WORKSPACE_ROOT")),
            (Some(WORK), Some("/w"))
        );
        assert_eq!(get("SNAPTAX_IMAGE"), Some("snaptax/mysql:debian"));
        assert_eq!(get("SNAPTAX_VERSIONS"), Some(r#"{"qemu":"10.0.2"}"#));
    }

    #[test]
    fn what_the_guest_is_told_of_its_host_is_where_the_test_looks() {
        let variables = environment_of(&[("SNAPTAX_HOST_DELAY", "/elsewhere")]);
        assert_eq!(variables["SNAPTAX_HOST_DELAY"], HOST_DELAY);
        let init = include_str!("../guest/init");
        assert!(init.contains(&format!(">{HOST_DELAY} ")));
    }

    #[test]
    fn the_profile_names_the_machine_unless_the_user_does() {
        assert_eq!(environment_of(&[])["SNAPTAX_PROFILE"], "guest-tcg-400iops");
        assert_eq!(environment_of(&[("SNAPTAX_PROFILE", "lab")])["SNAPTAX_PROFILE"], "lab");
    }

    #[test]
    fn a_host_newer_than_the_guest_is_told_before_the_loader_would() {
        let binary = std::env::current_exe().unwrap();
        let message = check_libc("2.5", &binary).unwrap_err().to_string();
        assert!(
            message.contains("the guest has 2.5") && message.contains("hint:"),
            "{message}"
        );
        check_libc("9.0", &binary).unwrap();
    }
}
