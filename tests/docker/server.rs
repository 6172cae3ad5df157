use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snaptax::command::Command;
use snaptax::server::{Error, Server};
use snaptax::settings::Size;

use crate::fixture::{Observer, Rig, running};

#[test]
#[ignore = "needs Docker"]
fn a_server_stopped_in_order_finds_its_data_again() {
    let rig = Rig::new();
    let server = rig.start();
    let mut observer = Observer::new(&server);
    observer.run("CREATE DATABASE kept");
    observer.run("CREATE TABLE kept.numbers (number INT PRIMARY KEY) ENGINE=innodb");
    observer.run("INSERT INTO kept.numbers VALUES (42)");
    let container = server.container_id().to_owned();
    server.stop().unwrap();
    let gone = Command::new("docker").args(["inspect", &container]).run();
    assert!(gone.is_err(), "the container is removed");

    let server = rig.start();
    let log = server.log_tail();
    assert!(!log.contains("crash recovery"), "{log}");
    assert_eq!(Observer::new(&server).row::<i32>("SELECT number FROM kept.numbers"), 42);
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn the_description_tells_what_took_effect() {
    let rig = Rig::new();
    let mut options = rig.options();
    options.mysqld.buffer_pool = Size::mib(24);
    options.mysqld.extra = vec!["innodb_io_capacity=300".into(), "sync_binlog=7".into()];
    let image = options.image.clone();
    let server = Server::start(options, &running()).unwrap();
    let description = server.description().unwrap();
    let expected = [
        ("innodb_buffer_pool_size", "25165824"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_flush_method", "O_DIRECT"),
        ("innodb_io_capacity", "300"),
        ("log_bin", "ON"),
        ("performance_schema", "OFF"),
        ("sync_binlog", "7"),
    ];
    for (name, value) in expected {
        assert_eq!(
            description.variables.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    let variables = &description.variables;
    let redo = ["innodb_redo_log_capacity", "innodb_log_file_size"].map(|name| variables.get(name).cloned());
    assert!(redo.contains(&Some(Size::mib(32).as_bytes().to_string())), "{redo:?}");
    assert_eq!(description.image, image);
    let product = description.series.trim_end_matches(|c: char| c.is_ascii_digit());
    assert!(["mysql", "mariadb"].contains(&product), "{}", description.series);
    assert!(
        description
            .version
            .starts_with(description.series.trim_start_matches(product))
    );
    let source = &description.image_source;
    assert!(!source.is_empty() && source != "not known", "{source}");
    assert!(
        server
            .status(&["Uptime", "no such counter"])
            .unwrap()
            .keys()
            .eq(["Uptime"])
    );
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_half_made_data_directory_is_initialised_anew() {
    let rig = Rig::new();
    let data = rig.data_directory();
    fs::create_dir_all(data.join("mysql")).unwrap();
    fs::write(data.join("ibdata1"), "cut short").unwrap();
    fs::write(data.join(".snaptax-initialising"), "").unwrap();
    let server = rig.start();
    assert!(fs::metadata(data.join("ibdata1")).unwrap().len() > 1 << 20);
    assert!(!data.join(".snaptax-initialising").exists());
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_directory_that_holds_something_else_is_left_alone() {
    let rig = Rig::new();
    fs::create_dir_all(rig.data_directory()).unwrap();
    let letter = rig.data_directory().join("letter");
    fs::write(&letter, "dear reader").unwrap();
    let error = Server::start(rig.options(), &running()).err().unwrap();
    assert!(matches!(error, Error::NotStarted { .. }), "{error}");
    assert_eq!(fs::read_to_string(letter).unwrap(), "dear reader");
}

#[test]
#[ignore = "needs Docker"]
fn a_server_that_refuses_its_options_ends_the_wait_with_its_log() {
    let rig = Rig::new();
    let mut options = rig.options();
    options.mysqld.extra = vec!["innodb_no_such_option=1".into()];
    let started = Instant::now();
    let error = Server::start(options, &running()).err().unwrap().to_string();
    assert!(
        error.contains("innodb_no_such_option") && error.contains("MiB free"),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(100), "{:?}", started.elapsed());
}

/// The image with one more file, until this is dropped.
struct Image(String);

impl Image {
    fn with(rig: &Rig, tag: &str, path: &str, text: &str) -> Self {
        let tree = rig.data_directory().with_file_name(tag);
        let file = tree.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        let docker = |args: &[&str]| {
            let output = Command::new("docker").args(args).run().unwrap();
            output.stdout.trim().to_owned()
        };
        let image = format!("snaptax-test/{tag}:latest");
        let container = docker(&["create", &rig.options().image, "true"]);
        docker(&["cp", &format!("{}/.", tree.display()), &format!("{container}:/")]);
        docker(&["commit", &container, &image]);
        docker(&["rm", &container]);
        Self(image)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        drop(Command::new("docker").args(["rmi", &self.0]).output());
    }
}

/// Says that it is ready, as the server does that an image's own entrypoint starts for its initialisation, and ends.
const SAYS_READY: &str = "#!/bin/sh
case $* in
*--version) echo 'mysqld  Ver 8.4.0' ;;
*--initialize*) ;;
*)
    echo 'ready for connections. Version: 8.4.0  socket: /run/snaptax/mysqld.sock  port: 0' >&2
    sleep 2
    exit 3
    ;;
esac
";

#[test]
#[ignore = "needs Docker"]
fn a_log_that_says_ready_is_no_answer_and_the_end_of_the_container_ends_the_wait() {
    let rig = Rig::new();
    // Taken before mysqld, whatever the image.
    let image = Image::with(&rig, "says-ready", "usr/local/sbin/mariadbd", SAYS_READY);
    let mut options = rig.options();
    options.image.clone_from(&image.0);
    let started = Instant::now();
    let error = Server::start(options, &running()).err().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let message = error.to_string();
    assert!(
        matches!(error, Error::NotStarted { code: 3, .. }) && message.contains("ready for connections"),
        "{message}"
    );
}

#[test]
#[ignore = "needs Docker"]
fn an_option_file_in_the_image_is_not_read() {
    let rig = Rig::new();
    let image = Image::with(&rig, "option-file", "etc/my.cnf", "[mysqld]\nno_such_option=1\n");
    let mut options = rig.options();
    options.image.clone_from(&image.0);
    Server::start(options, &running()).unwrap().stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn directories_of_another_user_are_used_all_the_same() {
    let rig = Rig::new();
    let directories = [rig.data_directory(), rig.options().socket_directory];
    for directory in &directories {
        fs::create_dir_all(directory).unwrap();
        // The server's user in most images.
        chown(directory, Some(999), Some(999)).unwrap();
        fs::set_permissions(directory, PermissionsExt::from_mode(0o700)).unwrap();
    }
    rig.start().stop().unwrap();
    let owners = directories.map(|directory| fs::metadata(directory).unwrap().uid());
    assert_eq!(owners, [999, 999]);
}

#[test]
#[ignore = "needs Docker"]
fn the_stop_flag_ends_the_wait_and_leaves_no_container() {
    let rig = Rig::new();
    let mut options = rig.options();
    let run = rig.data_directory().display().to_string();
    options.labels.insert("org.snaptax.run".into(), run.clone());
    let error = Server::start(options, &AtomicBool::new(true)).err().unwrap();
    assert!(matches!(error, Error::Interrupted), "{error}");
    let filter = format!("label=org.snaptax.run={run}");
    let left = Command::new("docker").args(["ps", "--all", "--quiet", "--filter", &filter]);
    assert_eq!(left.run().unwrap().stdout, "");
}

#[test]
#[ignore = "needs Docker"]
fn an_image_that_does_not_exist_is_named_with_the_setting() {
    let rig = Rig::new();
    let mut options = rig.options();
    options.image = "localhost:1/no-such/image:0.1".into();
    let error = Server::start(options, &running()).err().unwrap();
    assert!(matches!(error, Error::Image { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("localhost:1/no-such/image:0.1"), "{message}");
    assert!(message.contains("SNAPTAX_IMAGE"), "{message}");
}

#[test]
#[ignore = "needs Docker"]
fn a_pull_that_does_not_end_can_be_stopped() {
    // It takes connections, and never answers.
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::new();
    let mut options = rig.options();
    options.image = format!("localhost:{}/mysql:8.4", registry.local_addr().unwrap().port());
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            thread::sleep(Duration::from_secs(1));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let began = Instant::now();
    let error = Server::start(options, &stop).err().unwrap();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    stopper.join().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_container_that_cannot_be_started_is_removed() {
    let empty = "snaptax/empty:test";
    // A tar's end, and nothing before it.
    let import = Command::new("docker").args(["import", "-", empty]).input(vec![0; 1024]);
    import.run().unwrap();
    let rig = Rig::new();
    let mut options = rig.options();
    options.image = empty.into();
    let error = Server::start(options, &running()).err().unwrap();
    let left = Command::new("docker").args(["ps", "--all", "--quiet", "--filter", &format!("ancestor={empty}")]);
    assert_eq!(left.run().unwrap().stdout, "", "{error}");
    assert!(error.to_string().contains("sh"), "{error}");
    Command::new("docker").args(["rmi", empty]).run().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_server_that_closed_the_kept_connection_is_asked_anew_and_gets_no_signal() {
    let rig = Rig::new();
    let mut options = rig.options();
    options.mysqld.extra = vec!["wait_timeout=1".into()];
    let server = Server::start(options, &running()).unwrap();
    let container = server.container_id().to_owned();
    thread::sleep(Duration::from_secs(4));
    server.stop().unwrap();
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1;
    let events = Command::new("docker").args(["events", "--format", "{{.Action}}", "--since", "10m"]);
    let events = events.args([
        "--until",
        &until.to_string(),
        "--filter",
        &format!("container={container}"),
    ]);
    let events = events.run().unwrap().stdout;
    assert!(events.contains("die") && !events.contains("kill"), "{events}");
}

/// Ten seconds is what Docker waits for before it kills.
#[test]
#[ignore = "needs Docker"]
fn a_server_that_is_slower_to_stop_than_docker_waits_for_stops_in_order() {
    let rig = Rig::new();
    let server = rig.start();
    let container = server.container_id().to_owned();
    let docker = |what: &str| Command::new("docker").args([what, &container]).run().unwrap();
    docker("pause");
    let stopped = thread::scope(|scope| {
        let stopped = scope.spawn(|| server.stop());
        thread::sleep(Duration::from_secs(12));
        docker("unpause");
        stopped.join().unwrap()
    });
    stopped.unwrap();
    let server = rig.start();
    let log = server.log_tail();
    assert!(!log.contains("crash recovery"), "{log}");
    server.stop().unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_killed_server_does_not_count_as_stopped_in_order() {
    let rig = Rig::new();
    let server = rig.start();
    Command::new("docker")
        .args(["kill", server.container_id()])
        .run()
        .unwrap();
    assert!(!server.is_running().unwrap());
    assert_eq!(server.exit_code().unwrap(), Some(137));
    let error = server.stop().unwrap_err();
    assert!(matches!(error, Error::Exited { code: 137, .. }), "{error}");
}

/// The environment of a test cannot be changed safely, so this one runs itself again with another.
#[test]
#[ignore = "needs Docker"]
fn docker_that_cannot_be_reached_is_said_with_a_hint() {
    const NOWHERE: &str = "unix:///nowhere/docker.sock";
    if env::var("DOCKER_HOST").as_deref() == Ok(NOWHERE) {
        let error = Server::start(Rig::new().options(), &running())
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("DOCKER_HOST") && error.contains("start dockerd"),
            "{error}"
        );
        return;
    }
    Command::new(env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "server::docker_that_cannot_be_reached_is_said_with_a_hint",
        ])
        .env("DOCKER_HOST", NOWHERE)
        .run()
        .unwrap();
}

#[test]
#[ignore = "needs Docker"]
fn a_variable_is_set_and_restored() {
    let rig = Rig::new();
    let server = rig.start();
    let mut observer = Observer::new(&server);
    let mut now = |name| -> String { observer.row(&format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)")) };
    for (name, value) in [
        ("innodb_io_capacity", "777"),
        ("innodb_flush_neighbors", "2"),
        ("init_connect", "it's"),
    ] {
        let before = now(name);
        let variable = server.set_variable(name, value).unwrap();
        assert_eq!(now(name), value);
        variable.restore().unwrap();
        assert_eq!(now(name), before);
    }
    drop(server.set_variable("INNODB-IO-CAPACITY", "777").unwrap());
    assert_ne!(
        now("innodb_io_capacity"),
        "777",
        "a variable that is dropped is set back"
    );
    for (name, value, problem) in [
        ("no_such_variable", "1", "no_such_variable"),
        ("innodb_io_capacity; DROP", "1", "no variable has such a name"),
        ("sort_buffer_size", "1000000", "each connection has a value of its own"),
        ("innodb_purge_batch_size", "99999999", "the server made it"),
    ] {
        let error = server.set_variable(name, value).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_ne!(now("innodb_purge_batch_size"), "5000", "what was refused is set back");
    server.stop().unwrap();
}
