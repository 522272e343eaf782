//! Money set aside for one call.

use decision::{NanoUsd, Timestamp};
use minicbor::{Decode, Encode};

use crate::row::guard::Unsettled;
use crate::scope::AccountId;

/// Money set aside for a call that runs. The row outlives its expiry, for a late settlement.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// What was held when the call was allowed.
    #[n(0)]
    pub amount: NanoUsd,
    /// What of it is still in the accounts' `held`.
    #[n(1)]
    pub open: NanoUsd,
    /// What the accounts' `spent` has of it.
    #[n(6)]
    pub charged: NanoUsd,
    /// The accounts it was taken from, innermost first.
    #[n(2)]
    pub accounts: Vec<AccountId>,
    #[n(3)]
    pub expires_at: Timestamp,
    #[n(4)]
    pub unsettled: Unsettled,
    #[n(5)]
    pub at_least: bool,
}
