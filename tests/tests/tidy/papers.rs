//! Documents agree with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::code::{folders, markdown_files, names, root, rust_files, rust_files_under, shown, uncommented};
use crate::documents::{
    amounts, defined, is_off_the_map, is_path, is_property, links, map, quoted, rows_of, subject, words,
    words_after,
};

#[test]
fn documents_fit_in_one_sitting() {
    for (name, lines_max) in DOCUMENT_LINES_MAX {
        let lines = text_of(name).lines().count();
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

/// The section "Map" of docs/ARCHITECTURE.md: a paragraph a crate, `**name**` at its start, every source file in it by
/// its name inside `src`, or by its folder (`row/`). Roots, and files of tests alone, are left out.
#[test]
fn the_map_has_every_source_file_and_nothing_else() {
    let map = map(&text_of(ARCHITECTURE));
    let mut wrong = Vec::new();
    for name in folders(&root().join("crates")).unwrap() {
        let source = root().join("crates").join(&name).join("src");
        let Some(named) = map.get(&name) else {
            wrong.push(format!("{ARCHITECTURE} \"Map\" has no paragraph **{name}**"));
            continue;
        };
        for entry in named.iter().filter(|entry| !source.join(entry).exists()) {
            wrong.push(format!("{name}: `{entry}` is on the map and not in src"));
        }
        for file in rust_files_under(&source).unwrap() {
            let inside = file.strip_prefix(&source).unwrap_or(&file).display().to_string();
            let is_named = |entry: &String| {
                *entry == inside || entry.ends_with('/') && inside.starts_with(entry.as_str())
            };
            if !is_off_the_map(&inside) && !named.iter().any(is_named) {
                wrong.push(format!(
                    "{name}: `{inside}` is not on the map: {}",
                    subject(&file)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A path in backquotes that begins with a crate, as `machine/apply`, or with a folder of tests.
#[test]
fn paths_that_documents_name_exist() {
    let crates = folders(&root().join("crates")).unwrap();
    let mut wrong = Vec::new();
    for file in markdown_files().unwrap() {
        for path in quoted(&fs::read_to_string(&file).unwrap()).filter(|text| is_path(text)) {
            let (first, rest) = path.split_once('/').unwrap_or((&path, ""));
            let places = if crates.iter().any(|name| name == first) {
                let inside = root().join("crates").join(first).join("src").join(rest);
                vec![
                    inside.with_extension("rs"),
                    inside,
                    root().join("crates").join(&path),
                ]
            } else if ["crates", "tests", "chaos", "docs", "proto"].contains(&first) {
                vec![root().join(&path)]
            } else {
                continue;
            };
            if !places.iter().any(|place| place.exists()) {
                wrong.push(format!("{} names {path}, which is not there", shown(&file)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// SPEC 19: each row begins with its number, D1 or I1, and ends with the tests that hold it.
#[test]
fn properties_and_invariants_name_tests_that_exist() {
    let sources: Vec<_> = rust_files()
        .unwrap()
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let rows = rows_of(&text_of(SPEC), "## 19 ");
    let mut wrong = Vec::new();
    let mut numbers = BTreeSet::new();
    for cells in rows
        .iter()
        .filter(|cells| cells.first().is_some_and(|cell| is_property(cell)))
    {
        let (Some(number), Some(held_by)) = (cells.first(), cells.last()) else {
            continue;
        };
        numbers.insert(number.clone());
        let tests: Vec<_> = quoted(held_by).collect();
        if tests.is_empty() {
            wrong.push(format!("{number} names no test"));
        }
        for test in tests {
            if !sources.iter().any(|code| names(code, &format!("fn {test}("))) {
                wrong.push(format!("{number} names the test {test}, which is not there"));
            }
        }
    }
    assert!(numbers.len() > 10, "{SPEC} 19 has its tables: {numbers:?}");
    // What comments of tests cite.
    for file in rust_files().unwrap() {
        let text = fs::read_to_string(&file).unwrap();
        for cited in text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("//"))
            .flat_map(words)
        {
            if is_property(&cited) && !numbers.contains(&cited) {
                wrong.push(format!(
                    "{} cites {cited}, which {SPEC} 19 does not have",
                    shown(&file)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// SPEC 18: the numbers of the second column are those of the constants that the third names, in their order. A name is
/// `crate::NAME` of a constant, `crate::field` of a default, `crate::Type` of a name's longest length, or a
/// configuration key.
#[test]
fn limits_that_the_specification_names_are_those_of_the_code() {
    let mut code = BTreeMap::new();
    for name in folders(&root().join("crates")).unwrap() {
        let files = rust_files_under(&root().join("crates").join(&name).join("src")).unwrap();
        let kept = files
            .iter()
            .filter(|file| !is_off_the_map(&file.display().to_string()) || file.ends_with("lib.rs"));
        let texts = kept.map(|file| uncommented(&fs::read_to_string(file).unwrap()));
        code.insert(name, texts.collect::<Vec<_>>().join("\n"));
    }
    let mut wrong = Vec::new();
    let mut held = 0;
    for cells in rows_of(&text_of(SPEC), "## 18 ") {
        let [what, values, sources, ..] = cells.as_slice() else {
            continue;
        };
        let names: Vec<_> = quoted(sources).collect();
        let values = amounts(values);
        if !names.is_empty() && names.len() != values.len() {
            wrong.push(format!("{what}: {} numbers, {} names", values.len(), names.len()));
        }
        for (name, value) in names.iter().zip(values) {
            let (place, name) = match (name.split_once("::"), name.split_once('.')) {
                (Some((place, name)), _) => (place, name),
                (None, Some((_, key))) => ("daemon", key),
                (None, None) => ("", name.as_str()),
            };
            let found = code
                .get(place)
                .map(|code| defined(code, name))
                .unwrap_or_default();
            if found != BTreeSet::from([value]) {
                wrong.push(format!("{what}: {value} here, {place}::{name} is {found:?}"));
            }
            held += 1;
        }
    }
    assert!(held > 10, "{SPEC} 18 has its table");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let [code, document] = ["crates/daemon/src/metrics.rs", "docs/METRICS.md"].map(text_of);
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
    let [code, document] = ["crates/daemon/src/config.rs", "docs/CONFIG.md"].map(text_of);
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

/// Documents that are read in one sitting, and their longest length.
const DOCUMENT_LINES_MAX: [(&str, usize); 2] = [("README.md", 150), ("docs/ARCHITECTURE.md", 480)];

const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";

const SPEC: &str = "docs/SPEC.md";

/// Marks a configuration key in the comment of its field: a line with "config key: `limits.queue`".
const CONFIG_KEY_MARK: &str = "config key: `";

const METRIC_PREFIX: &str = "haltgate_";

fn text_of(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn assert_agree(code: &BTreeSet<String>, document: &BTreeSet<String>, code_name: &str, document_name: &str) {
    let undocumented: Vec<_> = code.difference(document).collect();
    let gone: Vec<_> = document.difference(code).collect();
    assert!(
        undocumented.is_empty() && gone.is_empty(),
        "only in {code_name}: {undocumented:?}\nonly in {document_name}: {gone:?}"
    );
}
