//! A variable that was set for a while.

use std::fmt;

use mysql::Conn;
use mysql::prelude::Queryable;

use super::{Error, Server, first_answers};

/// A global variable that was set, until it is restored; dropped without that, it is set back as well, but nobody learns
/// whether that went well.
pub struct Variable {
    connection: Conn,
    name: String,
    value: String,
    /// What it was, unless it was restored.
    before: Option<Value>,
}

/// The value of a variable; `None` is its default, where that is none at all.
type Value = Option<String>;

impl Server {
    /// Sets a global variable that can be set while the server runs.
    ///
    /// # Errors
    /// When the server does not know it, does not take the value, or takes another one in its place; when each connection
    /// has a value of its own, since those that are there would keep theirs.
    pub fn set_variable(&self, name: &str, value: &str) -> Result<Variable, Error> {
        let name = name.replace('-', "_").to_ascii_lowercase();
        let refused = |problem: String| Error::Variable {
            name: name.clone(),
            problem,
        };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(refused("no variable has such a name".into()));
        }
        let mut connection = first_answers(&self.socket).map_err(|source| failed("SELECT 1", source))?;
        if connection.query_drop(format!("SELECT @@SESSION.{name}")).is_ok() {
            return Err(refused(
                "each connection has a value of its own, and the load's are there already; give it to the server as an \
                 option (Experiment::mysqld)"
                    .into(),
            ));
        }
        let before = global(&mut connection, &name)?;
        let mut variable = Variable {
            connection,
            name: name.clone(),
            value: value.into(),
            before: Some(before),
        };
        variable.set(Some(value))?;
        let now = global(&mut variable.connection, &name)?.unwrap_or_default();
        match is_same(value, &now) {
            true => Ok(variable),
            false => Err(refused(format!("was set to {value}, and the server made it {now}"))),
        }
    }
}

impl Variable {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets it back to what it was.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn restore(mut self) -> Result<(), Error> {
        self.set_back()
    }

    fn set_back(&mut self) -> Result<(), Error> {
        match self.before.take() {
            Some(before) => self.set(before.as_deref()),
            None => Ok(()),
        }
    }

    fn set(&mut self, value: Option<&str>) -> Result<(), Error> {
        let query = statement(&self.name, value);
        self.connection
            .query_drop(&query)
            .map_err(|source| failed(&query, source))
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        drop(self.set_back());
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

fn failed(query: &str, source: mysql::Error) -> Error {
    Error::Query {
        query: query.into(),
        source,
    }
}

fn global(connection: &mut Conn, name: &str) -> Result<Value, Error> {
    let query = format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)");
    let value: Option<Value> = connection
        .query_first(&query)
        .map_err(|source| failed(&query, source))?;
    Ok(value.flatten())
}

/// Numbers as numbers, which is all that numeric variables take; names of values as text.
fn statement(name: &str, value: Option<&str>) -> String {
    let literal = match value {
        None => "DEFAULT".to_owned(),
        Some(value) if is_number(value) => value.to_owned(),
        Some(value) => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")),
    };
    format!("SET GLOBAL {name} = {literal}")
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    digits.starts_with(|c: char| c.is_ascii_digit()) && value.parse::<f64>().is_ok()
}

/// A server shows switches as 1 and 0, and names in its own case.
fn is_same(asked: &str, shown: &str) -> bool {
    let plain = |value: &str| match value.to_ascii_lowercase().as_str() {
        "on" | "true" => "1".to_owned(),
        "off" | "false" => "0".to_owned(),
        other => other
            .parse::<f64>()
            .map_or(other.to_owned(), |number| number.to_string()),
    };
    plain(asked) == plain(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Some("200"), "SET GLOBAL v = 200")]
    #[case(Some("-0.5"), "SET GLOBAL v = -0.5")]
    #[case(Some("ON"), "SET GLOBAL v = 'ON'")]
    #[case(Some("inf"), "SET GLOBAL v = 'inf'")]
    #[case(Some("it's \\"), "SET GLOBAL v = 'it''s \\\\'")]
    #[case(None, "SET GLOBAL v = DEFAULT")]
    fn values_are_written_as_the_server_takes_them(#[case] value: Option<&str>, #[case] expected: &str) {
        assert_eq!(statement("v", value), expected);
    }

    #[rstest]
    #[case("ON", "1", true)]
    #[case("off", "0", true)]
    #[case("75", "75.000000", true)]
    #[case("detect_only", "DETECT_ONLY", true)]
    #[case("9999", "2000", false)]
    fn what_the_server_made_of_a_value_is_compared(#[case] asked: &str, #[case] shown: &str, #[case] same: bool) {
        assert_eq!(is_same(asked, shown), same);
    }
}
