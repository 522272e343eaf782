//! Texts in which `*` stands for anything, for tool names, tags and arguments.

use std::fmt;

use minicbor::{Decode, Encode};

use crate::id::ToolName;

/// Holds a text in which each `*` stands for any number of characters, none included.
///
/// Every other character stands for itself, in its case. A text with `*` can only be matched by one.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(transparent)]
pub struct Pattern(#[n(0)] String);

impl Pattern {
    /// The longest pattern, in bytes.
    pub const LEN_MAX: usize = 256;

    /// Takes 1 to 256 bytes without control characters.
    pub fn parse(text: &str) -> Result<Pattern, InvalidPattern> {
        if text.is_empty() || text.len() > Self::LEN_MAX {
            return Err(InvalidPattern::Length);
        }
        checked(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether the whole text fits, in time linear in both lengths.
    ///
    /// Each piece between two stars is taken where it is found first: a later place can only leave less
    /// text for the pieces after it, so there is nothing to go back to.
    pub fn matches(&self, text: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == text;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(inner) = text.strip_prefix(head).and_then(|left| left.strip_suffix(tail)) else {
            return false;
        };
        middle
            .split('*')
            .try_fold(inner, |left, piece| {
                left.split_once(piece).map(|(_, behind)| behind)
            })
            .is_some()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names tools: one by its exact name, or all whose name fits a pattern with `*`.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(transparent)]
pub struct ToolPattern(#[n(0)] Pattern);

impl ToolPattern {
    /// Takes what a tool may be called, with or without `*`.
    pub fn parse(text: &str) -> Result<ToolPattern, InvalidPattern> {
        // A tool's name counts characters, so every name is a pattern too.
        if text.is_empty() || text.chars().count() > ToolName::LEN_MAX {
            return Err(InvalidPattern::Length);
        }
        checked(text).map(ToolPattern)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Tells whether the tool is one of those named.
    pub fn matches(&self, tool: &ToolName) -> bool {
        self.0.matches(tool.as_str())
    }

    /// Tells whether one tool alone is named, so that a list can put it before wider patterns.
    pub fn is_exact(&self) -> bool {
        !self.as_str().contains('*')
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn checked(text: &str) -> Result<Pattern, InvalidPattern> {
    if text.chars().any(char::is_control) {
        return Err(InvalidPattern::Control);
    }
    Ok(Pattern(text.to_owned()))
}

/// Says why a text is not a pattern; the caller fixes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    #[error("a pattern is 1 to 256 bytes, that of a tool 1 to 128 characters")]
    Length,
    #[error("a pattern has no control characters")]
    Control,
}
