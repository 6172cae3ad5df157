use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::command::{Command, Output};
use crate::storage::report::{Row, rows};
use crate::storage::{Error, RunId, complain, dm, udevd_runs};

/// How long a command may take that suspends devices, and so waits for all that is being written to them.
const SUSPEND_DEADLINE: Duration = Duration::from_secs(600);

/// LVM that sees nothing but the devices it is told of, and reads nothing of the host's configuration.
///
/// To look at what it made: `LVM_SYSTEM_DIR=<directory> lvs`.
#[derive(Debug, Clone)]
pub struct Lvm(Arc<Isolation>);

#[derive(Debug)]
struct Isolation {
    directory: PathBuf,
    run: RunId,
    udev: bool,
    admitted: Mutex<BTreeSet<PathBuf>>,
}

impl Lvm {
    /// Prepares LVM with a configuration in `directory`, which is made if missing.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn isolated(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
        let lvm = Self(Arc::new(Isolation {
            directory,
            run: RunId::current(),
            udev: udevd_runs(),
            admitted: Mutex::default(),
        }));
        lvm.change_admitted(|_| ())?;
        Ok(lvm)
    }

    /// The run's id.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.0.run
    }

    /// Version of the LVM tools, as `2.03.31(2)`.
    ///
    /// # Errors
    /// When they are missing, or do not tell.
    pub fn version(&self) -> Result<String, Error> {
        let output = self.run("ask for LVM's version", &["version"])?;
        let line = output
            .stdout
            .lines()
            .find_map(|line| line.trim().strip_prefix("LVM version:"));
        let version = line.and_then(|rest| rest.split_whitespace().next());
        version
            .map(str::to_owned)
            .ok_or_else(|| Error::unreadable("LVM's version", output.stdout.trim()))
    }

    pub(super) fn admit(&self, device: &Path) -> Result<(), Error> {
        self.change_admitted(|devices| {
            devices.insert(device.to_owned());
        })
    }

    pub(super) fn dismiss(&self, device: &Path) -> Result<(), Error> {
        self.change_admitted(|devices| {
            devices.remove(device);
        })
    }

    fn change_admitted(&self, change: impl FnOnce(&mut BTreeSet<PathBuf>)) -> Result<(), Error> {
        let mut admitted = self.0.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut admitted);
        let path = self.0.directory.join("lvm.conf");
        let fresh = self.0.directory.join("lvm.conf.new");
        fs::write(&fresh, configuration(&admitted, self.0.udev)).map_err(Error::file("write", &fresh))?;
        fs::rename(&fresh, &path).map_err(Error::file("write", &path))
    }

    /// Runs one of LVM's commands.
    pub(super) fn run(&self, doing: impl Into<String>, args: &[&str]) -> Result<Output, Error> {
        self.command().args(args).run().map_err(Error::command(doing))
    }

    /// Runs one of LVM's commands that suspend a group's devices on the way, and resumes them should it fail: a
    /// command that was killed in between leaves them suspended, and whoever writes to them waiting.
    pub(super) fn run_suspending(&self, group: &str, doing: impl Into<String>, args: &[&str]) -> Result<Output, Error> {
        let command = self.command().args(args).deadline(SUSPEND_DEADLINE);
        command.run().map_err(|source| {
            if let Err(error) = dm::resume(|device| dm::belongs_to(device, group)) {
                complain(format_args!("left suspended: {error}"));
            }
            Error::command(doing)(source)
        })
    }

    /// Runs `lvs` or `vgs` on a group or volume, or on all when `of` is empty, and reads its report.
    pub(super) fn report(&self, command: &str, fields: &str, of: &str) -> Result<Vec<Row>, Error> {
        let shape = ["--reportformat", "json", "--units", "b", "--nosuffix", "--options"];
        let args: Vec<&str> = [command]
            .into_iter()
            .chain(shape)
            .chain([fields, of])
            .filter(|arg| !arg.is_empty())
            .collect();
        let output = self.run(format!("run {command} {of}"), &args)?;
        rows(&output.stdout, command.trim_end_matches('s'))
    }

    fn command(&self) -> Command {
        Command::new("lvm")
            .env("LVM_SYSTEM_DIR", &self.0.directory)
            .env("LVM_SUPPRESS_FD_WARNINGS", "1")
    }

    /// Tags that tell a killed run's remains.
    pub(super) fn tags(&self) -> [String; 4] {
        [
            "--addtag".into(),
            "snaptax".into(),
            "--addtag".into(),
            format!("snaptax.run={}", self.0.run),
        ]
    }
}

/// `lvm.conf` (lvm.conf(5)). `checks = 0` because LVM's versions know different settings.
fn configuration(admitted: &BTreeSet<PathBuf>, udev: bool) -> String {
    let admit = |device: &PathBuf| format!("\"a|^{}$|\", ", device.display());
    let filter: String = admitted.iter().map(admit).collect();
    let udev = u8::from(udev);
    format!(
        r#"config {{
    checks = 0
}}
devices {{
    global_filter = [ {filter}"r|.*|" ]
    use_devicesfile = 0
    hints = "none"
    obtain_device_list_from_udev = 0
    external_device_info_source = "none"
    issue_discards = 0
}}
global {{
    use_lvmetad = 0
    use_lvmpolld = 0
    event_activation = 0
    system_id_source = "none"
}}
activation {{
    monitoring = 0
    snapshot_autoextend_threshold = 100
    thin_pool_autoextend_threshold = 100
    auto_activation_volume_list = []
    udev_sync = {udev}
    udev_rules = {udev}
}}
backup {{
    backup = 0
    archive = 0
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn written(lvm: &Lvm) -> String {
        fs::read_to_string(lvm.0.directory.join("lvm.conf")).unwrap()
    }

    #[test]
    fn only_admitted_devices_pass_the_filter() {
        let directory = tempfile::tempdir().unwrap();
        let lvm = Lvm::isolated(directory.path().join("lvm")).unwrap();
        assert!(written(&lvm).contains("global_filter = [ \"r|.*|\" ]"));
        lvm.admit(Path::new("/dev/loop3")).unwrap();
        lvm.admit(Path::new("/dev/loop12")).unwrap();
        lvm.dismiss(Path::new("/dev/loop3")).unwrap();
        assert!(written(&lvm).contains("global_filter = [ \"a|^/dev/loop12$|\", \"r|.*|\" ]"));
    }

    #[test]
    fn a_copy_shares_the_filter() {
        let directory = tempfile::tempdir().unwrap();
        let lvm = Lvm::isolated(directory.path()).unwrap();
        lvm.clone().admit(Path::new("/dev/loop3")).unwrap();
        lvm.admit(Path::new("/dev/loop4")).unwrap();
        assert!(written(&lvm).contains("loop3") && written(&lvm).contains("loop4"));
    }

    #[rstest]
    #[case(true, "udev_sync = 1")]
    #[case(false, "udev_sync = 0")]
    fn udev_is_waited_for_only_where_it_runs(#[case] udev: bool, #[case] line: &str) {
        assert!(configuration(&BTreeSet::new(), udev).contains(line));
    }
}
