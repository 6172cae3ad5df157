//! What a guest tells on its status port, one line each.

use std::str::FromStr;

/// One line of the status port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A step begins, and the one before it is over.
    Step(String),
    /// Something went wrong that does not end the run.
    Warning(String),
    /// The guest cannot go on.
    Failed(String),
    /// The job ended with this code, and everything was sent back.
    Exit(i32),
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line, ""));
        let rest = rest.to_owned();
        match word {
            "step" => Ok(Self::Step(rest)),
            "warn" => Ok(Self::Warning(rest)),
            "fail" => Ok(Self::Failed(rest)),
            "exit" => rest.parse().map(Self::Exit).map_err(|_| line.to_owned()),
            _ => Err(line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("step docker", Ok(Event::Step("docker".into())))]
    #[case("exit 101\r", Ok(Event::Exit(101)))]
    #[case("fail no disk for Docker", Ok(Event::Failed("no disk for Docker".into())))]
    #[case("exit soon", Err("exit soon".into()))]
    #[case("", Err(String::new()))]
    fn a_status_line_is_an_event(#[case] line: &str, #[case] event: Result<Event, String>) {
        assert_eq!(line.parse(), event);
    }
}
