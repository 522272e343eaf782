//! Results on standard output: a table for people, JSON with the same names for programs.

use serde_json::Value;

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
            let width = fields.keys().map(String::len).max().unwrap_or(0);
            for (name, value) in fields {
                crate::print::outln!("{name:width$}  {}", cell(value));
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
                        .map(|column| cell(row.get(*column).unwrap_or(&Value::Null)))
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

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
