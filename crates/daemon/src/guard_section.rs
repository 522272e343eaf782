//! `[guard]`: a guard as a file has it, in the protocol's names; money in dollars.

use machine::Guard;
use serde::Deserialize;
use wire::Invalid;
use wire::guard_config::{guard, shipped};
use wire::proto::shackle::v1::GuardConfig;

/// What a cluster's default guard is when it is formed. Absent keys are those of the shipped guard.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct GuardSection(pub GuardConfig);

impl Default for GuardSection {
    fn default() -> Self {
        Self(shipped())
    }
}

impl GuardSection {
    /// Reads the guard, by the same rules as one that comes over the wire.
    pub fn to_guard(&self) -> Result<Guard, Invalid> {
        if self.0.version != 0 {
            return Err(Invalid::new("version", "is counted by the cluster: leave it out"));
        }
        if !self.0.parent_guard_id.is_empty() {
            return Err(Invalid::new(
                "parent_guard_id",
                "the default guard is of no organization: leave it out",
            ));
        }
        guard(&self.0)
    }
}
