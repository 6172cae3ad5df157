//! What a guest is to do: a tar, handed over as the content of a disk.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code of a job that the guest ended because it took too long; timeout(1) chose it.
pub(crate) const TIMED_OUT: i32 = 124;
/// The exit code when the job did not care and was killed.
pub(crate) const KILLED: i32 = 137;

/// A program to run in the guest, with its surroundings.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// A shell script; its exit status is the job's.
    pub(crate) script: Vec<u8>,
    /// Files to put into the guest: from here, to there.
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
    /// Directory whose changed snapshot files come back.
    pub(crate) workspace: PathBuf,
    /// Variables for Docker's daemon, such as a proxy's address.
    pub(crate) daemon_env: Vec<(OsString, OsString)>,
}

impl Job {
    /// Writes the tar of a job that may take this long.
    ///
    /// # Errors
    /// When a file cannot be read or the tar not be written.
    pub(crate) fn write(&self, path: &Path, timeout: Duration) -> io::Result<()> {
        let mut tar = tar::Builder::new(BufWriter::new(File::create(path)?));
        add(&mut tar, "snaptax/job/run", &self.script)?;
        add(&mut tar, "snaptax/job/workspace", self.workspace.as_os_str().as_bytes())?;
        add(
            &mut tar,
            "snaptax/job/timeout",
            timeout.as_secs().to_string().as_bytes(),
        )?;
        add(&mut tar, "snaptax/job/proxy", &exports(&self.daemon_env))?;
        for (from, to) in &self.files {
            tar.append_path_with_name(from, to.strip_prefix("/").unwrap_or(to))
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
        }
        tar.into_inner()?.flush()
    }
}

fn add(tar: &mut tar::Builder<impl Write>, name: &str, data: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    tar.append_data(&mut header, name, data)
}

/// Lines of shell that set and export these variables; names that a shell cannot have are left out.
pub(crate) fn exports(variables: &[(OsString, OsString)]) -> Vec<u8> {
    let mut script = Vec::new();
    for (name, value) in variables {
        let bytes = name.as_bytes();
        let valid = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            && bytes.first().is_some_and(|byte| !byte.is_ascii_digit());
        if valid {
            script.extend_from_slice(b"export ");
            script.extend_from_slice(bytes);
            script.push(b'=');
            script.extend_from_slice(&quoted(value));
            script.push(b'\n');
        }
    }
    script
}

/// A word for a shell.
pub(crate) fn quoted(word: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend_from_slice(br"'\''"),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use snaptax::command::Command;

    #[test]
    fn a_shell_reads_back_what_was_exported() {
        let value = "it's \"$HOME\" `x`\n\\ end";
        let variables = [("SNAPTAX_X".into(), value.into()), ("not-a-name".into(), "x".into())];
        let mut script = exports(&variables);
        script.extend_from_slice(b"printf %s \"$SNAPTAX_X\"");
        let output = Command::new("sh").arg("-s").input(script).run().unwrap();
        assert_eq!(output.stdout, value);
    }

    #[test]
    fn a_job_is_a_tar_of_whole_sectors_with_its_files_at_their_places() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.tar");
        let job = Job {
            script: b"true".to_vec(),
            files: vec![("/proc/self/exe".into(), "/snaptax/job/experiments".into())],
            workspace: "/home/me/project".into(),
            ..Job::default()
        };
        // A link is followed: the program itself goes in.
        job.write(&path, Duration::from_secs(60)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len() % 512, 0);
        let mut archive = tar::Archive::new(File::open(&path).unwrap());
        let names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into_owned())
            .collect();
        let expected = [
            "snaptax/job/run",
            "snaptax/job/workspace",
            "snaptax/job/timeout",
            "snaptax/job/proxy",
            "snaptax/job/experiments",
        ];
        assert_eq!(names, expected.map(PathBuf::from));
    }
}
