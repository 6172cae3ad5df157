//! The house rules of the source tree that the compiler does not check.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import; a room that is not listed here has no place in the house yet.
const IMPORTS: &[(&str, &[&str])] = &[
    ("command", &[]),
    ("settings", &["text"]),
    ("text", &[]),
    ("result", &[]),
    ("host", &["command", "settings", "storage"]),
    ("storage", &["command", "result", "settings", "text"]),
    ("server", &["command", "result", "settings"]),
    ("sweep", &["command", "storage"]),
    ("workload", &["result"]),
    ("compare", &["result"]),
    ("report", &["result", "text"]),
    ("gate", &["compare", "report", "result", "settings"]),
    (
        "bench",
        &[
            "compare", "gate", "host", "report", "result", "server", "settings", "storage", "sweep", "workload",
        ],
    ),
];

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The room a file belongs to: `storage` for `storage/snapshot.rs`, `gate` for `gate.rs`.
fn room(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).unwrap();
    let first = inside.components().next().unwrap();
    Path::new(&first).file_stem().unwrap().to_string_lossy().into_owned()
}

/// The rooms named after `crate::` outside comments and macros' `$crate::`.
fn imports(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").zip(line.split("crate::").skip(1)))
        .filter(|(before, _)| !before.ends_with(['$', '_']))
        .map(|(_, after)| after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .filter(|name: &String| name.starts_with(char::is_lowercase))
        .collect()
}

#[test]
fn every_room_imports_only_what_the_design_lets_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<_, _> = IMPORTS.iter().copied().collect();
    let mut offences = Vec::new();
    for file in rust_files(&source) {
        let room = room(&source, &file);
        if room == "lib" || room == "bin" || room == "prelude" {
            continue;
        }
        let Some(allowed) = allowed.get(room.as_str()) else {
            offences.push(format!("{}: the room `{room}` is not listed", file.display()));
            continue;
        };
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import != room && !allowed.contains(&import.as_str()) {
                offences.push(format!("{}: `{room}` may not import `{import}`", file.display()));
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn an_import_against_the_rules_would_be_seen() {
    let text = "use crate::bench::Bench;\n// use crate::gate;\nlet x = $crate::result::Side::With;\n";
    assert_eq!(imports(text), BTreeSet::from(["bench".to_owned()]));
}
