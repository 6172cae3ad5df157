//! Kills at every step, from empty caches on: nothing is left running, mounted or half-built, and the next run goes on.
//!
//! It takes ten minutes and both processors of a small machine, so it runs only when it is asked for:
//! `cargo test --package snaptax-harness --test kills -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Inherited by everything that a run starts, however it comes to have another parent.
const MARK: &str = "KILLS_MARK";

/// How long what was started may take to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a step takes at most until it is reached.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// A test that needs a guest, but not long.
const TEST: &str = "device_mapper_has_the_targets_of_snapshots";

const POLL: Duration = Duration::from_millis(100);

/// Whom to kill, and with what.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Harness(Signal),
    Program(&'static str),
}

/// A moment of a run.
struct Moment {
    name: &'static str,
    reached: fn(&Scene) -> bool,
    /// How long after it was reached.
    after: Duration,
    victim: Victim,
}

const KILL: Victim = Victim::Harness(Signal::KILL);

fn moments() -> Vec<Moment> {
    let moment = |name, reached, after, victim| Moment {
        name,
        reached,
        after: Duration::from_secs(after),
        victim,
    };
    vec![
        moment(
            "guest image, packages come, beside a build",
            |scene| scene.runs("mmdebstrap"),
            6,
            KILL,
        ),
        moment(
            "guest image, packages are unpacked",
            |scene| scene.runs("dpkg"),
            4,
            KILL,
        ),
        moment(
            "guest image, mmdebstrap killed",
            |scene| scene.runs("dpkg"),
            1,
            Victim::Program("mmdebstrap"),
        ),
        moment(
            "guest image, made into a squashfs",
            |scene| scene.runs("mksquashfs"),
            1,
            KILL,
        ),
        moment(
            "server packages",
            |scene| scene.has("root-") && scene.runs("mmdebstrap"),
            4,
            KILL,
        ),
        moment(
            "server image, QEMU killed",
            Scene::server_boots,
            3,
            Victim::Program("qemu-system-x86_64"),
        ),
        moment("server image", Scene::server_boots, 12, KILL),
        moment("measured disk", |scene| scene.has_server(), 1, KILL),
        moment(
            "boot, QEMU killed",
            Scene::guest_boots,
            1,
            Victim::Program("qemu-system-x86_64"),
        ),
        moment("boot", Scene::guest_boots, 3, Victim::Harness(Signal::HUP)),
        moment("Docker starts", |scene| scene.said("   devices "), 1, KILL),
        moment(
            "a test runs, QEMU killed",
            |scene| scene.said("running 1 test"),
            0,
            Victim::Program("qemu-system-x86_64"),
        ),
        moment(
            "a test runs, cargo killed",
            |scene| scene.said("running 1 test"),
            0,
            Victim::Program("cargo"),
        ),
        moment(
            "a test runs",
            |scene| scene.said("running 1 test"),
            0,
            Victim::Harness(Signal::TERM),
        ),
    ]
}

/// Directories of their own for caches and builds.
struct Scene {
    mark: String,
    cache: PathBuf,
    target: PathBuf,
    output: PathBuf,
}

#[test]
#[ignore = "takes ten minutes and both processors"]
fn a_kill_at_any_step_leaves_no_process_and_no_mount_and_the_next_run_goes_on() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root, "only root sees the environment of all that a run starts");
    // Not among those that a reboot clears: images are large.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let scene = Scene {
        mark: place.path().display().to_string(),
        cache: place.path().join("cache"),
        target: place.path().join("target"),
        output: place.path().join("output"),
    };
    for moment in moments() {
        let began = Instant::now();
        let mut run = Run(scene.start());
        let run = &mut run.0;
        let ended_before = !wait_until(DEADLINE, || {
            (moment.reached)(&scene) || run.try_wait().unwrap().is_some()
        });
        assert!(
            !ended_before && run.try_wait().unwrap().is_none(),
            "{}: not reached\n{}",
            moment.name,
            scene.tail()
        );
        thread::sleep(moment.after);
        assert!(
            run.try_wait().unwrap().is_none(),
            "{}: it was over\n{}",
            moment.name,
            scene.tail()
        );
        let seconds = began.elapsed().as_secs();
        scene.kill(run, moment.victim);
        let killed = Instant::now();
        let status = ended(run);
        scene.assert_nothing_is_left(moment.name);
        println!(
            "{}, {:?} after {seconds} s: {status}, all gone after {:.1} s; {}",
            moment.name,
            moment.victim,
            killed.elapsed().as_secs_f64(),
            scene.tail().lines().last().unwrap_or_default()
        );
    }
    let mut run = Run(scene.start());
    let status = ended_within(&mut run.0, DEADLINE);
    assert!(
        status.is_some_and(|status| status.success()),
        "the last run: {status:?}\n{}",
        scene.tail()
    );
    scene.assert_nothing_is_left("the last run");
    let scratch = fs::read_dir(scene.cache.join("snaptax-scratch")).unwrap();
    assert_eq!(scratch.count(), 0, "scratch space is left");
}

