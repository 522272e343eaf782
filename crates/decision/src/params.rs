//! A call's arguments: canonical form, digest, and whether they can be judged (docs/SPEC.md 8).

use std::borrow::Cow;

use crate::behaviour::{NUMBERS_MAX, Number};
use crate::digest::Digest;
use crate::float::{canonical_float, order_image};
use crate::json::{InvalidJson, Value};

/// Values nest at most this deep below the arguments' object (R1).
pub const DEPTH_MAX: u32 = 64;

/// Keys whose value tells what a call depends on.
const CONTEXT_KEYS: [&str; 5] = ["ctx", "context", "opaque", "raw_context", "blob"];
/// Values that say that nobody can tell.
const MARKERS: [&str; 4] = ["opaque", "unknown", "unevaluable", "untestable"];

/// Holds what the log carries of a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamFacts {
    /// SHA-256 of the canonical form; unset where malformed.
    pub digest: Option<Digest>,
    /// R1.
    pub malformed: bool,
    /// R9; false where malformed.
    pub opaque: bool,
}

/// Inspects the arguments as the edge does: a JSON object, read strictly, looked through at any depth.
pub fn inspect(params_json: &[u8]) -> ParamFacts {
    Inspected::read(params_json).facts
}

/// Holds a call's arguments as they were read, for what is derived from their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected<'a> {
    pub facts: ParamFacts,
    /// The arguments' object; unset where malformed.
    pub value: Option<Value<'a>>,
}

impl Inspected<'_> {
    /// Reads the arguments once, as `inspect` does.
    pub fn read(params_json: &[u8]) -> Inspected<'_> {
        match canonicalize(params_json) {
            Ok((value, canonical)) => Inspected {
                facts: ParamFacts {
                    digest: Some(Digest::of(canonical.as_bytes())),
                    malformed: false,
                    opaque: is_opaque(&value, Looking::Anywhere),
                },
                value: Some(value),
            },
            Err(_) => Inspected {
                facts: ParamFacts {
                    digest: None,
                    malformed: true,
                    opaque: false,
                },
                value: None,
            },
        }
    }

    /// Gives what a retry storm looks at (Q6): the arguments' own numbers, the first by name.
    pub fn numbers(&self) -> Vec<Number> {
        let Some(Value::Object(fields)) = &self.value else {
            return Vec::new();
        };
        fields
            .iter()
            .filter_map(|(name, field)| match field {
                Value::Number(text) => order_image(text).map(|value| Number::new(name, value)),
                _ => None,
            })
            .take(NUMBERS_MAX)
            .collect()
    }
}

/// Gives the canonical form of the arguments.
pub fn canonical_params(params_json: &[u8]) -> Result<String, InvalidParams> {
    canonicalize(params_json).map(|(_, canonical)| canonical)
}

/// Says why arguments have no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParams {
    #[error(transparent)]
    Json(#[from] InvalidJson),
    #[error("the arguments are not an object")]
    NotAnObject,
    #[error("a number is beyond the range of a double")]
    NotFinite,
}

fn canonicalize(params_json: &[u8]) -> Result<(Value<'_>, String), InvalidParams> {
    let value = Value::parse(params_json, DEPTH_MAX)?;
    if !matches!(value, Value::Object(_)) {
        return Err(InvalidParams::NotAnObject);
    }
    let canonical = canonical_json(&value).ok_or(InvalidParams::NotFinite)?;
    Ok((value, canonical))
}

/// Writes sorted keys, no spaces, UTF-8 unescaped, numbers the reference's way; `None` if not finite.
pub fn canonical_json(value: &Value<'_>) -> Option<String> {
    let mut out = String::new();
    write_value(&mut out, value)?;
    Some(out)
}

fn write_value(out: &mut String, value: &Value<'_>) -> Option<()> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(text) => out.push_str(&canonical_number(text)?),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            let mut separator = "";
            for item in items {
                out.push_str(separator);
                write_value(out, item)?;
                separator = ",";
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            let mut separator = "";
            for (key, field) in fields {
                out.push_str(separator);
                write_string(out, key);
                out.push(':');
                write_value(out, field)?;
                separator = ",";
            }
            out.push('}');
        }
    }
    Some(())
}

/// Gives integers of any length as they are, and floats as the shortest text of their double.
pub(crate) fn canonical_number(text: &str) -> Option<Cow<'_, str>> {
    if text.contains(['.', 'e', 'E']) {
        canonical_float(text).map(Cow::Owned)
    } else {
        // An integer has no negative zero.
        Some(Cow::Borrowed(if text == "-0" { "0" } else { text }))
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            plain => out.push(plain),
        }
    }
    out.push('"');
}

/// Says how far the search for opaque context goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looking {
    /// Through lists at any depth (the edge).
    Anywhere,
    /// Only at objects directly within a list (the reference).
    OneListLevel,
}

/// R9: tells whether a context key holds a marker.
pub fn is_opaque(value: &Value<'_>, looking: Looking) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, field)| {
            let named = CONTEXT_KEYS.contains(&fold(key).as_str()) && holds_marker(field, looking);
            named || is_opaque_within(field, looking)
        }),
        Value::Array(_) => is_opaque_within(value, looking),
        _ => false,
    }
}

fn is_opaque_within(field: &Value<'_>, looking: Looking) -> bool {
    match field {
        Value::Array(items) => items.iter().any(|item| match (item, looking) {
            (Value::Array(_), Looking::OneListLevel) => false,
            _ => is_opaque(item, looking),
        }),
        _ => is_opaque(field, looking),
    }
}

fn holds_marker(value: &Value<'_>, looking: Looking) -> bool {
    match value {
        Value::String(text) => MARKERS.contains(&fold(text).as_str()),
        Value::Array(items) if looking == Looking::Anywhere => {
            items.iter().any(|item| holds_marker(item, looking))
        }
        _ => false,
    }
}

/// Trims and case-folds as the reference does; only what can become a letter of the words above matters.
pub fn fold(text: &str) -> String {
    let separators = '\u{1c}'..='\u{1f}';
    text.trim_matches(|c: char| c.is_whitespace() || separators.contains(&c))
        .to_lowercase()
        .replace('ſ', "s")
        .replace(['ﬅ', 'ﬆ'], "st")
}
