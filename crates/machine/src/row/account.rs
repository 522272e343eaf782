//! An account: what it was given, what is spent, what is held.

use decision::{Limit, NanoUsd};
use minicbor::{Decode, Encode};

/// One account. Available is granted − spent − held, and may be below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Account {
    #[n(0)]
    pub limit: Limit,
    #[n(1)]
    pub spent: NanoUsd,
    #[n(2)]
    pub held: NanoUsd,
}

impl Account {
    /// An account with a limit and nothing drawn on it.
    pub fn opened(limit: Limit) -> Self {
        Self {
            limit,
            spent: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
        }
    }

    /// What it was given: none where it is unlimited, zero where it is suspended.
    pub fn granted(&self) -> Option<NanoUsd> {
        match self.limit {
            Limit::Amount(amount) => Some(amount),
            Limit::Suspended => Some(NanoUsd::ZERO),
            Limit::Unlimited => None,
        }
    }

    /// What may still be held; below zero in overdraft, none where it is unlimited.
    pub fn available(&self) -> Option<NanoUsd> {
        let used = self.spent.saturating_add(self.held);
        match self.limit {
            Limit::Amount(amount) => Some(amount.saturating_sub(used)),
            Limit::Suspended => Some(NanoUsd::ZERO.saturating_sub(used)),
            Limit::Unlimited => None,
        }
    }

    /// How far it is below zero.
    pub fn overdraft(&self) -> NanoUsd {
        match self.available() {
            Some(left) if left < NanoUsd::ZERO => NanoUsd::ZERO.saturating_sub(left),
            Some(_) | None => NanoUsd::ZERO,
        }
    }
}
