//! `cargo experiments`: from the command line to an exit code.

mod error;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snaptax::command::Command;
use snaptax::report::{self, history};
use snaptax::result::Record;
use snaptax::settings::{Settings, Size};
use snaptax::storage::group_size;

use crate::cache::Cache;
use crate::cargo::{self, Workspace};
use crate::cli::{Accel, Run};
use crate::exit::Exit;
use crate::guest::qemu::{Accelerator, Machine, Throttle};
use crate::image::initramfs::Kernel;
use crate::image::root::Root;
use crate::image::server::{Server, Workshop};
use crate::image::{self, archive, disk, initramfs, root, server};
use crate::interrupt::Interrupt;
use crate::plan::{self, Outcome, Plan};
use crate::progress::Progress;
use crate::{accelerator, file, requirements, run_directory};

pub(crate) use error::Error;

/// Windows of the shortest measurement: six rounds.
const FEWEST_WINDOWS: u64 = 12;

/// More processors than this do not make an emulated guest quicker.
const MOST_PROCESSORS: usize = 4;

/// How long an interrupted runner may take to end its guest.
const RUNNER_END: Duration = Duration::from_secs(10);

/// Settings of tests that run without a guest.
const NATIVE: &[&str] = &["SNAPTAX_OUTPUT", "SNAPTAX_WORK_DIR"];

/// Runs experiments, with these variables set for them, and sums up.
///
/// # Errors
/// When they could not be run at all.
pub(crate) fn run(run: &Run, variables: &[(&str, String)], interrupt: &Interrupt) -> Result<Exit, Error> {
    let started = SystemTime::now();
    requirements::check_machine(std::env::consts::ARCH, std::env::consts::OS)?;
    refuse_native_settings(|name| std::env::var_os(name))?;
    let settings = Settings::from_env().map_err(|errors| Error::Settings {
        problems: errors.iter().map(ToString::to_string).collect(),
    })?;
    check_scale(&settings, run)?;
    let workspace = cargo::workspace()?;
    workspace.check(run)?;
    let progress = Progress::new();
    let args = cargo::libtest_args(run);
    if run.list {
        let binary = build(run, &progress, interrupt)?;
        let names = selected(&binary, &args, run)?;
        print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
        return Ok(Exit::Within);
    }
    requirements::ensure(&progress, interrupt)?;
    let base = workspace.target.join("snaptax");
    let directory = run_directory::create(&base).map_err(file::error("create a run's directory in", &base))?;

    let images = images_beside_build(run, &args, &directory, &progress, interrupt);
    let images = images.inspect_err(|_| run_directory::abandon(&base, &directory))?;
    // Others must not replace the images before the guest has ended.
    let plan = images.plan(run, &workspace, &directory, started);
    let file = plan::plan_file(&directory);
    plan::write(&file, &plan).map_err(file::error("write", &file))?;

    let status = cargo::test(run, &args, &file, variables, interrupt)?;
    if interrupt.is_set() {
        wait_for(&plan::outcome_file(&directory));
    }
    let outcome: Outcome = plan::read(&plan::outcome_file(&directory)).unwrap_or_default();
    write_timings(&directory, started, &progress, &outcome)?;
    if interrupt.is_set() || outcome.interrupted {
        return Ok(Exit::Interrupted);
    }
    let records = records(&directory)?;
    show(&records, &directory);
    let passed = status.success() && outcome.code == Some(0);
    let exit = Exit::of_run(&records, settings.gate, passed);
    match remember(&base, &directory) {
        // A verdict that fails is not to be hidden by a history that cannot be written.
        Err(error) if exit != Exit::Within => progress.note(&format!("not in the history: {error}")),
        remembered => remembered?,
    }
    Ok(exit)
}

/// cargo ends at once when it is told to; the runner that it started ends its guest first, and writes this then.
fn wait_for(outcome: &Path) {
    let end = Instant::now() + RUNNER_END;
    while !outcome.exists() && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
}

