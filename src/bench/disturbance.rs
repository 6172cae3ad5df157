//! What happens to a machine during a measurement and voids it: its clock is set, its kernel reports failing disks, its
//! processors are busy with other things.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;

use super::host_delay::HostDelay;

/// More than a clock that is being adjusted, by 500 ppm at most, gains or loses in a window of half an hour.
const JUMP: Duration = Duration::from_secs(1);

/// What the kernel says, as an error or worse, of disks and filesystems that fail, and of memory that ran out.
const COMPLAINTS: &[&str] = &[
    "I/O error",
    "EXT4-fs error",
    "XFS (",
    "medium error",
    "Out of memory",
    "out of memory",
    "Remounting filesystem read-only",
];

/// The level of an error (syslog(2)); what is worse is lower.
const ERROR: u32 = 3;

/// Looks out for disturbances, from when it was made.
#[derive(Debug)]
pub(super) struct Lookout {
    clocks: Clocks,
    log: Option<KernelLog>,
    host_delay: HostDelay,
}

impl Lookout {
    /// Begins; where the kernel's log cannot be read, or nobody tells of the host, it looks at the rest alone.
    pub(super) fn begin() -> Self {
        Self {
            clocks: Clocks::now(),
            log: KernelLog::open().ok(),
            host_delay: HostDelay::begin(),
        }
    }

    /// What has disturbed this machine so far.
    pub(super) fn seen(&mut self) -> Option<String> {
        let jumped = self
            .clocks
            .jump(Clocks::now())
            .map(|by| format!("the clock was set {by}"));
        let complained = self.log.as_mut().and_then(KernelLog::complaint);
        jumped.or_else(|| complained.map(|line| format!("the kernel said: {line}")))
    }

    /// That the host had other things to do in this share of the time, if that is too much.
    pub(super) fn busy_host(&self, percent: f64) -> Option<String> {
        self.host_delay.disturbance(percent)
    }

    /// Share of the time so far in which a processor was wanted and not given by the host, on average over this
    /// machine's processors, in percent. `None` where nobody tells, or the time is too short to say.
    pub(super) fn host_delay_percent(&self) -> Option<f64> {
        self.host_delay.percent()
    }
}

/// The clock that tells the time, and the one that cannot be set.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    set: SystemTime,
    steady: Instant,
}

impl Clocks {
    fn now() -> Self {
        Self {
            set: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    fn jump(self, now: Self) -> Option<String> {
        let expected = self.set + now.steady.duration_since(self.steady);
        let (by, direction) = match now.set.duration_since(expected) {
            Ok(forward) => (forward, "forward"),
            Err(back) => (back.duration(), "back"),
        };
        (by > JUMP).then(|| format!("{:.1} s {direction}", by.as_secs_f64()))
    }
}

/// `/dev/kmsg`, from its end at the time on.
#[derive(Debug)]
struct KernelLog(File);

impl KernelLog {
    fn open() -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self(file))
    }

    /// The first complaint since it was last asked.
    fn complaint(&mut self) -> Option<String> {
        let mut found = None;
        // A record has 8 KiB at most; one read gives one.
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => return found,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    found = found.or_else(|| complaint(&text));
                }
                // Some were overwritten before they were read.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return found,
            }
        }
    }
}

/// The message of a record, `<level and facility>,<number>,<time>,...;<message>`, if it is a complaint.
fn complaint(record: &str) -> Option<String> {
    let (head, message) = record.lines().next()?.split_once(';')?;
    let level = head.split(',').next()?.parse::<u32>().ok()? & 7;
    let is_complaint = level <= ERROR && COMPLAINTS.iter().any(|words| message.contains(words));
    is_complaint.then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::a_disk(
        "3,812,55012345,-;blk_update_request: I/O error, dev loop0, sector 2048\n SUBSYSTEM=block\n",
        true
    )]
    #[case::a_filesystem(
        "2,813,55012399,-;EXT4-fs error (device dm-0): ext4_find_entry:1463: inode #2\n",
        true
    )]
    #[case::memory("3,9,100,-;Out of memory: Killed process 812 (mysqld)\n", true)]
    #[case::memory_of_a_container("3,9,100,-;Memory cgroup out of memory: Killed process 812 (mysqld)\n", true)]
    #[case::a_warning("4,9,100,-;Buffer I/O error on dev fd0\n", false)]
    #[case::another_error("3,9,100,-;usb 1-1: device descriptor read/64, error -71\n", false)]
    #[case::another_facility("27,9,100,-;sda: I/O error\n", true)]
    #[case::none("", false)]
    fn what_voids_a_measurement_is_told_from_what_does_not(#[case] record: &str, #[case] voids: bool) {
        assert_eq!(complaint(record).is_some(), voids);
    }

    #[rstest]
    #[case::on_time(10_000, None)]
    #[case::adjusted(10_400, None)]
    #[case::forward(13_600_000, Some("13590.0 s forward"))]
    #[case::back(8_500, Some("1.5 s back"))]
    fn a_clock_that_was_set_is_told_from_one_that_is_adjusted(#[case] milliseconds: u64, #[case] jump: Option<&str>) {
        let began = Clocks {
            set: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            steady: Instant::now(),
        };
        let now = Clocks {
            set: began.set + Duration::from_millis(milliseconds),
            steady: began.steady + Duration::from_secs(10),
        };
        assert_eq!(began.jump(now).as_deref(), jump);
    }

    #[rstest]
    #[case::quiet("110 52\n", Some(10.0), None)]
    #[case::at_the_limit("110 55\n", Some(25.0), None)]
    #[case::busy("110 70\n", Some(100.0), Some("waited for one 100 % of the time"))]
    #[case::not_told("100 50\n", None, None)]
    fn a_busy_host_is_reported_and_a_quiet_one_is_not(
        #[case] told: &str,
        #[case] percent: Option<f64>,
        #[case] words: Option<&str>,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "100 50\n").unwrap();
        let mut lookout = Lookout {
            clocks: Clocks::now(),
            log: None,
            host_delay: HostDelay::of_a_guest(file.path().into(), 2),
        };
        std::fs::write(file.path(), told).unwrap();
        assert_eq!(lookout.host_delay_percent(), percent);
        let busy = percent.and_then(|percent| lookout.busy_host(percent));
        assert_eq!(busy.is_some(), words.is_some());
        assert!(busy.unwrap_or_default().contains(words.unwrap_or_default()));
        assert_eq!(lookout.seen(), None);
    }

    proptest! {
        #[test]
        fn no_record_makes_it_panic(record in ".{0,60}") {
            let _ = complaint(&record);
        }
    }
}
