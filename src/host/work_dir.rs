use std::ops::ControlFlow;
use std::path::Path;

use crate::host::{Finding, Reason};
use crate::settings::{Settings, Size};
use crate::storage::{self, BackingFile, Error, RunDirectory, group_size};

/// What the smallest useful experiment takes.
const LEAST: Size = Size::gib(2);

pub(super) fn survey(settings: &Settings) -> Vec<Finding> {
    let directory = &settings.work_dir;
    let free = match free_space(directory) {
        Ok(free) => free,
        Err(reason) => return vec![Finding::Missing(reason)],
    };
    vec![
        enough(directory, free, needed(settings)).into(),
        direct_io(directory).into(),
    ]
}

fn elsewhere(directory: &Path) -> String {
    format!(
        "set SNAPTAX_WORK_DIR, now {}, to a directory on ext4 or xfs on a disk",
        directory.display()
    )
}

fn free_space(directory: &Path) -> Result<Size, Reason> {
    storage::free_space(directory).map_err(|error| {
        Reason::new(
            format!("the work directory {} cannot be used: {error}", directory.display()),
            elsewhere(directory),
        )
    })
}

/// The group that an experiment makes, as far as settings give its size: the volume's is otherwise in its code.
fn needed(settings: &Settings) -> Size {
    match (settings.volume_size, settings.snapshot_size) {
        (Some(volume), snapshot) => group_size(volume, snapshot),
        (None, Some(snapshot)) => LEAST.max(group_size(Size::bytes(0), Some(snapshot))),
        (None, None) => LEAST,
    }
}

fn enough(directory: &Path, free: Size, needed: Size) -> Result<String, Reason> {
    let gib = |size: Size| format!("{:.1} GiB", size.as_bytes() as f64 / Size::gib(1).as_bytes() as f64);
    let (place, free_gib, needed_gib) = (directory.display(), gib(free), gib(needed));
    if free >= needed {
        return Ok(format!("{place} has {free_gib} free, {needed_gib} are needed"));
    }
    Err(Reason::new(
        format!("the work directory {place} has {free_gib} free, {needed_gib} are needed"),
        format!("make room, or {}", elsewhere(directory)),
    ))
}

/// Writes a small file as an experiment writes its large one.
fn direct_io(directory: &Path) -> Result<String, Reason> {
    // In a run's directory, which a sweep knows, should this be killed.
    let written = RunDirectory::create(directory).and_then(|run| {
        let path = run.path().join("probe.pv");
        BackingFile::write(path, Size::mib(4), &mut |_| ControlFlow::Continue(()))
            .and_then(BackingFile::remove)
            .and_then(|()| run.remove())
    });
    match written {
        Ok(()) => Ok(format!("{} takes direct I/O", directory.display())),
        Err(error @ (Error::DirectIoOff { .. } | Error::Sparse { .. })) => {
            Err(Reason::new(error.to_string(), elsewhere(directory)))
        }
        Err(error) => Err(Reason::new(
            format!("the work directory {} cannot be used: {error}", directory.display()),
            elsewhere(directory),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn settings(volume: Option<Size>, snapshot: Option<Size>) -> Settings {
        Settings {
            volume_size: volume,
            snapshot_size: snapshot,
            ..Settings::default()
        }
    }

    #[rstest]
    #[case(None, None, LEAST)]
    #[case(None, Some(Size::mib(4)), LEAST)]
    #[case(None, Some(Size::gib(9)), group_size(Size::bytes(0), Some(Size::gib(9))))]
    #[case(Some(Size::gib(20)), Some(Size::gib(10)), Size::mib(30 * 1024 + 80 + 16))]
    #[case(Some(Size::gib(1)), None, Size::mib(2 * 1024 + 8 + 16))]
    fn the_space_needed_follows_the_settings(
        #[case] volume: Option<Size>,
        #[case] snapshot: Option<Size>,
        #[case] size: Size,
    ) {
        assert_eq!(needed(&settings(volume, snapshot)), size);
    }

    #[test]
    fn too_little_space_is_told_in_numbers() {
        let reason = enough(Path::new("/w"), Size::mib(512), Size::gib(30)).unwrap_err();
        assert!(reason.what.contains("0.5 GiB free, 30.0 GiB are needed"), "{reason}");
        assert!(reason.fix.contains("SNAPTAX_WORK_DIR"), "{reason}");
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        direct_io(directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
