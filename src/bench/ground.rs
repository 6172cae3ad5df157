//! What both sides stand on, and must not change from window to window: the server's variables, the table, the disk.

use std::collections::BTreeMap;

use super::{Error, Rig};
use crate::workload::{self, Table};

/// The server and its data as they are at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ground {
    variables: BTreeMap<String, String>,
    table: Table,
    direct_io: bool,
}

impl Ground {
    /// Asks the server.
    pub(super) fn of(rig: &Rig) -> Result<Self, Error> {
        Ok(Self {
            variables: rig.server().variables()?,
            table: workload::Table::at(&rig.connect())?,
            direct_io: rig.group().uses_direct_io()?,
        })
    }

    /// How another, later one differs, apart from the variables that are meant to.
    pub(super) fn changed(&self, now: &Self, meant: &[&str]) -> Option<String> {
        if !now.direct_io {
            return Some("the loop device uses the page cache by now, and not direct I/O".into());
        }
        if now.table != self.table {
            return Some(format!("the table changed from {}, to {}", self.table, now.table));
        }
        let unlike = |name: &&String| self.variables.get(*name) != now.variables.get(*name);
        let names = self.variables.keys().chain(now.variables.keys());
        let name = names.filter(|name| !meant.contains(&name.as_str())).find(unlike)?;
        let value =
            |variables: &BTreeMap<String, String>| variables.get(name).map_or("unknown", |value| value).to_owned();
        Some(format!(
            "the server's {name} changed from {} to {}",
            value(&self.variables),
            value(&now.variables)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn ground(capacity: &str, rows: u64, direct_io: bool) -> Ground {
        Ground {
            variables: BTreeMap::from([("innodb_io_capacity".to_owned(), capacity.to_owned())]),
            table: Table {
                created: "2026-11-01 12:00:00".into(),
                first: Some(1),
                last: Some(rows),
            },
            direct_io,
        }
    }

    #[rstest]
    #[case::nothing(ground("200", 300, true), &[], None)]
    #[case::a_variable(
        ground("400", 300, true), &[], Some("the server's innodb_io_capacity changed from 200 to 400")
    )]
    #[case::a_variable_that_is_the_difference(ground("400", 300, true), &["innodb_io_capacity"], None)]
    #[case::the_table(
        ground("200", 299, true),
        &[],
        Some("the table changed from ids 1 to 300, made 2026-11-01 12:00:00, to ids 1 to 299, made 2026-11-01 12:00:00")
    )]
    #[case::direct_io(
        ground("200", 300, false), &[], Some("the loop device uses the page cache by now, and not direct I/O")
    )]
    fn what_changed_is_told(#[case] now: Ground, #[case] meant: &[&str], #[case] told: Option<&str>) {
        let began = ground("200", 300, true);
        assert_eq!(began.changed(&now, meant).as_deref(), told);
    }

    #[test]
    fn a_variable_that_appears_is_a_change() {
        let mut now = ground("200", 300, true);
        now.variables.insert("log_bin".into(), "OFF".into());
        let told = ground("200", 300, true).changed(&now, &[]).unwrap();
        assert_eq!(told, "the server's log_bin changed from unknown to OFF");
    }
}
