//! One node as a process: configuration, certificates, roles, services, probes and metrics.
//!
//! ```text
//!   run ─ config ─ tls ─► accept ──► layer (room, metrics, details) ──► service ──► door ──► cluster
//!           │                │                                            │          └ roles, limit
//!           │                └ identity: who the certificate names        └ wire: message ⇄ command, reply
//!           └ find or form the cluster · readiness · observe · http
//! ```
//!
//! 1. `accept` verifies a certificate and reads the identity in it (`identity`); nothing else gives one.
//! 2. `door` admits a request: role (`roles`), deadline; `limit` its rate.
//! 3. `service` has `wire` read the message, `cluster` decide or read, `wire` write the answer.
//! 4. Before an ALLOW leaves, `service::guard` looks at the halts once more.
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
