//! House rules that a machine can hold: layers, sizes, names, and documents that agree with the code.
//!
//! Each check collects everything that is wrong before it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

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
/// What a pure crate may not depend on, in tests neither.
const IMPURE_CRATES: [&str; 3] = ["tokio", "rand", "getrandom"];

/// Folders that hold our Rust.
const SOURCES: [&str; 3] = ["crates", "tests", "chaos"];
/// A longer file is two subjects.
const RUST_LINES_MAX: usize = 700;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "mod", "util", "utils", "common", "helper", "helpers", "types", "misc",
];
/// Documents that are read in one sitting, and their longest length.
const DOCUMENT_LINES_MAX: [(&str, usize); 2] = [("README.md", 150), ("docs/ARCHITECTURE.md", 400)];

/// Marks a configuration key in the comment of its field: a line with "config key: `limits.queue`".
const CONFIG_KEY_MARK: &str = "config key: `";
const METRIC_PREFIX: &str = "haltgate_";

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

#[test]
fn documents_fit_in_one_sitting() {
    for (name, lines_max) in DOCUMENT_LINES_MAX {
        let lines = fs::read_to_string(root().join(name)).unwrap().lines().count();
        assert!(
            lines <= lines_max,
            "{name} has {lines} lines, at most {lines_max}"
        );
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for file in markdown_files().unwrap() {
        let folder = file.parent().unwrap_or(&file).to_owned();
        for link in links(&fs::read_to_string(&file).unwrap()) {
            if !folder.join(&link).exists() {
                wrong.push(format!("{} links to {link}, which is not there", shown(&file)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let Some((code, document)) = pair("crates/daemon/src/metrics.rs", "docs/METRICS.md") else {
        return;
    };
    let defined = words_after(&uncommented(&code), &format!("\"{METRIC_PREFIX}"), METRIC_PREFIX);
    let described = words_after(&document, &format!("`{METRIC_PREFIX}"), METRIC_PREFIX);
    assert!(
        !defined.is_empty(),
        "metrics.rs holds no string literal that starts with {METRIC_PREFIX}"
    );
    assert_agree(
        &defined,
        &described,
        "crates/daemon/src/metrics.rs",
        "docs/METRICS.md",
    );
}

#[test]
fn every_configuration_key_is_documented_and_every_documented_key_exists() {
    let Some((code, document)) = pair("crates/daemon/src/config.rs", "docs/CONFIG.md") else {
        return;
    };
    let defined: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.split_once(CONFIG_KEY_MARK))
        .filter_map(|(_, rest)| rest.split('`').next())
        .map(str::to_owned)
        .collect();
    // The first cell of a table's row, in backquotes.
    let described: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|rest| rest.split('`').next())
        .map(str::to_owned)
        .collect();
    assert!(
        !defined.is_empty(),
        "config.rs marks no field with \"{CONFIG_KEY_MARK}section.key`\""
    );
    assert_agree(
        &defined,
        &described,
        "crates/daemon/src/config.rs",
        "docs/CONFIG.md",
    );
}

/// Key bytes are constants: `const SESSION: u8 = 0x06;`. A comment `// group: name` starts a new space of
/// bytes, for a position in the key where other bytes are compared.
#[test]
fn every_key_byte_is_given_once() {
    let file = root().join("crates/store/src/keys.rs");
    if !file.exists() {
        return;
    }
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

#[test]
fn dependencies_are_read_from_every_kind_of_section() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n\
                    [dev-dependencies]\nd-e = { version = \"1\", features = [\n  \"f\",\n] }\n\
                    [target.'cfg(unix)'.dependencies]\ng = \"1\"\n[dependencies.h]\nversion = \"1\"\n[lints]\ni = true\n";
    assert_eq!(dependencies(manifest), ["a", "b", "d-e", "g", "h"]);
}

#[test]
fn key_bytes_are_read_with_their_group() {
    let code = "const A: u8 = 0x01;\npub const B: u8 = b'_';\nconst C: usize = 7;\n// group: second\nconst D: u8 = 1;\nconst E: u8 = A;\n";
    let read: Vec<_> = key_bytes(code)
        .into_iter()
        .map(|key| (key.group, key.name, key.value))
        .collect();
    let expected = [
        ("", "A", Some(1)),
        ("", "B", Some(b'_')),
        ("second", "D", Some(1)),
        ("second", "E", None),
    ];
    assert_eq!(
        read,
        expected.map(|(group, name, value)| (group.to_owned(), name.to_owned(), value))
    );
}

#[test]
fn a_word_is_named_only_where_it_stands_alone() {
    assert!(names("use rand::Rng;", "rand::"));
    assert!(!names("operand::new()", "rand::"));
    assert!(!names(code_of("let x = 1; // std::time is banned"), "std::time"));
    assert!(names(
        code_of("let url = \"http://x\"; std::time::Instant::now()"),
        "std::time"
    ));
}

// --- reading sources --------------------------------------------------------------------------------

struct KeyByte {
    group: String,
    name: String,
    /// `None` where the constant is not a literal.
    value: Option<u8>,
}

fn key_bytes(code: &str) -> Vec<KeyByte> {
    let mut group = String::new();
    let mut found = Vec::new();
    for line in code.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("// group: ") {
            group = name.to_owned();
        }
        let Some((_, definition)) = line.split_once("const ") else {
            continue;
        };
        let Some((name, value)) = definition.split_once(": u8 = ") else {
            continue;
        };
        let value = value.split(';').next().unwrap_or(value);
        found.push(KeyByte {
            group: group.clone(),
            name: name.to_owned(),
            value: byte(value.trim()),
        });
    }
    found
}

/// Reads `7`, `0x07`, `0b111` or `b'x'`.
fn byte(literal: &str) -> Option<u8> {
    if let Some(character) = literal
        .strip_prefix("b'")
        .and_then(|rest| rest.strip_suffix('\''))
    {
        return match character.as_bytes() {
            [byte] => Some(*byte),
            _ => None,
        };
    }
    let digits = literal.replace('_', "");
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        u8::from_str_radix(hexadecimal, 16).ok()
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u8::from_str_radix(binary, 2).ok()
    } else {
        digits.parse().ok()
    }
}

/// Gives the names in every dependency section of a manifest, in order.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push(name.to_owned());
            }
        } else if inside {
            let name: String = line
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
                .collect();
            if !name.is_empty() {
                found.push(name);
            }
        }
    }
    found
}

