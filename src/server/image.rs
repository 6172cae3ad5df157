//! The container: any server image, with a script of our own instead of its entrypoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testcontainers::core::{Mount, WaitFor};
use testcontainers::{ContainerRequest, Image, ImageExt};

use super::{Error, START_DEADLINE, ServerOptions};
use crate::command::{self, Command};

/// How long a pull may take.
const PULL_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// The socket's name in its directory.
pub(super) const SOCKET: &str = "mysqld.sock";

/// Where official images have a volume: a mount there keeps Docker from making an anonymous one.
const DATA: &str = "/var/lib/mysql";
const RUN: &str = "/run/snaptax";

/// The container's first process. Options come as its arguments, the redo log's size first.
const SCRIPT: &str = include_str!("entrypoint.sh");

#[derive(Debug)]
pub(super) struct Mysqld {
    name: String,
    tag: String,
}

impl Image for Mysqld {
    fn name(&self) -> &str {
        &self.name
    }

    fn tag(&self) -> &str {
        &self.tag
    }

    /// None: readiness is a matter of answers, not of log lines.
    fn ready_conditions(&self) -> Vec<WaitFor> {
        Vec::new()
    }

    fn entrypoint(&self) -> Option<&str> {
        Some("sh")
    }
}

/// Pulls an image that is not there, by Docker's own client: a pull that does not end can be stopped then.
///
/// # Errors
/// When it cannot be pulled, or `stop` is set.
pub(super) fn ensure(image: &str, stop: &AtomicBool) -> Result<(), Error> {
    let inspect = Command::new("docker").args(["image", "inspect", "--format", "{{.Id}}", image]);
    match inspect.run() {
        Err(command::Error::Failed { stderr, .. }) if stderr.contains("No such image") => {}
        // What else may be wrong comes up when the container is started.
        _ => return Ok(()),
    }
    let pull = Command::new("docker")
        .args(["pull", "--quiet", image])
        .deadline(PULL_DEADLINE);
    let pulled = pull.run_unless(|| stop.load(Ordering::Relaxed));
    pulled.map(drop).map_err(|error| match error {
        command::Error::Stopped { .. } => Error::Interrupted,
        command::Error::Failed { stderr, .. } => Error::image(image, stderr.trim()),
        error => Error::image(image, &error.to_string()),
    })
}

/// A name for a container, which nothing else on the machine has.
pub(super) fn container_name(begin: &str) -> String {
    format!("{begin}-{:08x}", rand::random::<u32>())
}

/// Removes a container that may have been made, though not started.
pub(super) fn remove_container(name: &str) {
    // The error that led here is the one to be told.
    drop(Command::new("docker").args(["rm", "--force", "--volumes", name]).run());
}

/// The container to start.
pub(super) fn request(options: &ServerOptions, name: &str) -> ContainerRequest<Mysqld> {
    let (repository, tag) = split(&options.image);
    let image = Mysqld {
        name: repository.into(),
        tag: tag.into(),
    };
    let redo_capacity = options.mysqld.redo_capacity.as_bytes().to_string();
    let script = ["-c", SCRIPT, "snaptax-server", &redo_capacity].map(str::to_owned);
    image
        .with_cmd(script.into_iter().chain(options.mysqld.arguments()))
        .with_mount(Mount::bind_mount(options.data_directory.to_string_lossy(), DATA))
        .with_mount(Mount::bind_mount(options.socket_directory.to_string_lossy(), RUN))
        .with_container_name(name)
        .with_network("none")
        .with_user("0:0")
        .with_labels(
            options
                .labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        )
        .with_startup_timeout(START_DEADLINE)
}

/// An image's name and its tag or digest, which testcontainers joins with `:` again.
fn split(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        // A colon before a slash is a registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("mysql:8.4", "mysql", "8.4")]
    #[case("mysql", "mysql", "latest")]
    #[case("registry.local:5000/db/mysql", "registry.local:5000/db/mysql", "latest")]
    #[case("registry.local:5000/mysql:9", "registry.local:5000/mysql", "9")]
    #[case("mysql@sha256:0123abcd", "mysql@sha256", "0123abcd")]
    fn an_image_is_split_where_docker_splits_it(#[case] image: &str, #[case] name: &str, #[case] tag: &str) {
        assert_eq!(split(image), (name, tag));
    }
}
