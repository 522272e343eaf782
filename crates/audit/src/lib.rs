//! The audit chain: what an entry is, how it is hashed and linked, how a range of it is signed, and how anyone
//! can check it later without trusting us. Everything here is pure; keys and times are arguments.
//!
//! ```text
//!            apply, on every replica                    leader, off the path          anyone, offline
//!   Entry ──► chain::link ──► hash ──► ChainHead
//!               │   (canonical bytes)    └► Frontier ─► root ─► Checkpoint ─sign─► note ─┐
//!               └────────────────────────────────────► seal::seal ─► Seal ─────────────┬─┴► Verifier ─► Verified
//!                                                         (a KeyRing says whose key) ──┘             └► Broken{sequence}
//! ```
//!
//! An entry's signature covers fields 1–13 of SP/1.0, which leaves its link unsigned; so each sealed range also
//! carries one chain signature over its last hash, and the links cover the rest (docs/SPEC.md 16).

pub mod canonical;
pub mod chain;
pub mod checkpoint;
pub mod detail;
pub mod entry;
pub mod error;
pub mod key;
pub mod keyring;
pub mod merkle;
pub mod seal;
pub mod ticket;
pub mod verify;

mod flat;

pub use chain::{ChainHead, Linked, link};
pub use checkpoint::Checkpoint;
pub use detail::Detail;
pub use entry::{Entry, Kind};
pub use error::{Broken, Error};
pub use key::Signer;
pub use keyring::{KeyChange, KeyRing, PublicKey};
pub use merkle::Frontier;
pub use seal::{Seal, seal};
pub use ticket::Ticket;
pub use verify::{Start, Unsealed, Verified, Verifier};
