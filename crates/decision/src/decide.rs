//! The rules, in order.

use minicbor::{Decode, Encode};

use crate::verdict::{Reason, Verdict};

/// Holds the answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: Reason,
    pub rule: Rule,
    /// The reasons of the rules that matched after the first, in order.
    pub also: Vec<Reason>,
    /// A person's approval released the call: the approval is consumed with this ALLOW.
    pub released: bool,
}

/// Names the rule that answered (design/20 "The whole order").
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Rule {
    #[n(0)]
    K1,
    #[n(1)]
    K2,
    #[n(2)]
    R1,
    #[n(3)]
    R2,
    #[n(4)]
    R3,
    #[n(5)]
    R4,
    #[n(6)]
    P1,
    #[n(7)]
    P2,
    #[n(8)]
    P3,
    #[n(9)]
    R5,
    #[n(10)]
    R5b,
    #[n(11)]
    Q1,
    #[n(12)]
    Q2,
    #[n(13)]
    Q3,
    /// The sliding rate.
    #[n(14)]
    Q4Rate,
    /// The tool's window.
    #[n(15)]
    Q4Window,
    #[n(16)]
    Q5,
    #[n(17)]
    R6,
    #[n(18)]
    Q6,
    #[n(19)]
    R7,
    #[n(20)]
    R8,
    #[n(21)]
    R9,
    #[n(22)]
    X,
    #[n(23)]
    R10,
}

/// Holds a set of rules in one word.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cbor(transparent)]
pub struct RuleSet(#[n(0)] u32);

impl RuleSet {
    pub const EMPTY: RuleSet = RuleSet(0);
}
