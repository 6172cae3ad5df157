//! A run that is killed at any moment, beside somebody else's volume group.
//!
//! `cargo experiments kills --count 60` kills more often than the twice of an ordinary run.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::OFlags;
use snaptax::bench::{self, Experiment};
use snaptax::command::Command;
use snaptax::prelude::*;
use snaptax::server::MysqldOptions;
use snaptax::settings::Settings;
use snaptax::sweep;
use tempfile::TempDir;

/// Set for the process that is to be killed.
pub(crate) const VICTIM: &str = "KILLS_VICTIM";

pub(crate) const THIS_TEST: &str =
    "kills::a_killed_run_leaves_nothing_after_the_next_sweep_and_its_neighbours_unharmed";

/// Kills of an ordinary run.
const FEW: u32 = 2;

/// What the experiment takes on an emulated processor, about.
const WHOLE: Duration = Duration::from_secs(100);

/// How long a neighbour's write may be held up.
const LONGEST_STALL: Duration = Duration::from_secs(1);

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
fn a_killed_run_leaves_nothing_after_the_next_sweep_and_its_neighbours_unharmed() {
    if std::env::var_os(VICTIM).is_some() {
        short_experiment();
        return;
    }
    let settings = Settings::from_env().unwrap();
    let count = std::env::var("SNAPTAX_KILLS").map_or(FEW, |count| count.parse().unwrap());
    let seed = settings.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let mut moments = StdRng::seed_from_u64(seed);
    println!("seed {seed}");

    let log = settings.work_dir.join("kills.log");
    let neighbour = Neighbour::start();
    let (mut kills, mut whole) = (0, WHOLE);
    while kills < count {
        let moment = whole.mul_f64(moments.random_range(0.0..1.0));
        if let Some(took) = ended_within(moment, &mut victim(&log)) {
            println!("ended before it was to be killed, after {:.2} s", took.as_secs_f64());
            assert_nothing_is_left(&settings.work_dir);
            whole = took;
            continue;
        }
        kills += 1;
        let began = Instant::now();
        let swept: Vec<String> = sweep::dead(&settings.work_dir)
            .unwrap()
            .iter()
            .map(|remains| {
                remains.remove().unwrap_or_else(|error| panic!("{error}\n{remains}"));
                remains.to_string().replace('\n', ", ")
            })
            .collect();
        assert_nothing_is_left(&settings.work_dir);
        println!(
            "kill {kills} of {count}, after {:.2} s; swept in {:.1} s: {}",
            moment.as_secs_f64(),
            began.elapsed().as_secs_f64(),
            if swept.is_empty() {
                "nothing".to_owned()
            } else {
                swept.join("; ")
            }
        );
    }
    fs::remove_file(&log).unwrap();
    let (writes, stall) = neighbour.stop();
    println!("the neighbour wrote {writes} blocks and lost none; its slowest write took {stall:?}");
    assert!(stall < LONGEST_STALL, "a write to a foreign group took {stall:?}");
}

/// Every step of an experiment.
fn short_experiment() {
    let comparison = smallest_experiment()
        .with(|rig| rig.volume().thick_snapshot("snap").create())
        .measure()
        .unwrap();
    // A window of a second may well be without a transaction, and then there is no ratio; a round shows that every step
    // was taken.
    assert!(comparison.rounds > 0, "{:?}", comparison.invalid);
}

/// An experiment at the smallest scale, without a difference yet.
pub(crate) fn smallest_experiment() -> Experiment<impl FnMut(&Rig) -> snaptax::Result<()>> {
    let options = MysqldOptions {
        buffer_pool: Size::mib(8),
        redo_capacity: Size::mib(8),
        ..MysqldOptions::default()
    };
    bench::bench()
        .load(Oltp::sysbench_0_4().rows(2000).threads(2).uniform())
        .window(Duration::from_secs(1))
        .half_width(10.0)
        .volume_size(Size::mib(320))
        .mysqld(options)
}

/// What it took, if it ended by itself, which it must have done well; otherwise it is killed.
fn ended_within(moment: Duration, victim: &mut Child) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < moment {
        if let Some(status) = victim.try_wait().unwrap() {
            assert!(status.success(), "{status}, after {:?}", began.elapsed());
            return Some(began.elapsed());
        }
        thread::sleep(Duration::from_millis(10));
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    None
}

