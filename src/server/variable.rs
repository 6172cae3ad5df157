//! A variable that was set for a while.

use std::fmt;

use mysql::Conn;
use mysql::prelude::Queryable;

use super::{Error, Server, first_answers};

/// A global variable that was set, until it is restored.
pub struct Variable {
    connection: Conn,
    name: String,
    value: String,
    before: String,
}

impl Server {
    /// Sets a global variable that can be set while the server runs. Those with a value for each connection keep theirs
    /// for the connections that are there.
    ///
    /// # Errors
    /// When the server does not know it, or does not take the value.
    pub fn set_variable(&self, name: &str, value: &str) -> Result<Variable, Error> {
        let failed = |query: &str, source| Error::Query {
            query: query.into(),
            source,
        };
        let name: String = name
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        let question = format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)");
        let mut connection = first_answers(&self.socket).map_err(|source| failed("SELECT 1", source))?;
        let before: Option<Option<String>> = connection
            .query_first(&question)
            .map_err(|source| failed(&question, source))?;
        let statement = set(&name, value);
        connection
            .query_drop(&statement)
            .map_err(|source| failed(&statement, source))?;
        Ok(Variable {
            connection,
            name,
            value: value.into(),
            before: before.flatten().unwrap_or_default(),
        })
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
        let query = set(&self.name, &self.before);
        let restored = self.connection.query_drop(&query);
        restored.map_err(|source| Error::Query { query, source })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// Numbers as numbers, which is all that numeric variables take; names of values as text.
fn set(name: &str, value: &str) -> String {
    match value.parse::<f64>() {
        Ok(_) => format!("SET GLOBAL {name} = {value}"),
        Err(_) => format!(
            "SET GLOBAL {name} = '{}'",
            value.replace('\\', "\\\\").replace('\'', "''")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("200", "SET GLOBAL v = 200")]
    #[case("0.5", "SET GLOBAL v = 0.5")]
    #[case("ON", "SET GLOBAL v = 'ON'")]
    #[case("it's \\", "SET GLOBAL v = 'it''s \\\\'")]
    fn values_are_written_as_the_server_takes_them(#[case] value: &str, #[case] statement: &str) {
        assert_eq!(set("v", value), statement);
    }
}
