//! An audit export, read back as plain values.

use std::path::Path;

use serde_json::Value;

/// One line of an export: `{"entry": …}`, `{"seal": …}` or `{"key": …}`.
pub type Line = Value;

/// Reads the entries of an export, in order; signatures and keys are left out.
pub fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).expect("an export");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .filter_map(|mut line| line.get_mut("entry").map(Value::take))
        .collect()
}

/// The entry of a sequence, which counts from 1 without gaps.
pub fn at(chain: &[Line], sequence: u64) -> &Line {
    let place = usize::try_from(sequence - 1).expect("a place");
    let entry = &chain[place];
    assert_eq!(entry["sequence"], sequence);
    entry
}
