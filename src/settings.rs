//! Every knob: its `SNAPTAX_*` name, type, default and error.
//!
//! A setting given in the environment wins over the value in an experiment's code, so that the same
//! experiment runs at another scale. Sizes are in LVM's manner: `512m`, `10G`, `20 GiB`, always powers of
//! 1024. An unknown name is refused: a misspelt knob must not pass for a measurement at another scale.

mod size;

use std::path::PathBuf;
use std::time::Duration;

pub use size::Size;

/// What the gate does with a failing verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GateMode {
    /// Fails the test.
    #[default]
    Fail,
    /// Reports it and lets the test pass.
    Warn,
}

/// When bounds are proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BoundsMode {
    /// Only for a profile that has none, and when a verdict is `Worse`.
    #[default]
    Keep,
    /// After every valid measurement.
    Propose,
}

/// The settings of a run. `None` where the experiment's own value, or a default that depends on it, holds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Server image, as in `docker run`.
    pub image: String,
    /// Further `mysqld` options, without the leading dashes.
    pub mysqld_options: Vec<String>,
    /// Buffer pool.
    pub buffer_pool: Option<Size>,
    /// Rows of the table.
    pub rows: Option<u64>,
    /// Load threads.
    pub threads: Option<u32>,
    /// Length of a window.
    pub time: Option<Duration>,
    /// Seed of the load's generators.
    pub seed: Option<u64>,
    /// Size of the origin.
    pub volume_size: Option<Size>,
    /// Size of the COW store.
    pub snapshot_size: Option<Size>,
    /// Chunk size of a snapshot.
    pub chunk_size: Option<Size>,
    /// Half-width aimed at, as a fraction.
    pub half_width: Option<f64>,
    /// Time that measuring may take.
    pub budget: Option<Duration>,
    /// Where the files of physical volumes lie.
    pub work_dir: PathBuf,
    /// Whether everything stays when an experiment ends.
    pub keep: bool,
    /// What a failing verdict does.
    pub gate: GateMode,
    /// When bounds are proposed.
    pub bounds: BoundsMode,
    /// First part of the profile's name: the machine and its disk.
    pub profile: Option<String>,
    /// Where results are written.
    pub output: Option<PathBuf>,
}

/// One knob, as listed by `snaptax settings`.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name in the environment.
    pub name: &'static str,
    /// The form of its value.
    pub value: &'static str,
    /// What it does, with its default.
    pub about: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value does not fit.
    #[error("{name}={value}: {problem}")]
    Value {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// No setting has this name.
    #[error("{name} is no setting of snaptax{}; `snaptax settings` lists them", nearest(name))]
    Unknown {
        /// The name.
        name: String,
    },
}

/// The knobs of the library.
pub const KNOBS: &[Knob] = &[
    knob(
        "SNAPTAX_IMAGE",
        "NAME[:TAG]",
        "server image, as in docker run [default: mysql:8.4]",
        |s, v| {
            if v.chars().any(char::is_whitespace) {
                return Err("an image's name has no blanks, as in mysql:8.4".into());
            }
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
            if !(0.5..=50.0).contains(&percent) {
                return Err("use 0.5 to 50".into());
            }
            s.half_width = Some(percent / 100.0);
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_BUDGET",
        "MINUTES",
        "time that measuring one experiment may take, 1 to 1440",
        |s, v| {
            s.budget = Some(Duration::from_secs(60 * number(v, 1..=1440)?));
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_WORK_DIR",
        "DIR",
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
        "whether bounds are proposed after every valid measurement [default: keep]",
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
            if v.is_empty() || !v.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                return Err("use letters, digits, - and _".into());
            }
            s.profile = Some(v.into());
            Ok(())
        },
    ),
    knob(
        "SNAPTAX_OUTPUT",
        "DIR",
        "where results are written [default: target/snaptax/latest]",
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: "mysql:8.4".into(),
            mysqld_options: Vec::new(),
            buffer_pool: None,
            rows: None,
            threads: None,
            time: None,
            seed: None,
            volume_size: None,
            snapshot_size: None,
            chunk_size: None,
            half_width: None,
            budget: None,
            work_dir: "/var/tmp".into(),
            keep: false,
            gate: GateMode::default(),
            bounds: BoundsMode::default(),
            profile: None,
            output: None,
        }
    }
}

