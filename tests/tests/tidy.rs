//! House rules that a machine can hold: layers, sizes, names; in `papers` documents that agree with the code.
//!
//! Each check collects everything that is wrong before it fails.

#![expect(clippy::panic, reason = "what goes wrong in a test's helper fails the test")]

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/papers.rs"]
mod papers;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use code::{
    KeyByte, code_of, dependencies, folders, key_bytes, names, root, rust_files, rust_files_under, shown,
};

/// The crates of this workspace that a crate may depend on (docs/ARCHITECTURE.md "Workspace").
const LAYERS: [(&str, &[&str]); 10] = [
    // `conformance` is for tests here: the published vectors.
    ("decision", &["conformance"]),
    ("conformance", &["decision"]),
    ("audit", &["decision"]),
    ("machine", &["audit", "decision", "conformance"]),
    ("wire", &["machine", "audit", "decision"]),
    ("store", &["wire", "machine", "audit", "decision"]),
    ("cluster", &["store", "wire", "machine", "audit", "decision"]),
    (
        "daemon",
        &["cluster", "store", "wire", "machine", "audit", "decision"],
    ),
    ("client", &["wire", "machine", "audit", "decision"]),
    (
        "cli",
        &[
            "client",
            "daemon",
            "cluster",
            "store",
            "wire",
            "machine",
            "audit",
            "decision",
            "conformance",
        ],
    ),
];

/// Crates whose functions must give the same answer on every replica.
const PURE: [&str; 3] = ["decision", "audit", "machine"];

/// What a pure crate may not name outside comments.
const IMPURE: [&str; 5] = ["tokio", "rand::", "getrandom", "std::time", "std::net"];

/// The one file of the pure crates that may name a binary floating point type: arguments' numbers are written as the
/// reference writes them. `disallowed-types` of clippy.toml does not see primitive types.
const DOUBLES: &str = "crates/decision/src/float.rs";

/// What a pure crate may not depend on, in tests neither.
const IMPURE_CRATES: [&str; 3] = ["tokio", "rand", "getrandom"];

/// A longer file is two subjects.
const RUST_LINES_MAX: usize = 700;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "mod", "util", "utils", "common", "helper", "helpers", "types", "misc",
];

#[test]
fn crates_depend_on_lower_layers_only() {
    let layers = BTreeMap::from(LAYERS);
    let mut wrong = Vec::new();
    for name in folders(&root().join("crates")).unwrap() {
        let manifest = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml")).unwrap();
        let Some(allowed) = layers.get(name.as_str()) else {
            wrong.push(format!("crates/{name} has no place in LAYERS"));
            continue;
        };
        for dependency in dependencies(&manifest) {
            if layers.contains_key(dependency.as_str()) && !allowed.contains(&dependency.as_str()) {
                wrong.push(format!("crates/{name} may not depend on {dependency}"));
            }
            if PURE.contains(&name.as_str()) && IMPURE_CRATES.contains(&dependency.as_str()) {
                wrong.push(format!(
                    "crates/{name} is pure and may not depend on {dependency}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_name_no_clock_no_dice_no_runtime() {
    let mut wrong = Vec::new();
    for name in PURE {
        for file in rust_files_under(&root().join("crates").join(name).join("src")).unwrap() {
            for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
                for word in IMPURE.into_iter().filter(|word| names(code_of(line), word)) {
                    wrong.push(format!("{}:{} names {word}", shown(&file), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_name_no_double_outside_one_file() {
    let mut wrong = Vec::new();
    for name in PURE {
        for file in rust_files_under(&root().join("crates").join(name).join("src")).unwrap() {
            if shown(&file) == DOUBLES {
                continue;
            }
            for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
                for word in ["f32", "f64"]
                    .into_iter()
                    .filter(|word| names(code_of(line), word))
                {
                    wrong.push(format!("{}:{} names {word}", shown(&file), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn source_files_are_short_and_named_for_their_subject() {
    let mut wrong = Vec::new();
    for file in rust_files().unwrap() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        if lines > RUST_LINES_MAX {
            wrong.push(format!(
                "{} has {lines} lines, at most {RUST_LINES_MAX}: split it",
                shown(&file)
            ));
        }
        let inside = file.strip_prefix(root()).unwrap_or(&file);
        for part in inside.components() {
            let stem = Path::new(part.as_os_str())
                .file_stem()
                .and_then(|stem| stem.to_str());
            if stem.is_some_and(|stem| EMPTY_NAMES.contains(&stem)) {
                wrong.push(format!("{}: name the subject instead", shown(&file)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Key bytes are constants: `const SESSION: u8 = 0x06;`. A comment `// group: name` starts a new space of
/// bytes, for a position in the key where other bytes are compared.
#[test]
fn every_key_byte_is_given_once() {
    let file = root().join("crates/store/src/keys.rs");
    let given = key_bytes(&fs::read_to_string(&file).unwrap());
    assert!(
        !given.is_empty(),
        "{} defines no `const NAME: u8 = …;`",
        shown(&file)
    );
    let mut owner: BTreeMap<(String, u8), String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for KeyByte { group, name, value } in given {
        let Some(value) = value else {
            wrong.push(format!("{name} is not a plain byte"));
            continue;
        };
        if let Some(first) = owner.insert((group, value), name.clone()) {
            wrong.push(format!("{first} and {name} are both {value:#04x}"));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", shown(&file), wrong.join("\n"));
}
