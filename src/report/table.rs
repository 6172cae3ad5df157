//! Results as plain text, for a terminal 80 columns wide and without colour.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::drawing;
use super::number::{digits, interval};
use crate::result::{Calibration, Comparison, Figure, Record, Side, Window};

const WIDTH: u16 = 80;

/// One section per record: its verdict, the figures on both sides, and what they were measured on.
#[must_use]
pub fn table(records: &[Record]) -> String {
    records.iter().map(section).collect::<Vec<_>>().join("\n\n")
}

fn section(record: &Record) -> String {
    let comparison = &record.comparison;
    format!(
        "{} on {}: {:?}\n\n{}\n\n{}\n",
        comparison.name,
        comparison.profile,
        record.verdict,
        figures(comparison).trim_fmt(),
        facts(record).trim_fmt()
    )
}

fn figures(comparison: &Comparison) -> Table {
    let mut table = empty();
    table.add_row(["", "without", "with", "ratio", "95 % interval"]);
    let rows = [
        ("throughput, transactions/s", comparison.throughput),
        ("mean latency, ms", comparison.mean_latency),
        ("p95 latency, ms", comparison.p95_latency),
    ];
    for (name, figure) in rows {
        table.add_row(match figure {
            Some(figure) => row(name, &figure),
            None => [name, "-", "-", "-", "not estimable"].map(str::to_owned),
        });
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(name: &str, figure: &Figure) -> [String; 5] {
    [
        name.to_owned(),
        digits(figure.without),
        digits(figure.with),
        digits(figure.ratio),
        interval(figure),
    ]
}

fn facts(record: &Record) -> Table {
    let comparison = &record.comparison;
    let mut table = empty();
    let facts = [
        ("verdict", Some(format!("{:?}: {}", record.verdict, record.reason))),
        ("bounds", bounds(record)),
        ("rounds", Some(rounds(comparison))),
        ("difference", text(&comparison.storage.difference)),
        ("COW store", cow(comparison)),
        ("disk speed", comparison.calibration.as_ref().map(speed)),
        ("disk busy", busy(comparison, |window| window.disk_busy_percent)),
        ("CPU busy", processors(comparison)),
        ("load", Some(load(comparison))),
        ("storage", Some(storage(comparison))),
        ("server", text(&server(comparison))),
        ("variables", text(&pairs(comparison.server.variables.iter(), "="))),
        ("versions", text(&pairs(comparison.versions.iter(), " "))),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            table.add_row([name.to_owned(), fact]);
        }
    }
    table
}

fn bounds(record: &Record) -> Option<String> {
    let bounds = record.bounds?;
    let comparison = &record.comparison;
    let judged = [
        ("throughput ", comparison.throughput.zip(Some(bounds.throughput))),
        ("p95 latency", comparison.p95_latency.zip(bounds.p95_latency)),
    ];
    let drawn = judged.into_iter().filter_map(|(name, judged)| {
        let (figure, range) = judged?;
        Some(format!("{name} {}\n", drawing::line(&figure, range)))
    });
    let drawn: String = drawn.collect();
    (!drawn.is_empty()).then(|| drawn + drawing::LEGEND)
}

fn rounds(comparison: &Comparison) -> String {
    let reached = comparison.throughput.map_or(String::new(), |figure| {
        format!("{:.1} % reached, ", 100.0 * figure.half_width())
    });
    let rigs = match comparison.rigs() {
        1 => String::new(),
        rigs => format!(" on {rigs} rigs"),
    };
    let again = match comparison.windows_taken_again {
        0 => String::new(),
        1 => "; a window was taken again, the host was busy".to_owned(),
        windows => format!("; {windows} windows were taken again, the host was busy"),
    };
    format!(
        "{}{rigs}; half-width of throughput {reached}{:.1} % aimed at{again}",
        comparison.rounds,
        100.0 * comparison.target_half_width
    )
}

fn cow(comparison: &Comparison) -> Option<String> {
    let parts = [
        comparison
            .cow_fill_percent
            .map(|fill| format!("at most {} % full", digits(fill))),
        comparison
            .chunks_copied
            .map(|chunks| format!("{chunks:.0} chunks copied by a window's end")),
    ];
    text(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn speed(calibration: &Calibration) -> String {
    format!(
        "{} writes/s of 16 KiB, {} MiB/s in sequence, a flush in {} ms",
        digits(calibration.iops),
        digits(calibration.write_mib_per_second),
        digits(calibration.flush_milliseconds)
    )
}

fn busy(comparison: &Comparison, share: impl Fn(&Window) -> Option<f64>) -> Option<String> {
    let shown = [(Side::Without, "without"), (Side::With, "with")]
        .into_iter()
        .filter_map(|(side, name)| Some(format!("{:.0} % {name}", comparison.mean(side, &share)?)));
    text(&shown.collect::<Vec<_>>().join(", "))
}

fn processors(comparison: &Comparison) -> Option<String> {
    let all = busy(comparison, |window| window.cpu_busy_percent)?;
    let load = comparison.mean(Side::Without, |window| window.load_cpu_percent);
    let load = load.map(|share| format!("; the load generator {share:.0} % without"));
    Some(all + &load.unwrap_or_default())
}

fn load(comparison: &Comparison) -> String {
    let load = &comparison.load;
    format!(
        "{}, {} threads, {} rows {}, windows of {} s, seed {}",
        load.profile, load.threads, load.rows, load.distribution, load.window_seconds, load.seed
    )
}

fn storage(comparison: &Comparison) -> String {
    let storage = &comparison.storage;
    let direct_io = match storage.direct_io {
        Some(true) => ", direct I/O",
        Some(false) => ", buffered I/O",
        None => "",
    };
    let gib = digits(storage.volume_bytes as f64 / (1_u64 << 30) as f64);
    format!("{} on a volume of {gib} GiB{direct_io}", storage.filesystem)
}

fn server(comparison: &Comparison) -> String {
    let server = &comparison.server;
    match (server.version.as_str(), server.image_source.as_str()) {
        ("", _) => String::new(),
        (version, "") => format!("{version}, image {}", server.image),
        (version, source) => format!("{version}, image {} from {source}", server.image),
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>, sign: &str) -> String {
    pairs
        .map(|(name, value)| format!("{name}{sign}{value}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn empty() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::result::{Counts, Load, Range, Ranges, Server, Storage, Verdict, latency_histogram};

    fn seed() -> Record {
        let figure = |without, with, low, high| Figure {
            without,
            with,
            ratio: with / without,
            low,
            high,
        };
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let window = |side, disk_busy, cpu_busy, load_cpu| Window {
            disk_busy_percent: Some(disk_busy),
            cpu_busy_percent: Some(cpu_busy),
            load_cpu_percent: Some(load_cpu),
            ..Window::new(1, side, 600.0, Counts::default(), latency_histogram())
        };
        Record {
            verdict: Verdict::Within,
            reason: "throughput ratio 0.437 (0.421 to 0.455) is inside its bounds 0.39 to 0.49; p95 latency ratio \
                     2.77 (2.51 to 3.06) is inside its bounds 2.2 to 3.5"
                .into(),
            bounds: Some(Ranges {
                throughput: Range { low: 0.39, high: 0.49 },
                p95_latency: Some(Range { low: 2.2, high: 3.5 }),
            }),
            comparison: Comparison {
                name: "oltp_under_a_thick_snapshot".into(),
                profile: "guest-tcg-1200iops-mysql9".into(),
                throughput: Some(figure(80.23, 35.09, 0.421, 0.455)),
                mean_latency: Some(figure(199.4, 455.9, 2.20, 2.38)),
                p95_latency: Some(figure(384.4, 1065.2, 2.51, 3.06)),
                rounds: 8,
                windows_taken_again: 2,
                target_half_width: 0.05,
                cow_fill_percent: Some(18.97),
                chunks_copied: Some(49737.0),
                server: Server {
                    version: "9.7.4".into(),
                    series: "mysql9".into(),
                    image: "snaptax-mysql:9".into(),
                    image_source: "Debian packages".into(),
                    variables: pairs(&[
                        ("innodb_buffer_pool_size", "536870912"),
                        ("innodb_flush_log_at_trx_commit", "1"),
                        ("sync_binlog", "1"),
                    ]),
                },
                load: Load {
                    profile: "sysbench 0.4 oltp complex".into(),
                    threads: 16,
                    rows: 10_000_000,
                    distribution: "uniform".into(),
                    window_seconds: 600.0,
                    seed: 1,
                },
                storage: Storage {
                    difference: "thick snapshot, 4 KiB chunks, 1 GiB COW store".into(),
                    volume_bytes: 4 << 30,
                    filesystem: "ext4".into(),
                    direct_io: Some(true),
                    disk_busy_percent: Some(97.2),
                },
                calibration: Some(Calibration {
                    iops: 396.2,
                    write_mib_per_second: 179.6,
                    flush_milliseconds: 0.4012,
                }),
                versions: pairs(&[("kernel", "6.12.48"), ("lvm", "2.03.31"), ("snaptax", "0.1.0")]),
                windows: vec![
                    window(Side::Without, 97.2, 71.0, 12.0),
                    window(Side::With, 99.1, 62.0, 6.0),
                ],
                ..Comparison::default()
            },
        }
    }

    #[test]
    fn a_measurement_reads_at_80_columns() {
        insta::assert_snapshot!(table(&[seed()]), @r"
        oltp_under_a_thick_snapshot on guest-tcg-1200iops-mysql9: Within

                                     without  with  ratio   95 % interval
         throughput, transactions/s     80.2  35.1  0.437  0.421 to 0.455
         mean latency, ms                199   456   2.29    2.20 to 2.38
         p95 latency, ms                 384  1065   2.77    2.51 to 3.06

         verdict     Within: throughput ratio 0.437 (0.421 to 0.455) is inside its
                     bounds 0.39 to 0.49; p95 latency ratio 2.77 (2.51 to 3.06) is
                     inside its bounds 2.2 to 3.5
         bounds      throughput  0.381 ---[----------(=====*====)----------]--- 0.501
                     p95 latency  2.10 ---[--------(======*======)---------]--- 3.67
                     * ratio, ( ) its interval, [ ] bounds; the scale is logarithmic
         rounds      8; half-width of throughput 3.9 % reached, 5.0 % aimed at; 2
                     windows were taken again, the host was busy
         difference  thick snapshot, 4 KiB chunks, 1 GiB COW store
         COW store   at most 19.0 % full, 49737 chunks copied by a window's end
         disk speed  396 writes/s of 16 KiB, 180 MiB/s in sequence, a flush in 0.401 ms
         disk busy   97 % without, 99 % with
         CPU busy    71 % without, 62 % with; the load generator 12 % without
         load        sysbench 0.4 oltp complex, 16 threads, 10000000 rows uniform,
                     windows of 600 s, seed 1
         storage     ext4 on a volume of 4.00 GiB, direct I/O
         server      9.7.4, image snaptax-mysql:9 from Debian packages
         variables   innodb_buffer_pool_size=536870912,
                     innodb_flush_log_at_trx_commit=1, sync_binlog=1
         versions    kernel 6.12.48, lvm 2.03.31, snaptax 0.1.0
        ");
        assert!(
            table(&[seed()])
                .lines()
                .all(|line| line.chars().count() <= usize::from(WIDTH))
        );
    }

    #[test]
    fn an_invalid_measurement_says_why_and_what_is_missing() {
        let record = Record {
            verdict: Verdict::Invalid,
            reason: "the snapshot overflowed in round 3".into(),
            bounds: None,
            comparison: Comparison {
                name: "oltp".into(),
                profile: "ci".into(),
                ..Comparison::default()
            },
        };
        let text = table(&[record]);
        assert!(text.starts_with("oltp on ci: Invalid\n"), "{text}");
        assert!(text.contains("Invalid: the snapshot overflowed in round 3"), "{text}");
        assert_eq!(text.matches("not estimable").count(), 3, "{text}");
        assert!(!text.contains("COW store"), "{text}");
    }

    #[test]
    fn every_record_has_a_section() {
        assert_eq!(
            table(&[seed(), seed()])
                .matches("on guest-tcg-1200iops-mysql9: Within")
                .count(),
            2
        );
        assert_eq!(table(&[]), "");
    }
}
