//! The client of an agent: asks before a tool call runs, runs it only on ALLOW, reports what it cost.
//!
//! ```text
//!   Guarded::run(call, tool) ─► Client::pre_exec ─► Pool ─► any node ─► … ─► verdict
//!        │ ALLOW                                     └ same request id again, at another node, until the deadline
//!        │ HITL, where the call waits for people: wait_approval, then the same question again
//!        ├─► the tool runs, until watch_control says stop
//!        └─► Client::post_exec (what it cost, how it ended)
//! ```
//!
//! Whatever fails is a local DENY with the reason `daemon_unavailable`: no answer never means yes. Nothing
//! here can approve, release or reset.

mod client;
mod control;
mod credentials;
mod guarded;
mod id;
mod pool;

pub use client::{Client, Registration};
pub use credentials::{Credentials, OpenError};
pub use guarded::{Call, Done, Guarded, Refused, UNAVAILABLE};
pub use id::{nonce, request_id};
pub use pool::{Pool, error_detail};
pub use wire::ticket::{Ticket, origin as ticket_origin};
