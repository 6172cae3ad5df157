//! What a guest sends back: a tar with `output/...`, for the run's directory, and `workspace/...`, changed
//! snapshot files. What comes from a guest is not trusted to stay where it belongs.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Endings of the files that may be written into the workspace.
const SNAPSHOT_FILES: &[&str] = &[".snap", ".snap.new", ".pending-snap"];

/// Puts what was sent back in place, and returns the snapshot files it wrote.
///
/// # Errors
/// When the tar is damaged, an entry points elsewhere, or writing fails.
pub(crate) fn unpack(archive: impl Read, output: &Path, workspace: &Path) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        let name = entry.path()?.into_owned();
        let (root, relative) = placed(&name, output, workspace).ok_or_else(|| refused(&name))?;
        if !kind.is_file() {
            return Err(refused(&name));
        }
        let path = inside(root, &relative)?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        fs::write(&path, content)?;
        if root == workspace {
            written.push(path);
        }
    }
    Ok(written)
}

fn refused(name: &Path) -> io::Error {
    io::Error::other(format!("the guest sent {}, which does not belong here", name.display()))
}

/// The root an entry belongs to, and its path under it.
fn placed<'a>(name: &Path, output: &'a Path, workspace: &'a Path) -> Option<(&'a Path, PathBuf)> {
    let mut components = name.components();
    let first = components.next()?;
    let relative = components.as_path();
    let stays = relative
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if !stays || relative.as_os_str().is_empty() {
        return None;
    }
    if first == Component::Normal(OsStr::new("output")) {
        return Some((output, relative.to_owned()));
    }
    let file = relative.file_name()?.to_str()?;
    let is_snapshot = SNAPSHOT_FILES.iter().any(|ending| file.ends_with(ending));
    (first == Component::Normal(OsStr::new("workspace")) && is_snapshot).then(|| (workspace, relative.to_owned()))
}

/// The path under `root`, its directories made; refused when a link leads out of the root.
fn inside(root: &Path, relative: &Path) -> io::Result<PathBuf> {
    let root = fs::canonicalize(root)?;
    let path = root.join(relative);
    let parent = path.parent().unwrap_or(&root);
    let existing = parent.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&root);
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    if !fs::canonicalize(existing)?.starts_with(&root) || is_link {
        return Err(refused(relative));
    }
    fs::create_dir_all(parent)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn tar_with(name: &str, data: &[u8]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        // The safe way to set a name refuses what is to be tested.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, data).unwrap();
        tar.into_inner().unwrap()
    }

    fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (output, workspace) = (directory.path().join("run"), directory.path().join("project"));
        fs::create_dir_all(&output).unwrap();
        fs::create_dir_all(&workspace).unwrap();
        (directory, output, workspace)
    }

    #[rstest]
    #[case("output/results.json", "run/results.json")]
    #[case(
        "workspace/tests/snapshots/oltp@tcg.snap.new",
        "project/tests/snapshots/oltp@tcg.snap.new"
    )]
    #[case("workspace/tests/.thick.rs.pending-snap", "project/tests/.thick.rs.pending-snap")]
    fn files_are_put_where_they_belong(#[case] name: &str, #[case] place: &str) {
        let (directory, output, workspace) = directories();
        let written = unpack(tar_with(name, b"[]").as_slice(), &output, &workspace).unwrap();
        assert_eq!(fs::read(directory.path().join(place)).unwrap(), b"[]");
        assert_eq!(written.len(), usize::from(place.starts_with("project")));
    }

    #[rstest]
    #[case("output/../../x.snap")]
    #[case("workspace/../x.snap")]
    #[case("/workspace/x.snap")]
    #[case("workspace/src/lib.rs")]
    #[case("workspace/x.snap/../../../y.snap")]
    #[case("elsewhere/x.snap")]
    #[case("output")]
    fn entries_that_lead_elsewhere_are_refused(#[case] name: &str) {
        let (directory, output, workspace) = directories();
        let error = unpack(tar_with(name, b"x").as_slice(), &output, &workspace).unwrap_err();
        assert!(error.to_string().contains("does not belong here"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_in_the_workspace_is_not_followed_out_of_it() {
        let (directory, output, workspace) = directories();
        std::os::unix::fs::symlink(directory.path(), workspace.join("tests")).unwrap();
        let tar = tar_with("workspace/tests/x.snap", b"x");
        assert!(unpack(tar.as_slice(), &output, &workspace).is_err());
        assert!(!directory.path().join("x.snap").exists());
    }
}
