//! The statements of one transaction, in their order.

use super::ids::Ids;

/// sysbench's classes of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Write,
    Other,
}

/// A statement's text, which the server sees with `?`, and its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) sql: &'static str,
    pub(super) class: Class,
}

/// What is bound to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    None,
    Id(u64),
    Range(u64, u64),
    /// New content of column `c`, and an id.
    Content(u64),
}

/// One statement of a transaction: an index into [`PREPARED`], and what is bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) statement: usize,
    pub(super) binding: Binding,
}

/// The one statement that sysbench sends as text.
pub(super) const BEGIN: Statement = Statement {
    sql: "BEGIN",
    class: Class::Other,
};

/// The statements that the server prepares once per connection.
pub(super) const PREPARED: [Statement; 10] = [
    read("SELECT c from sbtest where id=?"),
    read("SELECT c from sbtest where id between ? and ?"),
    read("SELECT SUM(K) from sbtest where id between ? and ?"),
    read("SELECT c from sbtest where id between ? and ? order by c"),
    read("SELECT DISTINCT c from sbtest where id between ? and ? order by c"),
    write("UPDATE sbtest set k=k+1 where id=?"),
    write("UPDATE sbtest set c=? where id=?"),
    write("DELETE from sbtest where id=?"),
    write("INSERT INTO sbtest values(?,0,' ','aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')"),
    Statement {
        sql: "COMMIT",
        class: Class::Other,
    },
];

const POINT: usize = 0;
const SIMPLE_RANGE: usize = 1;
const SUM_RANGE: usize = 2;
const ORDERED_RANGE: usize = 3;
const DISTINCT_RANGE: usize = 4;
const INDEX_UPDATE: usize = 5;
const NON_INDEX_UPDATE: usize = 6;
const DELETE: usize = 7;
const INSERT: usize = 8;
const COMMIT: usize = 9;

const fn read(sql: &'static str) -> Statement {
    Statement {
        sql,
        class: Class::Read,
    }
}

const fn write(sql: &'static str) -> Statement {
    Statement {
        sql,
        class: Class::Write,
    }
}

impl Ids {
    /// The transaction's statements after [`BEGIN`].
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let range = |position: usize, length| Binding::Range(self.ranges[position], self.ranges[position] + length);
        let rest = [
            (SIMPLE_RANGE, range(0, 99)),
            (SUM_RANGE, range(1, 99)),
            (ORDERED_RANGE, range(2, 99)),
            (DISTINCT_RANGE, range(3, 100)),
            (INDEX_UPDATE, Binding::Id(self.index_update)),
            (NON_INDEX_UPDATE, Binding::Content(self.non_index_update)),
            (INDEX_UPDATE, Binding::Id(self.replaced)),
            (DELETE, Binding::Id(self.replaced)),
            (INSERT, Binding::Id(self.replaced)),
            (COMMIT, Binding::None),
        ];
        let points = self.points.map(|id| (POINT, Binding::Id(id)));
        let steps = points.into_iter().chain(rest);
        steps.map(|(statement, binding)| Step { statement, binding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Ids {
        Ids {
            points: std::array::from_fn(|position| 1 + position as u64),
            ranges: [101, 201, 301, 401],
            index_update: 16,
            non_index_update: 17,
            replaced: 18,
        }
    }

    #[test]
    fn a_transaction_has_14_reads_5_writes_and_2_others() {
        let mut classes: Vec<Class> = ids().steps().map(|step| PREPARED[step.statement].class).collect();
        classes.push(BEGIN.class);
        let count = |class| classes.iter().filter(|other| **other == class).count();
        assert_eq!(
            (count(Class::Read), count(Class::Write), count(Class::Other)),
            (14, 5, 2)
        );
    }

    #[test]
    fn the_order_is_that_of_sysbench_0_4() {
        let steps: Vec<Step> = ids().steps().collect();
        let rest: Vec<(&str, Binding)> = steps[10..]
            .iter()
            .map(|step| (PREPARED[step.statement].sql, step.binding))
            .collect();
        assert!(
            steps[..10]
                .iter()
                .all(|step| PREPARED[step.statement].sql == "SELECT c from sbtest where id=?")
        );
        assert_eq!(
            rest,
            [
                (
                    "SELECT c from sbtest where id between ? and ?",
                    Binding::Range(101, 200)
                ),
                (
                    "SELECT SUM(K) from sbtest where id between ? and ?",
                    Binding::Range(201, 300)
                ),
                (
                    "SELECT c from sbtest where id between ? and ? order by c",
                    Binding::Range(301, 400)
                ),
                (
                    "SELECT DISTINCT c from sbtest where id between ? and ? order by c",
                    Binding::Range(401, 501)
                ),
                ("UPDATE sbtest set k=k+1 where id=?", Binding::Id(16)),
                ("UPDATE sbtest set c=? where id=?", Binding::Content(17)),
                ("UPDATE sbtest set k=k+1 where id=?", Binding::Id(18)),
                ("DELETE from sbtest where id=?", Binding::Id(18)),
                (
                    "INSERT INTO sbtest values(?,0,' ','aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')",
                    Binding::Id(18)
                ),
                ("COMMIT", Binding::None),
            ]
        );
    }

    #[test]
    fn every_statement_takes_what_is_bound_to_it() {
        for step in ids().steps() {
            let bound = match step.binding {
                Binding::None => 0,
                Binding::Id(_) => 1,
                Binding::Range(..) | Binding::Content(_) => 2,
            };
            assert_eq!(PREPARED[step.statement].sql.matches('?').count(), bound);
        }
    }
}
