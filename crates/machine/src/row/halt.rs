//! The kill switch at one scope.

use decision::{HaltMode, Timestamp};
use minicbor::{Decode, Encode};

/// Changes of a halt that its row keeps.
pub const HALT_HISTORY_MAX: usize = 32;

/// The kill switch at one scope, engaged or released.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Halt {
    #[n(0)]
    pub engaged: bool,
    /// The first engagement's; later ones join the history.
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub ticket: String,
    #[n(3)]
    pub by: String,
    #[n(4)]
    pub at: Timestamp,
    /// The halt epoch of the newest change.
    #[n(5)]
    pub epoch: u64,
    /// The newest `HALT_HISTORY_MAX` changes; the audit log has all.
    #[n(6)]
    pub history: Vec<HaltChange>,
    #[n(7)]
    pub mode: HaltMode,
    /// When a drain ends by itself.
    #[n(8)]
    pub until: Option<Timestamp>,
    /// Its release needs two people.
    #[n(9)]
    pub two_person: bool,
    /// The first of the two.
    #[n(10)]
    pub release_asked: Option<ReleaseAsked>,
    /// A drain was engaged as well: below a pause it goes on.
    #[n(11)]
    pub drains: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReleaseAsked {
    #[n(0)]
    pub by: String,
    #[n(1)]
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct HaltChange {
    #[n(0)]
    pub engaged: bool,
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub by: String,
    #[n(3)]
    pub at: Timestamp,
    #[n(4)]
    pub epoch: u64,
    #[n(5)]
    pub ticket: String,
}