/// What the guest would find out only after its boot.
fn check_scale(settings: &Settings, run: &Run) -> Result<(), Error> {
    let mut problems = Vec::new();
    if settings.keep {
        problems
            .push("SNAPTAX_KEEP=1 is for tests that run on this machine: a guest is thrown away with all in it".into());
    }
    let memory = requirements::memory();
    if memory.is_some_and(|memory| run.memory > memory) {
        problems.push(format!(
            "--memory {} is more than the {} that this machine has",
            run.memory,
            memory.unwrap_or(run.memory)
        ));
    }
    // An experiment's own volume is not known here; its snapshot takes this much beside it.
    let volume = settings.volume_size.unwrap_or(Size::bytes(0));
    let given = settings.volume_size.is_some() || settings.snapshot_size.is_some();
    let group = given.then(|| group_size(volume, settings.snapshot_size));
    if let Some(group) = group.filter(|group| *group > run.disk) {
        problems.push(format!(
            "SNAPTAX_VOLUME_SIZE and SNAPTAX_SNAPSHOT_SIZE need {group}, and the guest's disk has {}; use a larger --disk",
            run.disk
        ));
    }
    if let Some(pool) = settings.buffer_pool.filter(|pool| *pool >= run.memory) {
        problems.push(format!(
            "SNAPTAX_BUFFER_POOL={pool} does not fit into the guest's memory of {}; use a larger --memory",
            run.memory
        ));
    }
    let minutes = settings.budget.map(|budget| budget.as_secs() / 60);
    if let Some(minutes) = minutes.filter(|minutes| *minutes > run.timeout) {
        problems.push(format!(
            "SNAPTAX_BUDGET={minutes} is more than the {} minutes of --timeout; raise that to {}, for a second measurement \
             takes twice as long",
            run.timeout,
            3 * minutes + 30
        ));
    }
    let windows = settings.time.map(|time| time.as_secs() * FEWEST_WINDOWS / 60);
    if let Some(minutes) = windows.filter(|minutes| *minutes > run.timeout) {
        problems.push(format!(
            "{FEWEST_WINDOWS} windows of SNAPTAX_TIME take {minutes} minutes, more than the {} of --timeout; raise that \
             (and SNAPTAX_BUDGET) to {} or more",
            run.timeout,
            minutes + 15
        ));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Settings { problems }),
    }
}

fn refuse_native_settings(value: impl Fn(&str) -> Option<OsString>) -> Result<(), Error> {
    let set = |name: &&str| value(name).is_some_and(|value| !value.to_string_lossy().trim().is_empty());
    match NATIVE.iter().copied().find(set) {
        Some(name) => Err(Error::Native { name }),
        None => Ok(()),
    }
}

/// Makes the server's tar, if need be, and prints where it is and which packages are in it, a line each.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn server_archive(place: Option<&Path>, interrupt: &Interrupt) -> Result<(), Error> {
    let progress = Progress::new();
    requirements::ensure(&progress, interrupt)?;
    let cache = open_cache(place, &progress, interrupt)?;
    let archive = step(&progress, "server packages", false, || {
        archive::ensure(&cache, interrupt)
    })?;
    print(&format!("{}\n{}\n", archive.path.display(), archive.source))
}

fn open_cache(place: Option<&Path>, progress: &Progress, interrupt: &Interrupt) -> Result<Cache, Error> {
    let place = match place {
        Some(place) => place.to_owned(),
        None => Cache::default_directory()?,
    };
    Ok(Cache::open(&place, progress, interrupt)?)
}

/// Builds images and test binary at once; the first failure ends both.
fn images_beside_build(
    run: &Run,
    args: &[String],
    directory: &Path,
    progress: &Progress,
    interrupt: &Interrupt,
) -> Result<Images, Error> {
    let interrupt = interrupt.stoppable();
    let (built, images) = thread::scope(|scope| {
        let building = scope.spawn(|| {
            let built = build(run, progress, &interrupt).and_then(|binary| selected(&binary, args, run));
            if built.is_err() {
                interrupt.stop();
            }
            built
        });
        // Here and not in the thread: a guest ends with the thread that started it.
        let images = images(run, directory, progress, &interrupt);
        if images.is_err() {
            interrupt.stop();
        }
        let built = building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (built, images)
    });
    match (built, images) {
        // The images' failure ended the build; a signal ends both.
        (Err(Error::Interrupted), Err(error)) => Err(error),
        (Err(error), _) => Err(error),
        (Ok(_), images) => images,
    }
}

fn build(run: &Run, progress: &Progress, interrupt: &Interrupt) -> Result<PathBuf, Error> {
    let step = progress.step("build");
    let binary = cargo::build(run, interrupt)?;
    step.done();
    Ok(binary)
}

fn selected(binary: &Path, args: &[String], run: &Run) -> Result<Vec<String>, Error> {
    let names = cargo::list(binary, args)?;
    if names.is_empty() {
        return Err(Error::NoMatch {
            filters: run.filters.iter().chain(&run.libtest).cloned().collect(),
        });
    }
    Ok(names)
}

/// Everything a guest is made of.
struct Images {
    cache: Cache,
    machine: Machine,
    root: Root,
    kernel: Kernel,
    server: Server,
    measured: PathBuf,
}

