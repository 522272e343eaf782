//! The versions of the rules, and what each brought. `apply` behaves as the version that the cluster's row says is
//! active at its place in the log, never as the newest that the binary has.

use crate::row::Fault;

/// The newest version that this binary has. Raised by every change that changes an answer or an entry; the change
/// asks `Feature::is_in` whether it holds.
pub const VERSION: u32 = if cfg!(feature = "made-up-version") { 4 } else { 3 };
/// The oldest version that this binary still behaves as: that of the release before.
pub const OLDEST: u32 = 3;

/// What not every version from `OLDEST` on has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Exists in builds for tests of mixed versions alone: a session's end is recorded in other words.
    MadeUp,
}

impl Feature {
    /// The first version that has it.
    const fn since(self) -> u32 {
        match self {
            Self::MadeUp => 4,
        }
    }

    pub const fn is_in(self, version: u32) -> bool {
        version >= self.since()
    }
}

/// Says whether this binary can behave as a version.
///
/// # Errors
/// It cannot: the node must not run, and its data is whole.
pub fn check(version: u32) -> Result<(), Fault> {
    if (OLDEST..=VERSION).contains(&version) {
        return Ok(());
    }
    Err(Fault::Version {
        needs: version,
        oldest: OLDEST,
        newest: VERSION,
    })
}