/// `SNAPTAX_*` names that other parts of snaptax read: the harness's own, and what it hands to a guest.
pub const OTHER_NAMES: &[&str] = &[
    "SNAPTAX_ACCEL",
    "SNAPTAX_CACHE",
    "SNAPTAX_DISK",
    "SNAPTAX_IOPS",
    "SNAPTAX_MEMORY",
    "SNAPTAX_PLAN",
    "SNAPTAX_STARTED",
    "SNAPTAX_TIMEOUT",
    "SNAPTAX_VERSIONS",
];

impl Settings {
    /// Reads the settings from this process's environment.
    ///
    /// # Errors
    /// With every setting that is unknown or whose value does not fit.
    pub fn from_env() -> Result<Self, Vec<Error>> {
        let variables = std::env::vars_os().map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        });
        Self::from_variables(variables)
    }

    /// Reads the settings from these variables; names that do not begin with `SNAPTAX_` are passed over, and
    /// an empty value counts as not given.
    ///
    /// # Errors
    /// With every setting that is unknown or whose value does not fit.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, Vec<Error>> {
        let mut settings = Self::default();
        let mut errors = Vec::new();
        for (name, value) in variables {
            if !name.starts_with("SNAPTAX_") || OTHER_NAMES.contains(&name.as_str()) {
                continue;
            }
            let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
                errors.push(Error::Unknown { name });
                continue;
            };
            if value.trim().is_empty() {
                continue;
            }
            if let Err(problem) = (knob.set)(&mut settings, value.trim()) {
                errors.push(Error::Value { name, value, problem });
            }
        }
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }
}

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

fn nearest(name: &str) -> String {
    KNOBS
        .iter()
        .map(|knob| knob.name)
        .chain(OTHER_NAMES.iter().copied())
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 4)
        .map(|(_, known)| format!(" (did you mean {known}?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(name: &str, value: &str) -> Result<Settings, Vec<Error>> {
        Settings::from_variables([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn the_seeds_own_scale_can_be_set() {
        let settings = Settings::from_variables(
            [
                ("SNAPTAX_ROWS", "10000000"),
                ("SNAPTAX_TIME", "600"),
                ("SNAPTAX_VOLUME_SIZE", "20g"),
                ("SNAPTAX_SNAPSHOT_SIZE", "10g"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
        .unwrap();
        assert_eq!(settings.rows, Some(10_000_000));
        assert_eq!(settings.time, Some(Duration::from_secs(600)));
        assert_eq!(settings.volume_size, Some(Size::gib(20)));
        assert_eq!(settings.snapshot_size, Some(Size::gib(10)));
    }

    #[rstest]
    #[case("SNAPTAX_ROWS", "0", "use 101 to")]
    #[case("SNAPTAX_ROWS", "many", "not a whole number")]
    #[case("SNAPTAX_THREADS", "0", "use 1 to 1024")]
    #[case("SNAPTAX_CHUNK_SIZE", "5k", "power of two")]
    #[case("SNAPTAX_CHUNK_SIZE", "1m", "power of two")]
    #[case("SNAPTAX_SNAPSHOT_SIZE", "big", "such as 512m")]
    #[case("SNAPTAX_HALF_WIDTH", "NaN", "use 0.5 to 50")]
    #[case("SNAPTAX_WORK_DIR", "data", "absolute")]
    #[case("SNAPTAX_GATE", "off", "use fail or warn")]
    fn a_value_that_does_not_fit_is_refused_with_what_would(
        #[case] name: &str,
        #[case] value: &str,
        #[case] hint: &str,
    ) {
        let errors = read(name, value).unwrap_err();
        let message = errors[0].to_string();
        assert!(
            message.starts_with(&format!("{name}={value}: ")) && message.contains(hint),
            "{message}"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_known_one() {
        let message = read("SNAPTAX_ROW", "5000").unwrap_err()[0].to_string();
        assert!(message.contains("did you mean SNAPTAX_ROWS?"), "{message}");
    }

    #[test]
    fn an_empty_value_counts_as_not_given() {
        assert_eq!(read("SNAPTAX_ROWS", "").unwrap(), Settings::default());
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let variables = [("SNAPTAX_ROWS", "0"), ("SNAPTAX_NOPE", "1"), ("PATH", "/bin")];
        let errors =
            Settings::from_variables(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap_err();
        assert_eq!(errors.len(), 2);
    }
}
