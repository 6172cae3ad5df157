//! What happens to a machine in the middle of a measurement, and what the measurement says of it.

use std::cell::Cell;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serial_test::file_serial;
use snaptax::bench::{Difference, Rig, State};
use snaptax::command::Command;
use snaptax::server::Variable;
use snaptax::settings::Settings;

use crate::kills::{assert_nothing_is_left, smallest_experiment};
use crate::require_guest;

/// From the making of a difference into the window: a quarter of a window's length passes before it begins.
const INTO_THE_WINDOW: Duration = Duration::from_millis(1300);

/// What is done to the machine in a window of the with side, and undone after it.
enum Disturbance {
    /// The loop device goes through the page cache.
    PageCache(PathBuf),
    /// An option that the experiment says differs, which is no disturbance.
    Said(Variable),
    /// An option that nobody said would differ.
    Unsaid(Variable),
    /// What needs to happen in the window itself, and how it is undone.
    InTheWindow(JoinHandle<()>, &'static [&'static str]),
}

/// What is said of each disturbance, all on one rig; the last ends the server.
const SAID: [&str; 5] = [
    "round 1: the loop device uses the page cache by now, and not direct I/O",
    "round 1: the server's innodb_io_capacity changed from ",
    "round 1: the clock was set 3",
    "round 1: the kernel said: Buffer I/O error on dev dm-",
    "round 1: the load ended: ",
];

impl Disturbance {
    /// Six rounds of a comparison that nothing disturbs, then one comparison for each disturbance.
    fn number(number: usize, rig: &Rig) -> snaptax::Result<Self> {
        Ok(match number {
            0..6 => Self::Said(rig.server().set_variable("innodb_io_capacity", "777")?),
            6 => {
                let device = rig.group().device().path().to_owned();
                run(&["losetup", "--direct-io=off", device.to_str().unwrap()]);
                Self::PageCache(device)
            }
            7 => Self::Unsaid(rig.server().set_variable("innodb_io_capacity", "777")?),
            8 => in_the_window(&["date", "--set", "1 hour"], &["date", "--set", "-1 hour"]),
            9 => {
                run(&["dmsetup", "create", "failing", "--table", "0 2048 error"]);
                in_the_window(
                    &["dd", "if=/dev/mapper/failing", "of=/dev/null", "count=1"],
                    &["dmsetup", "remove", "--retry", "failing"],
                )
            }
            _ => {
                let container = rig.server().container_id().to_owned();
                let kill = move || {
                    thread::sleep(INTO_THE_WINDOW);
                    run(&["docker", "kill", &container]);
                };
                Self::InTheWindow(thread::spawn(kill), &["true"])
            }
        })
    }
}

fn in_the_window(command: &'static [&'static str], undo: &'static [&'static str]) -> Disturbance {
    let run = move || {
        thread::sleep(INTO_THE_WINDOW);
        let (program, arguments) = command.split_first().unwrap();
        // A disk that fails lets what reads from it fail.
        drop(Command::new(program).args(arguments).output());
    };
    Disturbance::InTheWindow(thread::spawn(run), undo)
}

impl Difference for Disturbance {
    fn describe(&self) -> String {
        "a disturbance".into()
    }

    fn variables(&self) -> Vec<&str> {
        match self {
            Self::Said(variable) => vec![variable.name()],
            _ => Vec::new(),
        }
    }

    fn state(&self) -> snaptax::Result<State> {
        Ok(State::default())
    }

    fn undo(self) -> snaptax::Result<()> {
        match self {
            Self::PageCache(device) => run(&["losetup", "--direct-io=on", device.to_str().unwrap()]),
            Self::Said(variable) | Self::Unsaid(variable) => variable.restore()?,
            Self::InTheWindow(thread, undo) => {
                thread.join().unwrap();
                run(undo);
            }
        }
        Ok(())
    }
}

fn run(command: &[&str]) {
    let (program, arguments) = command.split_first().unwrap();
    Command::new(program).args(arguments).run().unwrap();
}

#[test]
#[ignore = "needs root, device-mapper and Docker; `cargo experiments` provides them"]
#[file_serial(storage)]
fn whatever_disturbs_a_window_makes_the_measurement_invalid_and_is_named() {
    require_guest("sets the clock");
    let number = Cell::new(0);
    let comparisons = smallest_experiment()
        .window(Duration::from_secs(2))
        .with(|rig| {
            let disturbance = Disturbance::number(number.get(), rig);
            number.set(number.get() + 1);
            disturbance
        })
        .measure_times(1 + SAID.len())
        .unwrap();
    let said: Vec<&str> = comparisons
        .iter()
        .map(|found| found.invalid.as_deref().unwrap())
        .collect();
    // What was there before the server was killed, too, is not trusted then.
    assert!(!said[0].contains("innodb_io_capacity"), "{}", said[0]);
    for (said, expected) in said[1..].iter().zip(SAID) {
        assert!(said.starts_with(expected), "{expected}: {said}");
    }
    assert!(said[5].contains("; the server was killed (status 137)"), "{}", said[5]);
    let windows: Vec<usize> = comparisons.iter().map(|found| found.windows.len()).collect();
    assert_eq!(windows, [12, 2, 2, 2, 2, 1], "nothing is measured after a disturbance");
    assert_nothing_is_left(&Settings::from_env().unwrap().work_dir);
}
