//! The replicated state machine: commands in; replies, changed rows, audit entries and events out.
//!
//! ```text
//!            Batch{proposed, seed, commands}      Rows (RocksDB, a map, a test)
//!                          │                        │ read, scan
//!                          ▼                        ▼
//!   apply ── one match ─► session · pre_exec (asked ► decide ► counted) · approval · ticket · post_exec · budget · guard_put · halt · due
//!                          │
//!                          ▼
//!        Applied{replies, entries, events} + changes of the rows, written as one
//! ```
//!
//! Pure: no clock, no randomness, no I/O. The same log gives the same bytes on every replica.

mod apply;
pub mod approval;
mod asked;
mod budget;
pub mod check;
pub mod command;
mod counted;
mod due;
mod event;
mod fixture;
mod guard;
mod guard_put;
mod halt;
pub mod leash;
mod nonce;
mod post_exec;
mod pre_exec;
pub mod price;
mod replay;
pub mod reply;
mod scope;
mod session;
pub mod table;
mod tally;
pub mod ticket;

pub use apply::{Applied, Position, VERSION, apply};
pub use command::{Batch, Command};
pub use due::is_due;
pub use event::Event;
pub use guard::{BudgetScope, Guard, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window};
pub use halt::{Stops, above as stops_above, scope_of};
pub use leash::Leash;
pub use reply::{Refusal, Reply};
pub use scope::{AccountId, GuardScope, InvalidScope, Scope};
pub use tally::Tally;
