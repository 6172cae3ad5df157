//! What an image is made of, so that one that was damaged afterwards is not taken for whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::plan;

/// The file with it, in the image's directory.
const FILE: &str = "seal.json";

/// What happens to an image once it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is only read.
    Read,
    /// Guests write to it; its files keep their size.
    Written,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Writes down what is in the directory, and makes sure that all of it is on the disk.
pub(super) fn write(directory: &Path, usage: Use) -> io::Result<()> {
    let mut parts = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let file = File::open(entry.path())?;
        file.sync_all()?;
        let part = Part {
            bytes: file.metadata()?.len(),
            sha256: (usage == Use::Read).then(|| sha256(file)).transpose()?,
        };
        parts.insert(entry.file_name().to_string_lossy().into_owned(), part);
    }
    plan::write(&directory.join(FILE), &parts)?;
    File::open(directory.join(FILE))?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// The first thing that is not as it was written down, if any.
pub(super) fn broken(directory: &Path) -> Option<String> {
    let parts: BTreeMap<String, Part> = match plan::read(&directory.join(FILE)) {
        Ok(parts) => parts,
        Err(error) => return Some(format!("{FILE}: {error}")),
    };
    parts.iter().find_map(|(name, part)| {
        let problem = match differs(&directory.join(name), part) {
            Ok(problem) => problem?.to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("{name}: {problem}"))
    })
}

fn differs(path: &Path, part: &Part) -> io::Result<Option<&'static str>> {
    let file = File::open(path)?;
    if file.metadata()?.len() != part.bytes {
        return Ok(Some("its size has changed"));
    }
    match &part.sha256 {
        Some(expected) if *expected != sha256(file)? => Ok(Some("its contents have changed")),
        _ => Ok(None),
    }
}

fn sha256(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole(Use::Read, |_: &Path| Ok(()), None)]
    #[case::cut_short(Use::Read, |path: &Path| fs::write(path, "ro"), Some("root: its size has changed"))]
    #[case::overwritten(Use::Read, |path: &Path| fs::write(path, "ROOT"), Some("root: its contents have changed"))]
    #[case::gone(Use::Read, |path: &Path| fs::remove_file(path), Some("root: No such file"))]
    #[case::written_by_a_guest(Use::Written, |path: &Path| fs::write(path, "ROOT"), None)]
    #[case::written_and_cut_short(Use::Written, |path: &Path| fs::write(path, ""), Some("root: its size has changed"))]
    fn damage_is_noticed(
        #[case] usage: Use,
        #[case] harm: impl FnOnce(&Path) -> io::Result<()>,
        #[case] expected: Option<&str>,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::write(&root, "root").unwrap();
        write(directory.path(), usage).unwrap();
        harm(&root).unwrap();
        let found = broken(directory.path());
        match expected {
            Some(expected) => assert!(found.unwrap().starts_with(expected)),
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn an_image_without_a_seal_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        assert!(broken(directory.path()).unwrap().starts_with("seal.json: "));
    }
}
