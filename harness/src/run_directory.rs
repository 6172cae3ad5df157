//! Where a run's files are kept: `target/snaptax/runs/<time>`, the newest also as `target/snaptax/latest`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many runs are kept.
const KEPT: usize = 10;

/// Makes the directory of a new run, lets `latest` point to it, and removes old ones.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn create(base: &Path) -> io::Result<PathBuf> {
    let runs = base.join("runs");
    fs::create_dir_all(&runs)?;
    let path = fresh(&runs, &jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string())?;
    link(base, &path)?;
    remove_old(&runs);
    Ok(path)
}

/// Removes the directory of a run that wrote nothing, and lets `latest` point to the one before it again.
pub(crate) fn abandon(base: &Path, run: &Path) {
    // What was written, a console's log perhaps, is to be looked at.
    if fs::remove_dir(run).is_err() {
        return;
    }
    let _ = match of_runs(&base.join("runs")).pop() {
        Some(before) => link(base, &before),
        None => fs::remove_file(base.join("latest")),
    };
}

fn link(base: &Path, run: &Path) -> io::Result<()> {
    let new_link = base.join(format!(".latest-{}", std::process::id()));
    let _ = fs::remove_file(&new_link);
    std::os::unix::fs::symlink(Path::new("runs").join(run.file_name().unwrap_or_default()), &new_link)?;
    fs::rename(&new_link, base.join("latest"))
}

fn fresh(runs: &Path, time: &str) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let name = if number == 1 {
            time.to_owned()
        } else {
            format!("{time}-{number}")
        };
        let path = runs.join(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// What cannot be removed stays; it is tried again at the next run.
fn remove_old(runs: &Path) {
    for path in of_runs(runs).iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(path);
    }
}

/// The directories of runs, the oldest first.
fn of_runs(runs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| is_run(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// Whether a name has the shape of those that [`create`] gives: `20250112T093000Z`, `20250112T093000Z-2`.
fn is_run(name: &str) -> bool {
    let (time, number) = name.split_once('-').unwrap_or((name, "2"));
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "00000000T000000Z" && number.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_runs_are_kept_and_the_newest_is_latest() {
        let directory = tempfile::tempdir().unwrap();
        for day in 10..30 {
            fs::create_dir_all(directory.path().join(format!("runs/202501{day}T000000Z"))).unwrap();
        }
        let others =
            ["notes", "20250101", "20250101T000000Z-mine"].map(|name| directory.path().join("runs").join(name));
        others.iter().for_each(|path| fs::create_dir(path).unwrap());
        let file = directory.path().join("runs/20250101T000000Z");
        fs::write(&file, "stray").unwrap();
        let path = create(directory.path()).unwrap();
        assert!(file.exists() && others.iter().all(|path| path.exists()));
        let count = fs::read_dir(directory.path().join("runs")).unwrap().count();
        assert_eq!(count, KEPT + 4);
        let latest = fs::canonicalize(directory.path().join("latest")).unwrap();
        assert_eq!(latest, fs::canonicalize(&path).unwrap());
        let second = create(directory.path()).unwrap();
        assert_ne!(second, path);
    }

    #[test]
    fn a_run_that_wrote_nothing_leaves_the_one_before_it_the_latest() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let latest = || fs::canonicalize(base.join("latest")).ok();
        let first = create(base).unwrap();
        fs::write(first.join("results.json"), "[]").unwrap();
        let second = create(base).unwrap();
        abandon(base, &second);
        assert!(!second.exists() && latest() == fs::canonicalize(&first).ok());
        abandon(base, &first);
        assert!(first.join("results.json").exists() && latest().is_some());
    }
}
