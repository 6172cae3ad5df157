//! A host whose own LVM is configured for its own disks, and what it might do to ours.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use serial_test::file_serial;
use snaptax::bench::Difference;
use snaptax::command::Command;
use snaptax::settings::Size;
use snaptax::storage::Error;

use super::{group, open_direct, own_lvm, work_dir, write_chunk};
use crate::require_guest;

const CONFIGURATION: &str = "/etc/lvm/lvm.conf";
const DEVICES: &str = "/etc/lvm/devices/system.devices";

/// It sees none of our disks, activates none of our volumes, and extends every snapshot that is half full.
const HOSTS: &str = r#"
devices {
    global_filter = [ "r|.*|" ]
    filter = [ "r|.*|" ]
    use_devicesfile = 1
}
activation {
    volume_list = [ "its_own" ]
    monitoring = 1
    snapshot_autoextend_threshold = 50
    snapshot_autoextend_percent = 100
}
"#;

/// The host's configuration and its monitoring daemon, until this is dropped.
struct Host(Child);

impl Host {
    fn start() -> Self {
        require_guest("this changes the machine's own LVM");
        fs::rename(CONFIGURATION, saved()).unwrap();
        fs::write(CONFIGURATION, HOSTS).unwrap();
        fs::create_dir_all(Path::new(DEVICES).parent().unwrap()).unwrap();
        fs::write(
            DEVICES,
            "VERSION=1.1.1\nIDTYPE=devname IDNAME=/dev/its_own DEVNAME=/dev/its_own PVID=none\n",
        )
        .unwrap();
        let mut daemon = std::process::Command::new("dmeventd");
        Self(daemon.arg("-f").stdin(Stdio::null()).spawn().unwrap())
    }

    /// What the host's LVM would do to this group, did it see its disk.
    fn lvm(&self, group: &str, args: &[&str]) -> String {
        let all = format!(
            "devices {{ global_filter = [ \"a|.*|\" ] filter = [ \"a|.*|\" ] use_devicesfile = 0 }} \
             activation {{ volume_list = [ \"{group}\" ] }}"
        );
        let command = Command::new("lvm").args(args).args(["--config", &all]);
        command.run().unwrap().stdout.trim().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
        drop(fs::remove_file(DEVICES));
        drop(fs::rename(saved(), CONFIGURATION));
    }
}

fn saved() -> String {
    format!("{CONFIGURATION}.saved")
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_snapshot_is_neither_hidden_nor_watched_by_the_hosts_lvm_and_one_that_it_extends_is_found_out() {
    let host = Host::start();
    let directory = work_dir();
    let group = group(&directory, Size::mib(64));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let builder = volume.thick_snapshot("snap").size(Size::mib(4));
    let snapshot = builder.chunk_size(Size::kib(512)).create().unwrap();
    let its_own = Command::new("lvm").args(["vgs", "--noheadings"]).run().unwrap();
    assert_eq!(its_own.stdout, "", "the host's configuration is in force");

    // Four chunks of six, for which the host would extend it.
    let node = open_direct(volume.path());
    (0..4).for_each(|chunk| write_chunk(&node, 128 * chunk));
    drop(node);
    let full_name = format!("{}/snap", group.name());
    let watched = || {
        let args = ["lvs", "--noheadings", "--options", "seg_monitor", &full_name];
        host.lvm(group.name(), &args)
    };
    assert_eq!(watched(), "not monitored");
    assert!(snapshot.fill().unwrap().percent > 50.0);
    assert_eq!(snapshot.state().unwrap().invalid, None);

    host.lvm(group.name(), &["lvchange", "--monitor", "y", &full_name]);
    assert_eq!(watched(), "monitored");
    // As its daemon does, within ten seconds.
    host.lvm(group.name(), &["lvextend", "--use-policies", &full_name]);
    let error = snapshot.fill().unwrap_err();
    assert!(matches!(error, Error::NotAsAsked { .. }), "{error}");
    assert_eq!(snapshot.state().unwrap().invalid, Some(error.to_string()));
    snapshot.remove().unwrap();
    volume.remove().unwrap();
    group.remove().unwrap();
}

#[test]
#[ignore = "needs root and device-mapper"]
#[file_serial(storage)]
fn a_group_is_not_activated_by_the_host() {
    let host = Host::start();
    let directory = work_dir();
    let group = group(&directory, Size::mib(32));
    let volume = group.volume("datalv").size(Size::mib(16)).create().unwrap();
    let activate = || {
        own_lvm(&directory, &["vgchange", "-an", group.name()]);
        // As the host's udev rules do with every disk that appears.
        host.lvm(group.name(), &["vgchange", "-aay", group.name()]);
        volume.path().exists()
    };
    assert!(!activate());
    own_lvm(&directory, &["vgchange", "--setautoactivation", "y", group.name()]);
    assert!(activate(), "it would have been");
    volume.remove().unwrap();
    group.remove().unwrap();
}
