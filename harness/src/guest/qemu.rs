//! QEMU's command line, and QEMU as a child that never outlives its guard.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use serde::{Deserialize, Serialize};

use crate::image::initramfs::Kernel;

/// How the guest's processors run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Accelerator {
    /// Emulated.
    Tcg,
    /// On the host's, through /dev/kvm.
    Kvm,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        })
    }
}

/// The virtual machine.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// How its processors run.
    pub(crate) accelerator: Accelerator,
    /// How many there are.
    pub(crate) processors: usize,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
}

/// A disk of the guest, which finds it by its serial.
#[derive(Debug, Clone)]
pub(crate) struct Drive {
    /// `root`, `docker`, `job`, `measured`, `import`.
    pub(crate) serial: &'static str,
    /// The image.
    pub(crate) path: PathBuf,
    /// How the image is written.
    pub(crate) format: Format,
    /// Whether the guest may not write to it.
    pub(crate) read_only: bool,
    /// What it is limited to.
    pub(crate) throttle: Option<Throttle>,
}

/// A limit of a disk.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Throttle {
    /// Requests per second, reads and writes together.
    pub(crate) iops: u32,
    /// Bytes of one; `None` where size does not matter.
    pub(crate) io_size: Option<u64>,
}

/// Formats of disk images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// As it is.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl Drive {
    /// A disk that is only read.
    pub(crate) fn read_only(serial: &'static str, path: impl Into<PathBuf>) -> Self {
        Self {
            serial,
            path: path.into(),
            format: Format::Raw,
            read_only: true,
            throttle: None,
        }
    }

    fn args(&self) -> [OsString; 4] {
        let format = match self.format {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        };
        let mut drive = OsString::from(format!("if=none,id={},format={format},cache=unsafe", self.serial));
        if self.read_only {
            drive.push(",readonly=on");
        } else {
            // Unless told so, QEMU stops the whole guest when the host's disk is full, and says nothing.
            drive.push(",werror=report");
        }
        if let Some(Throttle { iops, io_size }) = self.throttle {
            drive.push(format!(",throttling.iops-total={iops}"));
            if let Some(bytes) = io_size {
                drive.push(format!(",throttling.iops-size={bytes}"));
            }
        }
        drive.push(",file=");
        drive.push(escaped(&self.path));
        let device = format!("virtio-blk-pci,drive={0},serial={0}", self.serial);
        ["-drive".into(), drive, "-device".into(), device.into()]
    }
}

/// A virtio-serial port.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    /// The port's name.
    pub(crate) name: &'static str,
    /// What the host has at the other end.
    pub(crate) end: End,
    /// Where that is.
    pub(crate) path: PathBuf,
}

/// The host's end of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A file that the guest writes to.
    File,
    /// Two named pipes: `path.in`, from which the guest reads, and `path.out`.
    Pipe,
}

const QEMU: &str = "qemu-system-x86_64";

/// The harness may end before the kernel knows that its end is to be told.
const UNLESS_ALONE: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// One boot's command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    args: Vec<OsString>,
}

impl CommandLine {
    /// Puts a command line together.
    pub(crate) fn new(
        machine: &Machine,
        kernel: &Kernel,
        arguments: &[&str],
        drives: &[Drive],
        ports: &[Port],
        console: &Path,
    ) -> Self {
        let mut args: Vec<OsString> = vec![QEMU.into()];
        let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
        match machine.accelerator {
            Accelerator::Tcg => add(&["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max"]),
            Accelerator::Kvm => add(&["-accel", "kvm", "-cpu", "host"]),
        }
        add(&["-machine", "q35", "-smp", &machine.processors.to_string()]);
        add(&["-m", &format!("{}M", machine.memory_mib)]);
        add(&[
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-rtc",
            "base=utc",
        ]);
        add(&["-device", "virtio-rng-pci"]);
        let append = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 {}",
            arguments.join(" ")
        );
        add(&["-append", append.trim_end()]);
        if arguments.contains(&super::NETWORK) {
            // No option ROM: nothing boots from the network.
            add(&[
                "-netdev",
                "user,id=net",
                "-device",
                "virtio-net-pci,netdev=net,romfile=",
            ]);
        } else {
            add(&["-nic", "none"]);
        }
        add(&["-device", "virtio-serial-pci"]);
        args.extend(["-kernel".into(), kernel.vmlinuz.clone().into_os_string()]);
        args.extend(["-initrd".into(), kernel.initramfs.clone().into_os_string()]);
        for drive in drives {
            args.extend(drive.args());
        }
        for port in ports {
            let end = match port.end {
                End::File => "file",
                End::Pipe => "pipe",
            };
            let mut chardev = OsString::from(format!("{end},id={},path=", port.name));
            chardev.push(escaped(&port.path));
            let device = format!("virtserialport,chardev={0},name={0}", port.name);
            args.extend(["-chardev".into(), chardev, "-device".into(), device.into()]);
        }
        let mut serial = OsString::from("file:");
        serial.push(console);
        args.extend(["-serial".into(), serial]);
        Self { args }
    }

    /// Starts QEMU; its errors go to `errors`.
    ///
    /// Call it from the main thread: the kernel kills QEMU when the thread that started it ends.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&self, errors: &Path) -> io::Result<Qemu> {
        let errors = std::fs::File::create(errors)?;
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ALONE])
            .arg(std::process::id().to_string())
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::from(errors.try_clone()?))
            .stderr(Stdio::from(errors))
            // A terminal's interrupt reaches the harness, which then ends QEMU in its own way.
            .process_group(0)
            .spawn()
            .map(Qemu)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = snaptax::command::Command::new(&self.args[0]).args(&self.args[1..]);
        write!(f, "{command}")
    }
}