/// Gives a line without its comment. A `//` after a colon is part of an address.
fn code_of(line: &str) -> &str {
    let comment = line.match_indices("//").map(|(at, _)| at).find(|at| {
        let before = line.get(..*at).unwrap_or_default();
        !before.ends_with(':')
    });
    comment.and_then(|at| line.get(..at)).unwrap_or(line)
}

fn uncommented(code: &str) -> String {
    code.lines().map(code_of).collect::<Vec<_>>().join("\n")
}

/// Tells whether the word stands in the code and is not the end of a longer name.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Gives each word of [a-z0-9_] that begins with `prefix` where the text has `opening`.
fn words_after(text: &str, opening: &str, prefix: &str) -> BTreeSet<String> {
    text.split(opening)
        .skip(1)
        .map(|rest| {
            let rest = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_');
            prefix.chars().chain(rest).collect::<String>()
        })
        .filter(|word| word != prefix)
        .collect()
}

/// Gives the relative targets of a document's links, without anchors.
fn links(document: &str) -> Vec<String> {
    document
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .map(str::to_owned)
        .collect()
}

// --- finding files ----------------------------------------------------------------------------------

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// Gives both texts, or nothing while neither file is there yet; one without the other is an error.
fn pair(code: &str, document: &str) -> Option<(String, String)> {
    let texts = [code, document].map(|name| fs::read_to_string(root().join(name)).ok());
    match texts {
        [Some(code), Some(document)] => Some((code, document)),
        [None, None] => None,
        [code_text, _] => {
            let missing = if code_text.is_none() { code } else { document };
            assert!(missing.is_empty(), "{missing} is missing");
            None
        }
    }
}

fn assert_agree(code: &BTreeSet<String>, document: &BTreeSet<String>, code_name: &str, document_name: &str) {
    let undocumented: Vec<_> = code.difference(document).collect();
    let gone: Vec<_> = document.difference(code).collect();
    assert!(
        undocumented.is_empty() && gone.is_empty(),
        "only in {code_name}: {undocumented:?}\nonly in {document_name}: {gone:?}"
    );
}

fn rust_files() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in SOURCES {
        found.extend(rust_files_under(&root().join(folder))?);
    }
    Ok(found)
}

fn rust_files_under(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = files_under(folder)?;
    found.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    Ok(found)
}

fn markdown_files() -> io::Result<Vec<PathBuf>> {
    let mut found = files_under(&root().join("docs"))?;
    for entry in fs::read_dir(root())? {
        found.push(entry?.path());
    }
    found.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    Ok(found)
}

/// Gives the names of the folders in a folder, sorted.
fn folders(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// Gives every file below a folder, build output left out, sorted.
fn files_under(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                found.push(entry.path());
            } else if entry.file_name() != "target" {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
