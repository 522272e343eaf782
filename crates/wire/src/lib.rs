//! The only place that knows protobuf. A message becomes a domain type or an `Invalid`, once; nothing
//! behind this crate sees a generated type.
//!
//! ```text
//!   gRPC ──► proto::shackle::v1 ──► guard  ──► machine::Command        machine::Reply ──► guard ──► gRPC
//!        ──► proto::haltgate::admin::v1 ──► admin ──► …
//!        ──► proto::haltgate::audit::v1 ◄── audit ◄── audit::Entry
//! ```

pub mod proto;
