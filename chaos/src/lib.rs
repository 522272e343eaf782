//! Runs of real processes: what is built is what is tested, over real TLS, RocksDB and disks.
//!
//! ```text
//!   Cluster ─ haltgate local-cluster, server, init ─► three processes on loopback
//!      │ kill -9, stop, start again, wipe
//!      ├─► cli(who, …)      the binary itself, as an operator
//!      ├─► client(who)      the Rust client, as an agent
//!      └─► chain(node)      what one node's audit log says
//!   people ─ guards put, sessions opened
//!   Load ─ agents that call until told to stop; every answer is kept, to be found in the chains
//! ```
//!
//! Everything talks to loopback only, is bounded in time, and ends the processes that it started.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

pub mod checks;
pub mod cluster;
pub mod load;
pub mod people;
pub mod record;
