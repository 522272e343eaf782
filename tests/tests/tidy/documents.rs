//! What documents say, read line by line: the map, tables, names in backquotes, numbers with their units.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

#[test]
fn limits_are_read_with_their_units() {
    assert_eq!(amounts("32 pairs, 64-byte keys, 1,000/s"), [32, 64, 1_000]);
    assert_eq!(
        amounts("1 MiB, 64 KiB; 24 h, 90 s, 250 ms"),
        [1 << 20, 64 << 10, 86_400_000, 90_000, 250]
    );
    let code = "pub const A: usize = 64 << 10;\nstruct B { c: u32 }\nB {\nc: 8 * 1_024,\n}\n\
                const D: Duration = Duration::from_secs(24 * 3600);\n/// Doc.\nid!(\nToolName, \"tool_name\", 128, \"\")";
    let of = |name| defined(code, name);
    assert_eq!(of("A"), BTreeSet::from([65_536]));
    assert_eq!(of("c"), BTreeSet::from([8_192]));
    assert_eq!(of("D"), BTreeSet::from([86_400_000]));
    assert_eq!(of("ToolName"), BTreeSet::from([128]));
    assert_eq!(of("E"), BTreeSet::new());
}

/// Gives, a crate, what its paragraph of the section "Map" names in backquotes.
pub(crate) fn map(document: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut of = String::new();
    for line in section(document, "## Map") {
        if let Some((name, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
            name.clone_into(&mut of);
        }
        let entries = quoted(line).filter(|text| text.ends_with(".rs") || text.ends_with('/'));
        found.entry(of.clone()).or_default().extend(entries);
    }
    found
}

/// Gives the lines of a section, its subsections included, without its heading.
pub(crate) fn section<'a>(document: &'a str, heading: &'a str) -> impl Iterator<Item = &'a str> {
    let after = document
        .lines()
        .skip_while(move |line| !line.starts_with(heading))
        .skip(1);
    after.take_while(|line| !line.starts_with("## "))
}

/// Gives the cells of the rows of a section's tables, without their headings' lines.
pub(crate) fn rows_of(document: &str, heading: &str) -> Vec<Vec<String>> {
    let rows = section(document, heading).filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

/// Gives what stands in backquotes, but for fenced blocks.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    let plain: Vec<_> = text
        .lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fence && !fenced
        })
        .collect();
    let parts: Vec<_> = plain.join("\n").split('`').map(str::to_owned).collect();
    parts.into_iter().skip(1).step_by(2)
}

pub(crate) fn is_path(text: &str) -> bool {
    text.contains('/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c))
}

/// D1, D2 … and I1, I2 …
pub(crate) fn is_property(text: &str) -> bool {
    let digits = text.strip_prefix(['D', 'I']).unwrap_or_default();
    !digits.is_empty() && digits.len() < 3 && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A crate's root, or what only tests compile.
pub(crate) fn is_off_the_map(inside: &str) -> bool {
    let mut parts = inside.split('/');
    ["lib.rs", "main.rs", "verify/flip.rs"].contains(&inside)
        || parts.any(|part| ["tests", "tests.rs"].contains(&part))
}

/// The first words of a file's own comment, for whoever writes its line on the map.
pub(crate) fn subject(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().next().and_then(|line| line.strip_prefix("//! "));
    line.unwrap_or("it has no comment at its head").to_owned()
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_owned)
        .collect()
}

/// Gives the numbers of a text with their units: bytes, or milliseconds.
pub(crate) fn amounts(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(at..).unwrap_or_default();
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != ',')
            .unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let unit: String = after
            .strip_prefix(' ')
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_alphabetic)
            .collect();
        let scale = match unit.as_str() {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "s" => 1_000,
            "h" => 3_600_000,
            _ => 1,
        };
        found.extend(
            digits
                .replace(',', "")
                .parse::<u64>()
                .map(|number| number * scale),
        );
        rest = after;
    }
    found
}

/// Gives the values that code gives to a constant or a field of this name, or to the length of a type of names.
pub(crate) fn defined(code: &str, name: &str) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for line in code.lines().map(str::trim) {
        let constant = line
            .split_once("const ")
            .and_then(|(_, rest)| rest.strip_prefix(name)?.split_once(" = "));
        let field = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        let type_of_names = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(", \"")?.split_once("\", "));
        let value = constant
            .map(|(_, value)| value)
            .or(field)
            .or(type_of_names.map(|(_, rest)| rest));
        let value = value.and_then(|text| text.split([';', ',']).next());
        found.extend(value.and_then(worth));
    }
    found
}

/// Works out `8 * 1_024`, `64 << 10` and `Duration::from_secs(90)`; time in milliseconds.
pub(crate) fn worth(text: &str) -> Option<u64> {
    let (text, scale) = match text.split_once("::from_secs(") {
        Some((_, inside)) => (inside.strip_suffix(')')?, 1_000),
        None => text
            .split_once("::from_millis(")
            .map_or(Some((text, 1)), |(_, inside)| {
                Some((inside.strip_suffix(')')?, 1))
            })?,
    };
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    let value = match text.split_once("<<") {
        Some((number_, bits)) => number(number_)?.checked_shl(number(bits)?.try_into().ok()?)?,
        None => text.split('*').map(number).product::<Option<u64>>()?,
    };
    value.checked_mul(scale)
}

/// Gives the relative targets of a document's links, without anchors.
pub(crate) fn links(document: &str) -> Vec<String> {
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

/// Gives each word of [a-z0-9_] that begins with `prefix` where the text has `opening`.
pub(crate) fn words_after(text: &str, opening: &str, prefix: &str) -> BTreeSet<String> {
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
