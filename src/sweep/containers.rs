use std::path::PathBuf;
use std::time::Duration;

use crate::command::{self, Command};
use crate::storage::RunId;
use crate::sweep::Error;

/// The label of every container that a run makes; its value is the run's id.
pub const RUN_LABEL: &str = "org.snaptax.run";

/// The label with the run's directory.
pub const DIRECTORY_LABEL: &str = "org.snaptax.directory";

/// How long Docker may take to list containers.
const DEADLINE: Duration = Duration::from_secs(20);

/// A container that a run made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// The run's directory.
    pub directory: Option<PathBuf>,
    id: String,
}

/// The containers of all runs, by label *and* name: images, and so other containers, inherit labels. None where Docker is not installed, or does not run.
pub(super) fn list() -> Result<Vec<Container>, Error> {
    let labels = [RUN_LABEL, DIRECTORY_LABEL].map(|label| format!(", {{{{json (.Label \"{label}\")}}}}"));
    let format = format!("[{{{{json .ID}}}}, {{{{json .Names}}}}{}]", labels.concat());
    let command = Command::new("docker").args(["ps", "--all", "--no-trunc", "--filter"]);
    let command = command.arg(format!("label={RUN_LABEL}")).args(["--format", &format]);
    match command.deadline(DEADLINE).run() {
        Ok(output) => Ok(listed(&output.stdout)),
        Err(command::Error::NotFound { .. }) => Ok(Vec::new()),
        Err(command::Error::Failed { stderr, .. }) if does_not_run(&stderr) => Ok(Vec::new()),
        Err(source) => Err(Error::Docker {
            doing: "list containers".into(),
            source,
        }),
    }
}

/// Whether nobody answers, or not to this user.
fn does_not_run(stderr: &str) -> bool {
    ["cannot connect", "failed to connect", "permission denied"]
        .iter()
        .any(|said| stderr.to_lowercase().contains(said))
}

fn listed(text: &str) -> Vec<Container> {
    let container = |line: &str| {
        let [id, name, run, directory]: [String; 4] = serde_json::from_str(line).ok()?;
        let run = run.parse().ok().filter(|run| RunId::of_name(&name) == Some(*run))?;
        Some(Container {
            run,
            name,
            directory: Some(directory).filter(|path| !path.is_empty()).map(PathBuf::from),
            id,
        })
    };
    text.lines().filter_map(container).collect()
}

impl Container {
    /// Kills and removes it, with its anonymous volumes.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let removed = Command::new("docker")
            .args(["rm", "--force", "--volumes", &self.id])
            .run();
        removed.map(drop).map_err(|source| Error::Docker {
            doing: format!("remove container {}", self.name),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn only_containers_with_the_name_and_label_of_a_run_are_listed() {
        let text = [
            r#"["0a1b", "snaptax-812-90417-1-0f3e", "812-90417-1", "/var/tmp/snaptax-812-90417-1"]"#,
            r#"["2c3d", "other", "mine", ""]"#,
            r#"["4e5f", "snaptax-812-90417-2-77aa", "812-90417-2", ""]"#,
            r#"["6a7b", "inherits_a_label", "812-90417-1", ""]"#,
            r#"["8c9d", "snaptax-812-90417-1-x", "812-90417-2", ""]"#,
            r#"["ae0f", "two_lines", "812-90417-1\t/x\n4e5f\tvictim\t812-90417-1", ""]"#,
            "no json",
            "",
        ];
        let text = &text.join("\n");
        let found: Vec<_> = listed(text)
            .into_iter()
            .map(|container| (container.name, container.run.to_string(), container.directory))
            .collect();
        let directory = Some(PathBuf::from("/var/tmp/snaptax-812-90417-1"));
        assert_eq!(
            found,
            [
                (
                    "snaptax-812-90417-1-0f3e".to_owned(),
                    "812-90417-1".to_owned(),
                    directory
                ),
                ("snaptax-812-90417-2-77aa".to_owned(), "812-90417-2".to_owned(), None)
            ]
        );
    }

    #[rstest]
    #[case("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", true)]
    #[case("permission denied while trying to connect to the Docker daemon socket", true)]
    #[case("Error response from daemon: context deadline exceeded", false)]
    fn an_engine_that_does_not_run_is_told_from_one_that_fails(#[case] stderr: &str, #[case] absent: bool) {
        assert_eq!(does_not_run(stderr), absent);
    }
}
