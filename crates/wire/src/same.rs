//! Enums that have the same values here and on the wire. A value that one side lacks does not compile.

use decision::DenyReason;
use decision::facts::Mode;
use machine::row::SessionStatus;
use machine::{BudgetScope, LatchScope, PauseScope, TripPolicy, Unsettled};

use crate::invalid::{Invalid, known};
use crate::proto::shackle::v1 as proto;

/// A row reads: the function that writes, the one that reads, our enum, the wire's, and their values in pairs.
macro_rules! same {
    ($($write:ident $read:ident $ours:ident $theirs:ident { $($our:ident = $their:ident),* })*) => {$(
        pub const fn $write(value: $ours) -> proto::$theirs {
            match value { $($ours::$our => proto::$theirs::$their,)* }
        }

        pub fn $read(field: &'static str, value: i32) -> Result<$ours, Invalid> {
            Ok(match known(field, value)? { $(proto::$theirs::$their => $ours::$our,)* })
        }
    )*};
}

same! {
    deny_reason read_deny_reason DenyReason DenyReason {
        Unspecified = Unspecified, BudgetExhausted = BudgetExhausted, MaxRepeatExceeded = MaxRepeatExceeded,
        CircuitOpen = CircuitOpen, WindowExceeded = WindowExceeded, GlobalLimit = GlobalLimit,
        PolicyViolation = PolicyViolation, AuthFailed = AuthFailed,
        OrganizationQuotaExceeded = OrganizationQuotaExceeded, ParentGuardDenied = ParentGuardDenied,
        RunHalted = RunHalted, BudgetOverrun = BudgetOverrun
    }
    session_status read_session_status SessionStatus SessionStatus {
        Active = Active, Paused = Paused, Terminated = Terminated, Stale = Stale
    }
    budget_scope read_budget_scope BudgetScope BudgetScope {
        Session = PerSession, Agent = PerAgent, Organization = PerOrganization
    }
    unsettled read_unsettled Unsettled UnsettledPolicy { Charge = Charge, Release = Release }
    trip_policy read_trip_policy TripPolicy TripPolicy { Behaviour = Behaviour, Seed = Seed, Never = Never }
    pause_scope read_pause_scope PauseScope PauseScope { Session = Session, Call = Call }
    latch_scope read_latch_scope LatchScope LatchScope { Session = Session, Agent = Agent }
    guard_mode read_guard_mode Mode GuardMode { Enforce = Enforce, Observe = Observe }
}
