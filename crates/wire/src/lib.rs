//! The only place that knows protobuf. A message becomes a domain type or an [`Invalid`], once; nothing
//! behind this crate sees a generated type.
//!
//! ```text
//!   gRPC ──► proto::shackle::v1 ──► guard ──► machine::Command        machine::Reply ──► guard ──► gRPC
//!        ──► proto::haltgate::admin::v1 ──► admin, approval ──► …     rows ──► session, admin, approval ──►
//!        ──► proto::haltgate::audit::v1 ◄─► audit ◄─► audit::Entry, Seal, PublicKey
//!
//!   Invalid, Refusal ──► error::Failure ◄─► tonic::Status with `haltgate-error-bin`
//! ```
//!
//! Doubles stop in [`money`]. What a retry must agree with is worked out here too, over the fields as they
//! were read.

pub mod admin;
pub mod approval;
pub mod audit;
pub mod check;
pub mod error;
pub mod guard;
pub mod guard_config;
pub mod invalid;
pub mod money;
pub mod page;
mod payload;
pub mod proto;
pub mod rpc;
pub mod same;
pub mod session;
pub mod ticket;
pub mod version;

pub use error::{Code, Failure, Leader};
pub use invalid::Invalid;