fn images(run: &Run, directory: &Path, progress: &Progress, interrupt: &Interrupt) -> Result<Images, Error> {
    let cache = open_cache(run.cache.as_deref(), progress, interrupt)?;
    disk::require_space(&cache, run.disk)?;
    let processors = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_PROCESSORS);
    let asked = std::env::var("SNAPTAX_IMAGE")
        .ok()
        .filter(|image| !image.trim().is_empty());

    let root = step(progress, "guest image", root::is_cached(&cache), || {
        root::ensure(&cache, interrupt)
    })?;
    let kernel = initramfs::ensure(&cache, &root)?;
    let machine = Machine {
        accelerator: match run.accel {
            Accel::Auto => accelerator::best(processors, &kernel, qemu_version(), &cache, progress, interrupt)?,
            Accel::Tcg => Accelerator::Tcg,
            Accel::Kvm => Accelerator::Kvm,
        },
        processors,
        memory_mib: run.memory.as_bytes() >> 20,
    };
    let cached = server::cached(asked.as_deref(), &cache).is_some();
    let server = step(progress, "server image", cached, || {
        let workshop = Workshop {
            cache: &cache,
            interrupt,
            progress,
            machine,
            kernel: &kernel,
            root: &root,
            console: &directory.join("server-console.log"),
        };
        server::ensure(asked.as_deref(), &workshop)
    })?;
    let measured = step(progress, "measured disk", disk::is_cached(&cache, run.disk), || {
        disk::measured(&cache, run.disk, interrupt)
    })?;
    Ok(Images {
        cache,
        machine,
        root,
        kernel,
        server,
        measured,
    })
}

fn step<T>(
    progress: &Progress,
    name: &str,
    cached: bool,
    work: impl FnOnce() -> Result<T, image::Error>,
) -> Result<T, Error> {
    let step = progress.step(name);
    let done = work()?;
    if cached {
        step.done_with("cached");
    } else {
        step.done();
    }
    Ok(done)
}

impl Images {
    fn plan(&self, run: &Run, workspace: &Workspace, directory: &Path, started: SystemTime) -> Plan {
        let mut versions = BTreeMap::new();
        if let Some(version) = qemu_version() {
            versions.insert("qemu".to_owned(), version);
        }
        if let Some(version) = self.root.docker_version() {
            versions.insert("docker".to_owned(), version.to_owned());
        }
        Plan {
            cache: self.cache.directory().to_owned(),
            run: directory.to_owned(),
            workspace: workspace.root.clone(),
            machine: self.machine,
            throttle: Throttle {
                iops: run.iops,
                io_size: run.io_size.map(Size::as_bytes),
            },
            timeout: run.timeout,
            vmlinuz: self.kernel.vmlinuz.clone(),
            initramfs: self.kernel.initramfs.clone(),
            root: self.root.squashfs(),
            libc: self.root.manifest.libc.clone(),
            docker: self.server.disk.clone(),
            image: self.server.manifest.image.clone(),
            measured: self.measured.clone(),
            started: started
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |time| time.as_secs_f64()),
            versions,
        }
    }
}

/// `10.0.2` from `QEMU emulator version 10.0.2 (Debian ...)`.
fn qemu_version() -> Option<String> {
    let output = Command::new("qemu-system-x86_64").arg("--version").run().ok()?;
    output.stdout.split_whitespace().nth(3).map(str::to_owned)
}

fn records(directory: &Path) -> Result<Vec<Record>, Error> {
    let path = directory.join("results.json");
    if !path.exists() {
        return Ok(Vec::new());
    }
    Ok(plan::read(&path).map_err(file::error("read", &path))?)
}

/// Adds what the guest judged to the history of all runs.
fn remember(base: &Path, run: &Path) -> Result<(), Error> {
    let of_run = run.join(history::FILE_NAME);
    if !of_run.exists() {
        return Ok(());
    }
    let (entries, _) = history::read(&of_run).map_err(Error::History)?;
    history::append(&base.join(history::FILE_NAME), &entries).map_err(Error::History)
}

/// Writes seconds by step: the host's, the guest's, and those that experiments wrote.
fn write_timings(directory: &Path, started: SystemTime, progress: &Progress, outcome: &Outcome) -> Result<(), Error> {
    let path = directory.join("timings.json");
    let mut timings: BTreeMap<String, f64> = plan::read(&path).unwrap_or_default();
    timings.extend(progress.timings().into_iter().chain(outcome.timings.iter().cloned()));
    timings.insert("total".to_owned(), started.elapsed().unwrap_or_default().as_secs_f64());
    for seconds in timings.values_mut() {
        *seconds = (*seconds * 1000.0).round() / 1000.0;
    }
    Ok(plan::write(&path, &timings).map_err(file::error("write", &path))?)
}

fn show(records: &[Record], directory: &Path) {
    if !records.is_empty() {
        // They are in a file, too.
        let _ = print(&(report::table(records) + "\n"));
    }
    let _ = writeln!(io::stderr(), "   results in {}", directory.display());
}

/// A reader that went away must not change the exit code.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(file::error("write to", Path::new("standard output"))(error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_setting_counts_as_not_given() {
        refuse_native_settings(|_| Some(" ".into())).unwrap();
        let error = refuse_native_settings(|name| (name == "SNAPTAX_WORK_DIR").then(|| "/mnt".into())).unwrap_err();
        assert!(error.to_string().starts_with("SNAPTAX_WORK_DIR "));
    }
}
