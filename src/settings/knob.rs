//! The knobs: their names, the form of their values, and what they set.

use std::time::Duration;

use super::{BoundsMode, GateMode, LEAST_HALF_WIDTH, Settings, Size, image};

/// One knob, as listed by `snaptax settings`.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name in the environment.
    pub name: &'static str,
    /// The form of its value.
    pub value: &'static str,
    /// What it does, with its default.
    pub about: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The knobs of the library.
pub const KNOBS: &[Knob] = &[
    knob(
        "SNAPTAX_IMAGE",
        "NAME[:TAG|@DIGEST]",
        "server image, as in docker run [default: mysql:8.4]",
        |s, v| {
            image::check(v)?;
            s.image = v.into();
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_MYSQLD_OPTIONS",
        "OPTIONS",
        "further mysqld options, as in 'sync_binlog=0 innodb_doublewrite=OFF'",
        |s, v| {
            s.mysqld_options = v
                .split_whitespace()
                .map(|option| option.trim_start_matches('-').to_owned())
                .collect();
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_BUFFER_POOL",
        "SIZE",
        "InnoDB buffer pool, 5m or more",
        |s, v| {
            s.buffer_pool = Some(at_least(Size::mib(5), v)?);
            Ok(())
        },
    ),
    knob("SNAPTAX_ROWS", "N", "rows of the table, 101 or more", |s, v| {
        // The ranges of a transaction span 101 ids.
        s.rows = Some(number(v, 101..=u64::from(u32::MAX))?);
        Ok(())
    }),
    knob("SNAPTAX_THREADS", "N", "load threads, 1 to 1024", |s, v| {
        s.threads = Some(number(v, 1..=1024)? as u32);
        Ok(())
    }),
    knob("SNAPTAX_TIME", "SECONDS", "length of one window, 1 to 86400", |s, v| {
        s.time = Some(Duration::from_secs(number(v, 1..=86_400)?));
        Ok(())
    }),
    knob("SNAPTAX_SEED", "N", "seed of the load's random generators", |s, v| {
        s.seed = Some(number(v, 0..=u64::MAX)?);
        Ok(())
    }),
    knob(
        "SNAPTAX_VOLUME_SIZE",
        "SIZE",
        "size of the logical volume, 64m or more",
        |s, v| {
            s.volume_size = Some(at_least(Size::mib(64), v)?);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_SNAPSHOT_SIZE",
        "SIZE",
        "size of a thick snapshot's COW store, 4m or more",
        |s, v| {
            s.snapshot_size = Some(at_least(Size::mib(4), v)?);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_CHUNK_SIZE",
        "SIZE",
        "chunk size of a thick snapshot, a power of two from 4k to 512k",
        |s, v| {
            let size: Size = v.parse()?;
            if !size.as_bytes().is_power_of_two() || size < Size::kib(4) || size > Size::kib(512) {
                return Err("lvcreate takes a power of two from 4k to 512k".into());
            }
            s.chunk_size = Some(size);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_HALF_WIDTH",
        "PERCENT",
        "half-width of the throughput interval to aim at, 0.5 to 50",
        |s, v| {
            let percent: f64 = v
                .trim_end_matches('%')
                .trim()
                .parse()
                .map_err(|_| "not a number".to_owned())?;
            let half_width = percent / 100.0;
            if !(LEAST_HALF_WIDTH..=0.5).contains(&half_width) {
                return Err("use 0.5 to 50".into());
            }
            s.half_width = Some(half_width);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_RIGS",
        "N",
        "rigs that the rounds of one measurement are spread over, 1 to 100 [default: 1, or 6 for a half-width of 4 or less]",
        |s, v| {
            s.rigs = Some(number(v, 1..=100)? as usize);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_BUDGET",
        "MINUTES",
        "time for the rounds of one measurement, 1 to 1440; a second one has twice as much [default: 30, or 60 on several rigs]",
        |s, v| {
            s.budget = Some(Duration::from_secs(60 * number(v, 1..=1440)?));
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_WORK_DIR",
        DIRECTORY,
        "where the files of physical volumes lie [default: /var/tmp]",
        |s, v| {
            s.work_dir = v.into();
            if s.work_dir.is_absolute() {
                return Ok(());
            }
            Err("use an absolute path".into())
        },
    ),
    knob(
        "SNAPTAX_KEEP",
        "0|1",
        "whether volumes and server stay when an experiment ends, to be looked at [default: 0]",
        |s, v| {
            s.keep = one_of(v, &[("0", false), ("1", true)])?;
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_GATE",
        "fail|warn",
        "whether a failing verdict fails the test [default: fail]",
        |s, v| {
            s.gate = one_of(v, &[("fail", GateMode::Fail), ("warn", GateMode::Warn)])?;
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_BOUNDS",
        "keep|propose",
        "whether bounds are proposed after every valid measurement, and for another disk [default: keep]",
        |s, v| {
            s.bounds = one_of(v, &[("keep", BoundsMode::Keep), ("propose", BoundsMode::Propose)])?;
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_PROFILE",
        "NAME",
        "first part of the profile's name, for the machine and its disk [default: the host's name]",
        |s, v| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if v.is_empty() || v.len() > LONGEST_PROFILE || !v.chars().all(plain) {
                return Err(format!("use letters, digits, - and _, {LONGEST_PROFILE} at most"));
            }
            s.profile = Some(v.into());
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_OUTPUT",
        DIRECTORY,
        "where results are written [default: target/snaptax/native]",
        |s, v| {
            s.output = Some(v.into());
            Ok(())
        },
    ),
];

const fn knob(
    name: &'static str,
    value: &'static str,
    about: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
) -> Knob {
    Knob {
        name,
        value,
        about,
        set,
    }
}

/// It becomes part of a file's name, with the test's.
const LONGEST_PROFILE: usize = 64;

/// The form of a value that is a directory.
pub(super) const DIRECTORY: &str = "DIR";

/// How every name begins.
pub(super) const SETTINGS: &str = "SNAPTAX_";

/// Names that `cargo experiments` reads itself; its `--help` says what they are.
pub const HARNESS: &[&str] = &[
    "SNAPTAX_ACCEL",
    "SNAPTAX_CACHE",
    "SNAPTAX_DISK",
    "SNAPTAX_IOPS",
    "SNAPTAX_IO_SIZE",
    "SNAPTAX_MEMORY",
    "SNAPTAX_TIMEOUT",
];

/// Names that the parts of snaptax tell each other things by.
pub(super) const INTERNAL: &[&str] = &[
    "SNAPTAX_HOST_DELAY",
    "SNAPTAX_KILLS",
    "SNAPTAX_PLAN",
    "SNAPTAX_STARTED",
    "SNAPTAX_VERSIONS",
];

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number: u64 = text
        .parse()
        .map_err(|_| format!("not a whole number from {} to {}", range.start(), range.end()))?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(format!("use {} to {}", range.start(), range.end()))
}

fn at_least(minimum: Size, text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size >= minimum {
        return Ok(size);
    }
    Err(format!("use {minimum} or more"))
}

fn one_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        format!("use {}", names.join(" or "))
    })
}

/// What may have been meant by a name that is none.
pub(super) fn nearest(name: &str) -> String {
    let word = |name: &str| name.trim_start_matches(SETTINGS).to_ascii_uppercase();
    let asked = word(name);
    let known = KNOBS.iter().map(|knob| knob.name).chain(HARNESS.iter().copied());
    let near = known.filter_map(|known| Some((distance(&asked, &word(known))?, known)));
    near.min()
        .map_or(String::new(), |(_, known)| format!(" (did you mean {known}?)"))
}

/// How far two names are apart; a name that is a whole word of the other is near. `None` when they have nothing to do
/// with each other.
fn distance(asked: &str, known: &str) -> Option<usize> {
    let has_word = |long: &str, short: &str| short.len() >= 3 && format!("_{long}_").contains(&format!("_{short}_"));
    if has_word(known, asked) || has_word(asked, known) {
        return Some(1);
    }
    let distance = strsim::damerau_levenshtein(asked, known);
    (distance <= known.len() / 3 && distance < asked.len()).then_some(distance)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("SNAPTAX_ROW", "SNAPTAX_ROWS")]
    #[case("SNAPTAX_rows", "SNAPTAX_ROWS")]
    #[case("SNAPTAX_TABLE_ROWS", "SNAPTAX_ROWS")]
    #[case("SNAPTAX_VOLUME", "SNAPTAX_VOLUME_SIZE")]
    #[case("SNAPTAX_SNAPSHOT", "SNAPTAX_SNAPSHOT_SIZE")]
    #[case("SNAPTAX_POOL", "SNAPTAX_BUFFER_POOL")]
    #[case("SNAPTAX_BUFFER_POOL_SIZE", "SNAPTAX_BUFFER_POOL")]
    #[case("SNAPTAX_ACCELL", "SNAPTAX_ACCEL")]
    #[case("SNAPTAX_X", "")]
    #[case("SNAPTAX_", "")]
    #[case("SNAPTAX_PLANS", "")]
    fn what_was_meant_is_the_nearest_name_if_any_is_near(#[case] name: &str, #[case] meant: &str) {
        let suggested = nearest(name);
        let suggested = suggested.trim_start_matches(" (did you mean ").trim_end_matches("?)");
        assert_eq!(suggested, meant);
    }
}
