//! One node as a process: configuration, certificates, roles, services, probes and metrics.
//!
//! ```text
//!   run ─ config ─ tls ─► accept ──► layer ──► entry ──► service, road ──► door ──► cluster
//!           │                │         │         └ admit: identity, role, deadline    └ order: a command, its reply
//!           │                │         └ room, metrics, details of errors
//!           │                └ identity: whom the certificate names
//!           └ find or form the cluster · readiness · observe · http
//! ```
//!
//! 1. `accept` verifies a certificate and reads the identity in it (`identity`); nothing else gives one.
//! 2. `entry` has a function for every RPC, made from the table in `wire::rpc`. `admit` lets its request in, by the
//!    roles of that table; the request is then an `Ask`, and nothing else makes one.
//! 3. A `service` has `wire` read the message, proposes or reads through the `door`, and has `wire` write the answer.
//!    A call takes the `road`.
//! 4. Before an ALLOW leaves, `road` looks at the halts once more.
//! 5. Whatever fails leaves as a status with a detail, and never as a verdict.

mod accept;
mod admit;
mod call_threads;
pub mod config;
mod door;
mod drill;
pub mod emergency;
mod entry;
mod environment;
mod follow;
mod guard_section;
mod http;
pub mod identity;
mod judge;
mod layer;
mod limit;
mod log;
mod metrics;
mod observe;
mod order;
mod road;
pub mod roles;
mod run;
mod service;
pub mod signing_key;
mod status;
mod tls;

pub use config::{Config, ConfigError};
pub use guard_section::GuardSection;
pub use run::{Addresses, RunError, Running, check, run};
