//! What may run: the rules of SP/1.0 and ours, in one order, over facts that were looked up before.
//!
//! Pure and total: the same facts give the same answer on every replica, and every call gets one.
//! Nothing here reads a clock, draws a number, or waits.
//!
//! ```text
//!   params_json ──► params::Inspected ──► digest, malformed, opaque ─┐
//!        └──► policy::evaluate ──► denied, asks, cost ───────────────┤
//!   last calls, numbers ──► behaviour ──► retry_storm, loop_… ───────┤
//!   counters, windows, draw ──► limits ──► timed_out, window_…  ─────┼─► facts::Facts
//!   session, accounts, halts, approval, guard ───────────────────────┘        │
//!                                                                             ▼
//!   Decision { verdict, reason, rule, also, released } ◄── K1 … R10 ── decide::decide
//! ```

pub mod behaviour;
pub mod decide;
pub mod digest;
pub mod facts;
mod float;
pub mod halt;
pub mod id;
pub mod json;
pub mod limits;
pub mod money;
pub mod params;
pub mod pattern;
pub mod policy;
pub mod time;
pub mod verdict;

pub use behaviour::{Breakers, Candidate, Number, Outcome, Outcomes, RecentCall};
pub use decide::{Decision, Rule, decide};
pub use digest::Digest;
pub use facts::{
    BudgetFacts, Facts, HitlRule, HumanDecision, ProbabilisticDraw, Status, Terminal, Transition,
};
pub use float::billionths;
pub use halt::HaltMode;
pub use id::{
    AgentId, ApprovalId, GuardId, InvalidId, KeyId, OrganizationId, RequestId, RuleId, SessionId, ToolName,
};
pub use money::{Limit, NanoUsd, PerBillion};
pub use pattern::{Pattern, ToolPattern};
pub use time::{DurationNs, Timestamp};
pub use verdict::{DenyReason, HaltScope, Reason, Verdict};
