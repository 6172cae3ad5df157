use crate::command::Command;
use crate::storage::RunId;
use crate::sweep::Error;

/// The label of every container that a run makes; its value is the run's id.
pub const RUN_LABEL: &str = "org.snaptax.run";

/// A container that a run made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    id: String,
}

/// The containers of all runs; none where Docker does not answer.
pub(super) fn list() -> Vec<Container> {
    let format = format!("{{{{.ID}}}} {{{{.Names}}}} {{{{.Label \"{RUN_LABEL}\"}}}}");
    let command = Command::new("docker").args(["ps", "--all", "--no-trunc", "--filter"]);
    let command = command.arg(format!("label={RUN_LABEL}")).args(["--format", &format]);
    command.run().map(|output| listed(&output.stdout)).unwrap_or_default()
}

fn listed(text: &str) -> Vec<Container> {
    let container = |line: &str| {
        let mut words = line.split_whitespace();
        let (id, name, run) = (words.next()?, words.next()?, words.next()?);
        Some(Container {
            run: run.parse().ok()?,
            name: name.to_owned(),
            id: id.to_owned(),
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
    use super::*;

    #[test]
    fn only_containers_with_the_id_of_a_run_are_listed() {
        let text = "0a1b quirky_name 812-90417\n2c3d other mine\n4e5f nameless\n\n";
        let found = listed(text);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].run.to_string()),
            ("quirky_name", "812-90417".to_owned())
        );
    }
}
