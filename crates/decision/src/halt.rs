//! How hard a kill switch stops.

use minicbor::{Decode, Encode};

/// A stronger mode takes the place of a weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum HaltMode {
    /// No new sessions.
    #[n(0)]
    Drain,
    /// Whatever would be allowed is asked for.
    #[n(1)]
    Pause,
    /// Nothing is allowed.
    #[n(2)]
    Halt,
}

impl HaltMode {
    pub const ALL: [Self; 3] = [Self::Drain, Self::Pause, Self::Halt];

    /// The mode as operators write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Halt => "halt",
            Self::Pause => "pause",
            Self::Drain => "drain",
        }
    }

    /// The mode of a word; none for an unknown one.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}