pub(crate) fn victim(log: &Path) -> Child {
    let log = File::create(log).unwrap();
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", THIS_TEST])
        .env(VICTIM, "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

pub(crate) fn assert_nothing_is_left(work_dir: &Path) {
    let mut left = lines("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]);
    left.extend(lines(
        "dmsetup",
        &["info", "--columns", "--noheadings", "--options", "name"],
    ));
    left.extend(lines(
        "docker",
        &["ps", "--all", "--quiet", "--filter", "label=org.snaptax.run"],
    ));
    left.extend(
        fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .map(str::to_owned),
    );
    left.retain(|line| line.contains("snaptax-") || line.contains("snaptax--") || !line.contains(' ') && is_id(line));
    left.extend(names(work_dir, "snaptax-"));
    left.extend(names(Path::new("/dev"), "snaptax-"));
    left.extend(names(Path::new("/dev/mapper"), "snaptax--"));
    assert_eq!(left, [] as [String; 0]);
}

/// A container's.
fn is_id(line: &str) -> bool {
    line.len() == 12 && line.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn lines(program: &str, args: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(args).run().unwrap().stdout;
    output.lines().map(|line| line.trim().to_owned()).collect()
}

fn names(directory: &Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Somebody else's volume group, with a writer who knows what he wrote.
struct Neighbour {
    device: String,
    volume: PathBuf,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<(Vec<u64>, u64, Duration)>,
    _directory: TempDir,
}

const GROUP: &str = "neighbour";
const BLOCK: usize = 4096;
const BLOCKS: usize = 4096;

impl Neighbour {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk.img");
        File::create(&file).unwrap().set_len(64 << 20).unwrap();
        let file = file.to_string_lossy().into_owned();
        let device = lines("losetup", &["--find", "--show", &file]).remove(0);
        for args in [
            ["vgcreate", "--yes", GROUP, &device].as_slice(),
            &["lvcreate", "--yes", "--size", "32m", "--name", "data", GROUP],
        ] {
            Command::new("lvm").args(args).run().unwrap();
        }
        let volume = Path::new("/dev").join(GROUP).join("data");
        let stop = Arc::new(AtomicBool::new(false));
        let writer = thread::spawn({
            let (volume, stop) = (volume.clone(), Arc::clone(&stop));
            move || write(&volume, &stop)
        });
        Self {
            device,
            volume,
            stop,
            writer,
            _directory: directory,
        }
    }

    /// Blocks written, and the slowest write, when every block holds what was last written to it.
    fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let (expected, writes, slowest) = self.writer.join().unwrap();
        Command::new("blockdev")
            .arg("--flushbufs")
            .arg(&self.volume)
            .run()
            .unwrap();
        let volume = File::open(&self.volume).unwrap();
        let mut block = vec![0; BLOCK];
        for (at, expected) in expected.iter().enumerate().filter(|(_, expected)| **expected > 0) {
            volume.read_exact_at(&mut block, (at * BLOCK) as u64).unwrap();
            assert!(block == pattern(*expected), "block {at} lost what was written to it");
        }
        drop(volume);
        Command::new("lvm")
            .args(["vgremove", "--yes", "--force", GROUP])
            .run()
            .unwrap();
        Command::new("losetup").args(["--detach", &self.device]).run().unwrap();
        (writes, slowest)
    }
}

/// Writes numbered blocks round and round, each to the disk before the next.
fn write(volume: &Path, stop: &AtomicBool) -> (Vec<u64>, u64, Duration) {
    let volume = File::options()
        .write(true)
        .custom_flags(OFlags::DSYNC.bits().cast_signed())
        .open(volume)
        .unwrap();
    let (mut expected, mut writes, mut slowest) = (vec![0; BLOCKS], 0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        writes += 1;
        let at = (writes as usize * 31) % BLOCKS;
        let began = Instant::now();
        volume.write_all_at(&pattern(writes), (at * BLOCK) as u64).unwrap();
        slowest = slowest.max(began.elapsed());
        expected[at] = writes;
        thread::sleep(Duration::from_millis(10));
    }
    (expected, writes, slowest)
}

fn pattern(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}
