//! Files of the workspace, and what their text says without being compiled.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Folders that hold our Rust.
pub(crate) const SOURCES: [&str; 3] = ["crates", "tests", "chaos"];

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

pub(crate) struct KeyByte {
    pub(crate) group: String,
    pub(crate) name: String,
    /// `None` where the constant is not a literal.
    pub(crate) value: Option<u8>,
}

pub(crate) fn key_bytes(code: &str) -> Vec<KeyByte> {
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
pub(crate) fn byte(literal: &str) -> Option<u8> {
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
pub(crate) fn dependencies(manifest: &str) -> Vec<String> {
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
pub(crate) fn code_of(line: &str) -> &str {
    let comment = line.match_indices("//").map(|(at, _)| at).find(|at| {
        let before = line.get(..*at).unwrap_or_default();
        !before.ends_with(':')
    });
    comment.and_then(|at| line.get(..at)).unwrap_or(line)
}

pub(crate) fn uncommented(code: &str) -> String {
    code.lines().map(code_of).collect::<Vec<_>>().join("\n")
}

/// Tells whether the word stands in the code and is not the end of a longer name.
pub(crate) fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    })
}

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

pub(crate) fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

pub(crate) fn rust_files() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in SOURCES {
        found.extend(rust_files_under(&root().join(folder))?);
    }
    Ok(found)
}

pub(crate) fn rust_files_under(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = files_under(folder)?;
    found.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    Ok(found)
}

pub(crate) fn markdown_files() -> io::Result<Vec<PathBuf>> {
    let mut found = files_under(&root().join("docs"))?;
    for entry in fs::read_dir(root())? {
        found.push(entry?.path());
    }
    found.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    Ok(found)
}

/// Gives the names of the folders in a folder, sorted.
pub(crate) fn folders(folder: &Path) -> io::Result<Vec<String>> {
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
pub(crate) fn files_under(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
