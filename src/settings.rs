//! Every knob: its `SNAPTAX_*` name, type, default and error.
//!
//! A setting given in the environment wins over the value in an experiment's code, so that the same
//! experiment runs at another scale. Sizes are in LVM's manner: `512m`, `10G`, `20 GiB`, always powers of
//! 1024. An unknown name is refused: a misspelt knob must not pass for a measurement at another scale.

mod image;
mod knob;
mod size;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use knob::{HARNESS, KNOBS, Knob};
pub use size::Size;

use crate::text;

/// The least half-width that may be aimed at, in the environment or in code.
pub(crate) const LEAST_HALF_WIDTH: f64 = 0.005;

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
    /// Rigs that a measurement is spread over.
    pub rigs: Option<usize>,
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

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value does not fit.
    #[error("{name}={}: {problem}", text::printable(value))]
    Value {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// No setting has this name.
    #[error(
        "{} is no setting of snaptax{}; `snaptax settings` lists them",
        text::printable(name),
        knob::nearest(name)
    )]
    Unknown {
        /// The name.
        name: String,
    },
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
            rigs: None,
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

impl Settings {
    /// Reads the settings from this process's environment.
    ///
    /// # Errors
    /// With every setting that is unknown or whose value does not fit.
    pub fn from_env() -> Result<Self, Vec<Error>> {
        let variables = std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        Self::from_variables(variables)
    }

    /// Reads the settings from these variables; names that do not begin with `SNAPTAX_` are passed over, and
    /// an empty value counts as not given.
    ///
    /// # Errors
    /// With every setting that is unknown or whose value does not fit.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, OsString)>) -> Result<Self, Vec<Error>> {
        let mut settings = Self::default();
        let mut errors = Vec::new();
        for (name, value) in variables {
            let elsewhere = [HARNESS, knob::INTERNAL].concat();
            if !name.starts_with(knob::SETTINGS) || elsewhere.contains(&name.as_str()) {
                continue;
            }
            let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
                errors.push(Error::Unknown { name });
                continue;
            };
            let Ok(value) = value.into_string().inspect_err(|value| {
                errors.push(Error::Value {
                    name: name.clone(),
                    value: value.to_string_lossy().into_owned(),
                    problem: "not UTF-8".into(),
                });
            }) else {
                continue;
            };
            if value.trim().is_empty() {
                continue;
            }
            // A directory's name may begin or end with a blank.
            let given = if knob.value == knob::DIRECTORY {
                &value
            } else {
                value.trim()
            };
            if let Err(problem) = (knob.set)(&mut settings, given) {
                errors.push(Error::Value { name, value, problem });
            }
        }
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(name: &str, value: &str) -> Result<Settings, Vec<Error>> {
        Settings::from_variables([(name.to_owned(), value.into())])
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
            .map(|(name, value)| (name.to_owned(), value.into())),
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
    #[case("SNAPTAX_RIGS", "0", "use 1 to 100")]
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
    fn a_directory_keeps_its_blanks_and_what_is_not_utf_8_is_refused() {
        assert_eq!(read("SNAPTAX_WORK_DIR", "/w ").unwrap().work_dir, PathBuf::from("/w "));
        let bytes = std::os::unix::ffi::OsStringExt::from_vec(b"/w\xff".to_vec());
        let errors = Settings::from_variables([("SNAPTAX_WORK_DIR".to_owned(), bytes)]).unwrap_err();
        assert!(errors[0].to_string().ends_with("not UTF-8"), "{}", errors[0]);
    }

    #[test]
    fn an_empty_value_counts_as_not_given() {
        assert_eq!(read("SNAPTAX_ROWS", "").unwrap(), Settings::default());
    }

    #[test]
    fn a_terminal_obeys_no_wrong_value() {
        let error = &read("SNAPTAX_ROWS", "\u{1b}[2J").unwrap_err()[0];
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let variables = [("SNAPTAX_ROWS", "0"), ("SNAPTAX_NOPE", "1"), ("PATH", "/bin")];
        let errors =
            Settings::from_variables(variables.map(|(name, value)| (name.to_owned(), value.into()))).unwrap_err();
        assert_eq!(errors.len(), 2);
    }
}
