//! The floors of `machine`: a file uses only files below it, and no command uses another.

#![expect(
    clippy::unwrap_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// The files, lowest first: each may use those before it. A folder's name stands for all in it that have no line.
const FLOORS: &[&str] = &[
    "encoding",
    "scope",
    "principal",
    "event",
    "row::key",
    "row::account",
    "row::nonces",
    "row::cluster",
    "row::price",
    "row::guard",
    "row::halt",
    "row::hold",
    "row::session",
    "row::tally",
    "row::ticket",
    "row::approval",
    "row::reply",
    "row::call",
    "row::recorded",
    "row",
    "feature",
    "command",
    "working",
    "guard_check",
    "guard_path",
    "stops",
    "ticket",
    "turn",
    "step::money",
    "step::memory",
    "step::counters",
    "step::facts",
    "step::verdict",
    "step::again",
    "step::settlement",
    "step::approval",
    "step::halts",
    "step::session",
    "step",
    "op::",
    "op",
    "apply",
    "query",
    "check::tree",
    "check",
    "lib",
];

#[test]
fn machine_uses_nothing_of_the_floors_above() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/machine/src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let inside = file.strip_prefix(&src).unwrap().with_extension("");
        let module = inside.to_str().unwrap().replace('/', "::");
        let Some(floor) = floor_of(&module) else {
            wrong.push(format!("{module} has no line in FLOORS"));
            continue;
        };
        // Where a floor's parts are named, and put together.
        if module == "lib" {
            continue;
        }
        for used in uses(&fs::read_to_string(&file).unwrap()) {
            match floor_of(&used) {
                Some(below) if below < floor => {}
                Some(_) => wrong.push(format!("{module} uses {used}, which is not below it")),
                None => wrong.push(format!("{module} uses {used}, which has no line in FLOORS")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_read_with_their_braces() {
    let text =
        "use crate::step::{approval, halts};\n// crate::op::no\nuse crate::row::{Read as _, reply::{A, B}};";
    assert_eq!(
        uses(text),
        [
            "step::approval",
            "step::halts",
            "row::Read",
            "row::reply::A",
            "row::reply::B"
        ]
    );
    assert_eq!(floor_of("row::reply::A"), floor_of("row::reply"));
    assert_eq!(floor_of("op::seal"), floor_of("op::due"));
    assert!(floor_of("step::money") < floor_of("step::memory"));
}

/// The place of the longest line that a module's path begins with.
fn floor_of(module: &str) -> Option<usize> {
    let begins = |line: &str| match line.strip_suffix("::") {
        Some(_) => module.starts_with(line),
        None => module
            .strip_prefix(line)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::")),
    };
    let lines = FLOORS.iter().enumerate().filter(|(_, line)| begins(line));
    lines.max_by_key(|(_, line)| line.len()).map(|(place, _)| place)
}

/// Every path of this crate that a text names, without its comments.
fn uses(text: &str) -> Vec<String> {
    let code: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_none_or(|char| !char.is_alphanumeric() && char != '_') {
            read_tree("", &code[at + "crate::".len()..], &mut found);
        }
    }
    found
}

/// Reads one path, or the paths within braces; gives what follows.
fn read_tree<'t>(prefix: &str, text: &'t str, found: &mut Vec<String>) -> &'t str {
    let end = text.find(|char: char| !char.is_alphanumeric() && char != '_' && char != ':');
    let (path, mut rest) = text.split_at(end.unwrap_or(text.len()));
    if !rest.starts_with('{') {
        found.push(format!("{prefix}{path}"));
        return rest;
    }
    let prefix = format!("{prefix}{path}");
    loop {
        rest = read_tree(&prefix, rest[1..].trim_start(), found);
        rest = rest.trim_start();
        if let Some(renamed) = rest.strip_prefix("as ") {
            rest = renamed.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        }
        rest = rest.trim_start();
        if rest.starts_with(',') && !rest[1..].trim_start().starts_with('}') {
            continue;
        }
        return rest.split_once('}').map_or("", |(_, after)| after);
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
