//! What a device does, from a few seconds of writing to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rustix::fs::OFlags;

use crate::result::Calibration;
use crate::settings::Size;
use crate::storage::Error;

/// A page of InnoDB.
const PAGE: usize = 16 << 10;
/// What a copy of many pages is made of, and the unit of the bandwidth.
const MIB: usize = 1 << 20;
/// A block of the redo log's filesystem.
const RECORD: usize = 4 << 10;
const ALIGNMENT: usize = 4096;

/// Enough to keep a disk busy, fewer than a load has.
const THREADS: usize = 8;

/// Parts of the random writes; an odd number, so that there is a middle one.
const PARTS: usize = 5;

/// How long each of the three figures is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    random: Duration,
    sequential: Duration,
    flushes: Duration,
}

impl Times {
    pub(super) const USUAL: Self = Self {
        random: Duration::from_millis(1500),
        sequential: Duration::from_millis(800),
        flushes: Duration::from_millis(800),
    };
}

/// Measures a device, or a file written in full; what it holds is lost. However slow it is, each figure ends with the
/// operation that is under way when its time is up.
pub(super) fn calibrate(path: &Path, times: Times, stop: &AtomicBool) -> Result<Calibration, Error> {
    let device = Device::open(path, stop)?;
    Ok(Calibration {
        iops: device.random_writes(times.random)?,
        write_mib_per_second: device.sequential_writes(times.sequential)?,
        flush_milliseconds: device.flushes(times.flushes)?,
    })
}

struct Device<'a> {
    path: &'a Path,
    file: File,
    size: u64,
    stop: &'a AtomicBool,
    noise: Vec<u8>,
}