/// A comma ends an option's value, unless it is doubled.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes().iter();
    let doubled = bytes.flat_map(|&byte| std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

/// A running QEMU, killed when dropped.
#[derive(Debug)]
pub(crate) struct Qemu(Child);

impl Qemu {
    /// The number of its process, which is QEMU's own: what it is started through replaces itself by it.
    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use rstest::rstest;

    use super::*;

    fn line(accelerator: Accelerator, arguments: &[&str], drives: &[Drive]) -> String {
        let machine = Machine {
            accelerator,
            processors: 2,
            memory_mib: 2560,
        };
        let kernel = Kernel {
            vmlinuz: "/c/vmlinuz".into(),
            initramfs: "/c/initramfs".into(),
        };
        let ports = [("status", End::File), ("host", End::Pipe)].map(|(name, end)| Port {
            name,
            end,
            path: Path::new("/t").join(name),
        });
        CommandLine::new(
            &machine,
            &kernel,
            arguments,
            drives,
            &ports,
            Path::new("/t/console.log"),
        )
        .to_string()
    }

    #[rstest]
    #[case(Accelerator::Tcg, "-accel tcg,thread=multi,tb-size=1024 -cpu max")]
    #[case(Accelerator::Kvm, "-accel kvm -cpu host")]
    fn the_accelerator_chooses_the_processor(#[case] accelerator: Accelerator, #[case] expected: &str) {
        let line = line(accelerator, &[], &[]);
        assert!(line.contains(expected) && line.contains("-nic none"), "{line}");
    }

    #[test]
    fn ports_that_the_guest_writes_to_are_files_and_the_one_it_reads_from_is_a_pipe() {
        let line = line(Accelerator::Tcg, &[], &[]);
        for port in [
            "-chardev file,id=status,path=/t/status -device virtserialport,chardev=status,name=status",
            "-chardev pipe,id=host,path=/t/host -device virtserialport,chardev=host,name=host",
        ] {
            assert!(line.contains(port), "{line}");
        }
    }

    #[test]
    fn the_process_is_the_programs_own_and_not_that_of_what_starts_it() {
        let directory = tempfile::tempdir().unwrap();
        let command = CommandLine {
            args: vec!["sleep".into(), "60".into()],
        };
        let qemu = command.start(&directory.path().join("errors")).unwrap();
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", qemu.process())).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while name() != "sleep\n" && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(name(), "sleep\n");
    }

    #[rstest]
    #[case::of_any_size(None, "throttling.iops-total=1200,file=")]
    #[case::of_a_size(Some(16384), "throttling.iops-total=1200,throttling.iops-size=16384,file=")]
    fn only_the_measured_disk_is_limited(#[case] io_size: Option<u64>, #[case] throttling: &str) {
        let mut measured = Drive::read_only("measured", "/c/a,b.raw");
        measured.read_only = false;
        measured.throttle = Some(Throttle { iops: 1200, io_size });
        let line = line(Accelerator::Tcg, &[], &[Drive::read_only("root", "/c/root"), measured]);
        let expected = "id=root,format=raw,cache=unsafe,readonly=on,file=/c/root";
        assert!(line.contains(expected), "{line}");
        let expected = format!("id=measured,format=raw,cache=unsafe,werror=report,{throttling}/c/a,,b.raw");
        assert!(line.contains(&expected), "{line}");
        assert!(line.contains("virtio-blk-pci,drive=measured,serial=measured"), "{line}");
    }

    #[test]
    fn a_network_is_there_only_when_asked_for() {
        let line = line(Accelerator::Tcg, &[super::super::NETWORK], &[]);
        assert!(
            line.contains("-netdev user,id=net") && !line.contains("-nic none"),
            "{line}"
        );
    }
}