impl Scene {
    fn start(&self) -> Child {
        let output = File::create(&self.output).unwrap();
        Command::new(env!("CARGO_BIN_EXE_snaptax-harness"))
            .args(["--test", "hardening", "--accel", "tcg", TEST])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
            .env(MARK, &self.mark)
            .env("SNAPTAX_CACHE", &self.cache)
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("SNAPTAX_IMAGE")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap()
    }

    fn kill(&self, run: &Child, victim: Victim) {
        let kill = |process: u32, signal| {
            let _ = kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal);
        };
        match victim {
            Victim::Harness(signal) => kill(run.id(), signal),
            Victim::Program(name) => {
                let processes = self.processes();
                let victim = processes.iter().find(|(_, program)| program == name);
                let victim = victim.unwrap_or_else(|| panic!("no {name} among {processes:?}"));
                kill(victim.0, Signal::KILL);
            }
        }
    }

    /// Numbers and names of all that a run started and that still runs.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| {
                let process: u32 = entry.file_name().to_str()?.parse().ok()?;
                let environment = fs::read(entry.path().join("environ")).ok()?;
                let is_marked = environment
                    .split(|byte| *byte == 0)
                    .any(|variable| variable == mark.as_bytes());
                let line = fs::read(entry.path().join("cmdline")).ok().filter(|_| is_marked)?;
                Some((process, program(&String::from_utf8_lossy(&line))))
            })
            .collect()
    }

    fn runs(&self, name: &str) -> bool {
        self.processes().iter().any(|(_, program)| program == name)
    }

    /// Whether the cache has something whose name begins so.
    fn has(&self, prefix: &str) -> bool {
        let entries = fs::read_dir(&self.cache).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .any(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.len() == 16))
    }

    /// Whether a server's image is there, of whatever name.
    fn has_server(&self) -> bool {
        let entries = fs::read_dir(&self.cache).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.path().is_dir())
            .any(|entry| entry.file_name().to_string_lossy().starts_with("server-"))
    }

    /// Whether a guest boots that makes the server's image.
    fn server_boots(&self) -> bool {
        self.has_console("server-console.log") && self.runs("qemu-system-x86_64")
    }

    /// Whether the guest boots that runs the tests.
    fn guest_boots(&self) -> bool {
        self.has_console("console.log") && self.runs("qemu-system-x86_64")
    }

    fn has_console(&self, name: &str) -> bool {
        self.target.join("snaptax/latest").join(name).exists()
    }

    fn said(&self, text: &str) -> bool {
        fs::read_to_string(&self.output).is_ok_and(|output| output.contains(text))
    }

    /// The end of what the last run said.
    fn tail(&self) -> String {
        let output = fs::read_to_string(&self.output).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn assert_nothing_is_left(&self, when: &str) {
        wait_until(PATIENCE, || self.processes().is_empty());
        let left = self.processes();
        assert!(left.is_empty(), "{when}: {left:?} still run");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.mark), "{when}: {mounts}");
    }
}

/// Killed, should the test fail.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of a command line, or the script of an interpreter.
fn program(line: &str) -> String {
    let name = |word: &str| {
        Path::new(word)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let mut words = line.split('\0').map(name);
    let first = words.next().unwrap_or_default();
    if ["perl", "sh"].contains(&first.as_str()) {
        return words.find(|word| !word.starts_with('-')).unwrap_or(first);
    }
    first
}

fn ended(run: &mut Child) -> ExitStatus {
    ended_within(run, PATIENCE).unwrap_or_else(|| panic!("it did not end within {PATIENCE:?}"))
}

fn ended_within(run: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    wait_until(deadline, || run.try_wait().unwrap().is_some());
    run.try_wait().unwrap()
}

/// Whether it came to be so.
fn wait_until(deadline: Duration, mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    while Instant::now() < end {
        if so() {
            return true;
        }
        thread::sleep(POLL);
    }
    false
}
