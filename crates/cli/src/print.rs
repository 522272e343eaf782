//! Results on standard output: a table for people, JSON with the same names for programs. A time is `…_ns` in JSON,
//! and UTC without that ending in a table.

use serde_json::Value;
use time::OffsetDateTime;

use crate::args::Output;

/// Prints a line on standard output; ends quietly where nobody reads on.
macro_rules! outln {
    ($($words:tt)*) => { $crate::print::out(format_args!($($words)*)) };
}
pub(crate) use outln;

/// Writes what `outln!` says. A reader that has seen enough (`head`) is no failure.
pub fn out(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints one object: `name: value` lines, or one JSON line.
pub fn object(output: Output, value: &Value) {
    match output {
        Output::Json => crate::print::outln!("{value}"),
        Output::Table => {
            let Some(fields) = value.as_object() else {
                return crate::print::outln!("{}", cell(value));
            };
            let lines: Vec<(&str, String)> = fields
                .iter()
                .map(|(name, value)| match name.strip_suffix(NANOS) {
                    Some(name) => (name, time_cell(value)),
                    None => (name.as_str(), cell(value)),
                })
                .collect();
            let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, value) in lines {
                crate::print::outln!("{name:width$}  {value}");
            }
        }
    }
}

/// Prints a list of objects: a table of their fields, or one JSON array.
pub fn list(output: Output, rows: &[Value], columns: &[&str]) {
    match output {
        Output::Json => crate::print::outln!("{}", Value::from(rows.to_vec())),
        Output::Table => {
            let texts: Vec<Vec<String>> = rows
                .iter()
                .map(|row| {
                    columns
                        .iter()
                        .map(|column| match row.get(*column) {
                            Some(value) => cell(value),
                            None => time_cell(row.get(format!("{column}{NANOS}")).unwrap_or(&Value::Null)),
                        })
                        .collect()
                })
                .collect();
            let widths: Vec<usize> = columns
                .iter()
                .enumerate()
                .map(|(place, column)| {
                    let cells = texts
                        .iter()
                        .filter_map(|row| row.get(place))
                        .map(|text| text.chars().count());
                    cells.chain([column.len()]).max().unwrap_or(0)
                })
                .collect();
            line(columns.iter().map(|column| column.to_uppercase()), &widths);
            for row in texts {
                line(row.into_iter(), &widths);
            }
        }
    }
}

fn line(cells: impl Iterator<Item = String>, widths: &[usize]) {
    let cells: Vec<String> = cells
        .zip(widths)
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    crate::print::outln!("{}", cells.join("  ").trim_end());
}

/// How the name of a time ends in JSON.
const NANOS: &str = "_ns";

/// Nanoseconds since 1970 as UTC to the second (RFC 3339); `-` for 0, which is no time.
pub fn utc(nanos: i128) -> String {
    match OffsetDateTime::from_unix_timestamp_nanos(nanos) {
        _ if nanos == 0 => "-".to_owned(),
        Ok(at) => format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        ),
        Err(_) => nanos.to_string(),
    }
}

fn time_cell(value: &Value) -> String {
    match value.as_i64() {
        Some(nanos) => utc(i128::from(nanos)),
        None => cell(value),
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn a_time_is_utc_to_the_second() {
        assert_eq!(utc(1_709_210_096_999_999_999), "2024-02-29T12:34:56Z");
        assert_eq!(utc(0), "-");
    }
}
