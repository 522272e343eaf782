//! The replicated state machine: commands in; replies, changed rows, audit entries and events out.
//!
//! ```text
//!   Batch{proposed, seed, commands}        Rows (RocksDB, a map, a test)
//!                 │                          │ read, scan
//!                 ▼                          ▼
//!   apply ─ one match ─► op/ ─ a file a command ─► step/ ─ shared moves ─► turn ─ rows, due work, audit, retries
//!                 │                                                             │
//!                 ▼                                                             ▼
//!   Applied{replies, entries, events}          +          changes of the rows, written as one
//! ```
//!
//! In floors, each using only those below it: `apply`, `op/`, `step/`, `turn`, what is read of several tables
//! (`guard_path`, `stops`, `ticket`), `command`, `working`, `row/`, names. `query` and `check` only read.
//! `tests/tests/floors.rs` holds that.
//!
//! Pure: no clock, no randomness, no I/O. The same log gives the same bytes on every replica.

mod apply;
pub mod check;
pub mod command;
mod encoding;
mod event;
pub mod feature;
mod guard_check;
pub mod guard_path;
mod op;
mod principal;
pub mod query;
pub mod row;
mod scope;
mod step;
mod stops;
pub mod ticket;
mod turn;
mod working;

pub use apply::{Applied, apply};
pub use command::{Batch, Command};
pub use event::Event;
pub use feature::VERSION;
pub use guard_path::GuardPath;
pub use query::is_due;
pub use row::reply::{self, Refusal, Reply};
pub use row::{BudgetScope, Guard, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window};
pub use scope::{AccountId, GuardScope, InvalidScope, Scope};
pub use stops::{Stops, scope_of};
pub use turn::{Context, Entries, Position};
pub use working::{Change, Working};