impl<'a> Device<'a> {
    fn open(path: &'a Path, stop: &'a AtomicBool) -> Result<Self, Error> {
        // Of a device that is mounted the kernel refuses an exclusive use.
        let flags = (OFlags::DIRECT | OFlags::EXCL).bits().cast_signed();
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(path);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::DirectIoOff { file: path.to_owned() },
            _ => Error::file("calibrate", path)(error),
        })?;
        let size = file.seek(SeekFrom::End(0)).map_err(Error::file("calibrate", path))?;
        if size < MIB as u64 {
            return Err(Error::TooSmall {
                what: format!("{}, to be calibrated,", path.display()),
                asked: Size::bytes(size),
                least: Size::bytes(MIB as u64),
            });
        }
        Ok(Self {
            path,
            file,
            size,
            stop,
            noise: noise(),
        })
    }

    /// Per second, from several threads at once.
    fn random_writes(&self, time: Duration) -> Result<f64, Error> {
        let began = Instant::now();
        let ended = Mutex::new(Vec::new());
        let written = thread::scope(|scope| {
            let ended = &ended;
            let writer = move |seed| {
                let mut random = StdRng::seed_from_u64(seed);
                let pages = self.size / PAGE as u64;
                self.repeat(time, "write at random to", |_| {
                    self.write(PAGE, random.random_range(0..pages))?;
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push(began.elapsed());
                    Ok(())
                })
            };
            let writers: Vec<_> = (0..THREADS as u64)
                .map(|seed| scope.spawn(move || writer(seed)))
                .collect();
            let joined = writers.into_iter().map(|writer| {
                let joined = writer.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Vec<Result<(), Error>>>()
        });
        written.into_iter().collect::<Result<(), Error>>()?;
        Ok(rate(ended.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    /// In MiB per second, one after the other.
    fn sequential_writes(&self, time: Duration) -> Result<f64, Error> {
        let began = Instant::now();
        let mut blocks = 0;
        self.repeat(time, "write in sequence to", |index| {
            blocks += 1;
            self.write(MIB, index)
        })?;
        Ok(per_second(blocks, began.elapsed()))
    }

    /// The median, in milliseconds, of making one small write durable.
    fn flushes(&self, time: Duration) -> Result<f64, Error> {
        const DOING: &str = "flush writes to";
        // What the other two have left in caches is not what a commit waits for.
        self.file.sync_data().map_err(Error::file(DOING, self.path))?;
        let mut took = Vec::new();
        self.repeat(time, DOING, |index| {
            self.write(RECORD, index)?;
            let began = Instant::now();
            self.file.sync_data()?;
            took.push(began.elapsed());
            Ok(())
        })?;
        took.sort_unstable();
        let median = took.get(took.len() / 2).copied().unwrap_or_default();
        Ok(1000.0 * median.max(Duration::from_nanos(1)).as_secs_f64())
    }

    /// Does it once, and again until the time is up.
    fn repeat(
        &self,
        time: Duration,
        doing: &'static str,
        mut work: impl FnMut(u64) -> io::Result<()>,
    ) -> Result<(), Error> {
        let began = Instant::now();
        for index in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted {
                    file: self.path.to_owned(),
                });
            }
            work(index).map_err(Error::file(doing, self.path))?;
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }

    /// Writes the block of that length and number; numbers beyond the end begin anew.
    fn write(&self, length: usize, number: u64) -> io::Result<()> {
        let start = self.noise.as_ptr().align_offset(ALIGNMENT);
        let place = number % (self.size / length as u64) * length as u64;
        self.file.write_all_at(&self.noise[start..start + length], place)
    }
}

/// A block and some to align it. Zeros, or anything regular, might never get to the disk.
fn noise() -> Vec<u8> {
    let mut noise = vec![0; MIB + ALIGNMENT];
    StdRng::seed_from_u64(0).fill_bytes(&mut noise);
    noise
}

/// Operations per second, from the times at which they ended: of parts with as many operations each, the one of
/// median length counts, since a machine that halts for a moment should not look like another one. A part is whole
/// turns of all threads, whose operations may end together. Where there are too few for that, the mean.
fn rate(mut ended: Vec<Duration>) -> f64 {
    ended.sort_unstable();
    let turns = ended.len() / PARTS / THREADS;
    if turns == 0 {
        let last = ended.last().copied().unwrap_or_default();
        return per_second(ended.len(), last);
    }
    let mut began = Duration::ZERO;
    let parts = ended.chunks_exact(turns * THREADS).take(PARTS);
    let mut took: Vec<Duration> = parts
        .filter_map(<[Duration]>::last)
        .map(|&end| end - std::mem::replace(&mut began, end))
        .collect();
    took.sort_unstable();
    per_second(turns * THREADS, took[took.len() / 2])
}

fn per_second(operations: usize, took: Duration) -> f64 {
    operations as f64 / took.max(Duration::from_nanos(1)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::storage::BackingFile;
    use rstest::rstest;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn file(directory: &tempfile::TempDir) -> BackingFile {
        BackingFile::write(directory.path().join("disk"), Size::mib(32), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    }

    const NONE: Times = Times {
        random: Duration::ZERO,
        sequential: Duration::ZERO,
        flushes: Duration::ZERO,
    };

    #[rstest]
    #[case::as_usual(Times::USUAL)]
    #[case::with_no_time_at_all(NONE)]
    fn a_file_has_figures_after_the_time_given(#[case] times: Times) {
        let directory = directory();
        let file = file(&directory);
        let began = Instant::now();
        let found = calibrate(file.path(), times, &AtomicBool::new(false)).unwrap();
        let took = began.elapsed();
        println!("{found:?} in {took:?}");
        for figure in [found.iops, found.write_mib_per_second, found.flush_milliseconds] {
            assert!(figure.is_finite() && figure > 0.0, "{found:?}");
        }
        assert!(took >= times.random + times.sequential + times.flushes);
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), file.size().as_bytes());
    }

    #[test]
    fn a_signal_ends_it_at_once() {
        let directory = directory();
        let file = file(&directory);
        let error = calibrate(file.path(), Times::USUAL, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(&error, Error::Interrupted { file: named } if named == file.path()));
    }

    #[test]
    fn a_signal_ends_it_while_it_writes() {
        let directory = directory();
        let file = file(&directory);
        let long = Times {
            random: Duration::from_secs(3600),
            ..NONE
        };
        let stop = AtomicBool::new(false);
        let error = thread::scope(|scope| {
            let calibration = scope.spawn(|| calibrate(file.path(), long, &stop));
            thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
            calibration.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    }

    #[test]
    fn errors_name_the_device_and_what_was_done_to_it() {
        let directory = directory();
        let missing = directory.path().join("missing");
        let error = calibrate(&missing, NONE, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().starts_with("cannot calibrate /"), "{error}");

        let small = directory.path().join("small");
        std::fs::write(&small, "x").unwrap();
        let error = calibrate(&small, NONE, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::TooSmall { .. }), "{error}");
        assert!(error.to_string().contains("small, to be calibrated"), "{error}");

        let stop = AtomicBool::new(false);
        let file = file(&directory);
        let mut device = Device::open(file.path(), &stop).unwrap();
        // Which a write to it tells.
        device.file = File::open(file.path()).unwrap();
        let errors = [
            device.random_writes(Duration::ZERO).unwrap_err(),
            device.sequential_writes(Duration::ZERO).unwrap_err(),
            device.flushes(Duration::ZERO).unwrap_err(),
        ];
        let said = ["write at random to", "write in sequence to", "flush writes to"];
        for (error, doing) in errors.into_iter().zip(said) {
            let expected = format!("cannot {doing} {}: ", file.path().display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    /// In thousandths of a second.
    fn times(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_millis).collect()
    }

    #[rstest]
    #[case::steady(times((0..1500).step_by(2)), 500.0)]
    #[case::with_a_halt(times((0..1500).step_by(2).filter(|end| !(310..880).contains(end))), 500.0)]
    #[case::with_a_burst(times((0..100).chain((100..1500).step_by(2))), 500.0)]
    #[case::with_writes_that_end_together(times((1..=19).flat_map(|turn| [80 * turn; 8])), 100.0)]
    #[case::slow(times([400, 900, 2000]), 1.5)]
    #[case::slower_than_the_time(times([20_000; 8]), 0.4)]
    fn a_rate_is_that_of_most_of_the_time(#[case] ended: Vec<Duration>, #[case] expected: f64) {
        let rate = rate(ended);
        assert!((rate - expected).abs() < 1e-9, "{rate}");
    }

    /// What is left on the volume must not make anyone take it for a filesystem or a partition table.
    #[test]
    fn noise_looks_like_nothing() {
        let noise = noise();
        let start = noise.as_ptr().align_offset(ALIGNMENT);
        let block = &noise[start..];
        assert_ne!(block[510..512], [0x55, 0xAA]);
        assert_ne!(block[1080..1082], [0x53, 0xEF]);
    }
}
