//! Starting programs, the only place that does: C locale, no terminal, a deadline, a typed error.
//!
//! ```
//! use snaptax::command::Command;
//!
//! let output = Command::new("echo").arg("4096").run()?;
//! assert_eq!(output.stdout.trim(), "4096");
//! # Ok::<(), snaptax::command::Error>(())
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program may take when nothing else is said.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(120);

/// How long a killed program may take to go: one that waits for a suspended disk only does when that resumes.
const KILL_DEADLINE: Duration = Duration::from_secs(2);

/// How long a stopped program and its children may take to tidy up before they are killed.
const STOP_DEADLINE: Duration = Duration::from_secs(8);

/// How long output may be read after the program's end: what it left running may keep its pipes open.
const OUTPUT_DEADLINE: Duration = Duration::from_secs(1);

/// A program with its arguments, not yet started.
#[derive(Debug, Clone)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    directory: Option<PathBuf>,
    deadline: Duration,
}

/// What a program printed, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

/// Why a program did not do what it was started for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not installed.
    #[error("{program} is not installed or not in PATH")]
    NotFound {
        /// The program's name.
        program: String,
    },
    /// The program could not be started, or its pipes broke.
    #[error("cannot run `{command}`: {source}")]
    Start {
        /// The whole command line.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// The program ended with another status than 0.
    #[error("`{command}` ended with {status}{}", said(stderr))]
    Failed {
        /// The whole command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Its standard error.
        stderr: String,
    },
    /// It was asked to end while the program ran; the program was terminated.
    #[error("`{command}` was stopped")]
    Stopped {
        /// The whole command line.
        command: String,
    },
    /// The program did not end in time; it and its children were killed. Those that wait for a suspended disk or
    /// a frozen filesystem may only go when it comes back.
    #[error("`{command}` did not end within {} s and was killed{}", deadline.as_secs(), said(stderr))]
    Deadline {
        /// The whole command line.
        command: String,
        /// The time it had.
        deadline: Duration,
        /// Its standard error up to then.
        stderr: String,
    },
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(":\n  {}", text.replace('\n', "\n  ")),
    }
}

impl Command {
    /// A command that starts `program` without arguments.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            input: None,
            directory: None,
            deadline: DEFAULT_DEADLINE,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Gives the program this as standard input; without it, it reads nothing.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Starts the program in this directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// How long the program may take, [`DEFAULT_DEADLINE`] unless said. Neither a program that cannot be killed
    /// nor one that left others running is waited for more than 3 s longer.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// When it is missing, cannot be started, misses its deadline, or ends with another status than 0.
    pub fn run(&self) -> Result<Output, Error> {
        self.run_unless(|| false)
    }

    /// Runs the program to its end, unless something stops it meanwhile. A stopped program gets SIGTERM, with its
    /// children, and 8 s for it before it is killed.
    ///
    /// # Errors
    /// As [`Self::run`], and when it was stopped.
    pub fn run_unless(&self, stopped: impl Fn() -> bool) -> Result<Output, Error> {
        let output = self.output_unless(&stopped)?;
        if output.status.success() {
            return Ok(output);
        }
        Err(Error::Failed {
            command: self.to_string(),
            status: output.status,
            stderr: if output.stderr.trim().is_empty() {
                output.stdout
            } else {
                output.stderr
            },
        })
    }

    /// Runs the program to its end, whatever its status. Of what it leaves running, the output is read for 1 s.
    ///
    /// # Errors
    /// When it is missing, cannot be started, or misses its deadline.
    pub fn output(&self) -> Result<Output, Error> {
        self.output_unless(&|| false)
    }

    fn output_unless(&self, stopped: &dyn Fn() -> bool) -> Result<Output, Error> {
        let mut child = self.spawn()?;
        if let Some((bytes, mut pipe)) = self.input.clone().zip(child.stdin.take()) {
            // A program may end without reading its input: a broken pipe here is no error.
            thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = child.stdout.take().map(Reader::start);
        let stderr = child.stderr.take().map(Reader::start);

        let ended = wait_until(&mut child, Instant::now() + self.deadline, stopped);
        if matches!(ended, Ok(Waited::Stopped)) {
            signal_group(&child, Signal::TERM);
            drop(wait_until(&mut child, Instant::now() + STOP_DEADLINE, &|| false));
        }
        if !matches!(ended, Ok(Waited::Ended(_))) {
            signal_group(&child, Signal::KILL);
            drop(wait_until(&mut child, Instant::now() + KILL_DEADLINE, &|| false));
        }
        let end = Instant::now() + OUTPUT_DEADLINE;
        let [stdout, stderr] = [stdout, stderr].map(|reader| reader.map(|reader| reader.text(end)).unwrap_or_default());
        match ended {
            Ok(Waited::Ended(status)) => Ok(Output { status, stdout, stderr }),
            Ok(Waited::Stopped) => Err(Error::Stopped {
                command: self.to_string(),
            }),
            Ok(Waited::Deadline) => Err(Error::Deadline {
                command: self.to_string(),
                deadline: self.deadline,
                stderr,
            }),
            Err(source) => Err(self.start_error(source)),
        }
    }

    fn spawn(&self) -> Result<Child, Error> {
        let mut command = std::process::Command::new(&self.program);
        command
            .args(&self.args)
            .env("LC_ALL", "C")
            .env_remove("LANGUAGE")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(if self.input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.spawn().map_err(|source| self.start_error(source))
    }

    fn start_error(&self, source: io::Error) -> Error {
        let directory_exists = self.directory.as_ref().is_none_or(|path| path.is_dir());
        if source.kind() == io::ErrorKind::NotFound && directory_exists {
            return Error::NotFound {
                program: self.program.to_string_lossy().into_owned(),
            };
        }
        Error::Start {
            command: self.to_string(),
            source,
        }
    }
}

impl fmt::Display for Command {
    /// The command line as one would type it, quoted where a shell needs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What ended a wait.
enum Waited {
    Ended(ExitStatus),
    Stopped,
    Deadline,
}

fn wait_until(child: &mut Child, end: Instant, stopped: &dyn Fn() -> bool) -> io::Result<Waited> {
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Waited::Ended(status));
        }
        if stopped() {
            return Ok(Waited::Stopped);
        }
        if Instant::now() >= end {
            return Ok(Waited::Deadline);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// Reads a pipe in a thread of its own, so that what came can be had while the pipe is still open.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn start<P: Read + Send + 'static>(mut pipe: P) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => {
                        let mut bytes = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        bytes.extend_from_slice(&buffer[..length]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        Self { bytes, thread }
    }

    /// What was read up to the pipe's end, or up to `end` when others keep it open.
    fn text(self, end: Instant) -> String {
        while !self.thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests;
