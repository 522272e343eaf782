use thiserror::Error;

use crate::entry::Kind;

/// Where a chain broke first, and how.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("entry {sequence}: {what}")]
pub struct Broken {
    /// Sequence of the entry that is wrong, or that should stand where another or none does.
    pub sequence: u64,
    pub what: Error,
}

/// Why something could not be signed, read or verified. All of them are final: the input has to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    // Entries.
    #[error("the chain does not begin here: it was cut before entry {found}")]
    HeadCut { found: u64 },
    #[error("missing: entry {found} stands in its place")]
    Missing { found: u64 },
    #[error("entry {found} stands in its place: inserted, repeated or moved")]
    Misplaced { found: u64 },
    #[error("it says it belongs to another chain, {found:?}")]
    OtherChain { found: String },
    #[error("its bytes are not those the next entry links to")]
    Altered,
    #[error("it does not link to the entry before it")]
    Unlinked,
    #[error("its id was not made from its time, chain and sequence")]
    WrongEntryId,
    #[error("nothing to verify")]
    Empty,

    // Seals and keys.
    #[error("its signature over fields 1-13 does not verify")]
    EntrySignature,
    #[error("the chain signature over entries {from} to {to} does not verify: altered, cut out or re-linked")]
    ChainSignature { from: u64, to: u64 },
    #[error("a seal begins at entry {from} instead")]
    SealOutOfPlace { from: u64 },
    #[error("missing: a seal runs to entry {to}")]
    SealBeyondEntries { to: u64 },
    #[error("a seal of {from} to {to} with {signatures} signatures is malformed")]
    SealMalformed { from: u64, to: u64, signatures: u64 },
    #[error("not sealed (entries up to {to} are not)")]
    Unsealed { to: u64 },
    #[error("too many unsealed entries: at most {max}")]
    TooManyUnsealed { max: u64 },
    #[error("signed by an unknown key, {key_id:?}")]
    UnknownKey { key_id: String },
    #[error("signed by key {key_id:?}, which was retired at entry {retired_at}")]
    RetiredKey { key_id: String, retired_at: u64 },
    #[error("the bytes of key {key_id:?} are not a usable Ed25519 public key")]
    InvalidKey { key_id: String },
    #[error("another key has the id {key_id:?}")]
    KeyIdTaken { key_id: String },
    #[error("too many keys: at most {max}")]
    TooManyKeys { max: u64 },
    #[error("the detail of a {kind} is malformed")]
    DetailMalformed { kind: Kind },
    #[error("the key change is malformed")]
    KeyChangeMalformed,
    #[error("the key change is not signed by the key it replaces")]
    KeyChangeSignature,
    #[error("not a ticket")]
    TicketMalformed,
    #[error("the ticket is not signed by the key that it names")]
    TicketSignature,
    #[error("entries to seal must be 1 to {max}, in order, of one chain")]
    NotARange { max: u64 },

    // Checkpoints.
    #[error("missing: the tail was cut, a checkpoint counts {size} entries")]
    TailCut { size: u64 },
    #[error("a checkpoint of {size} entries has another head hash")]
    CheckpointHead { size: u64 },
    #[error("a checkpoint of {size} entries has another Merkle root")]
    CheckpointRoot { size: u64 },
    #[error("a checkpoint of {size} entries cannot be compared: it ends before the first entry verified")]
    CheckpointNotCompared { size: u64 },
    #[error("a checkpoint belongs to another chain, {found:?}")]
    CheckpointChain { found: String },
    #[error("the checkpoint is not a signed note: {why}")]
    CheckpointMalformed { why: &'static str },
    #[error("the checkpoint's signature by key {key_id:?} does not verify")]
    CheckpointSignature { key_id: String },
    #[error("the checkpoint carries no signature by a known key")]
    CheckpointUnsigned,
    #[error("a chain id in a checkpoint has no space, plus sign or line break: {chain_id:?}")]
    ChainIdUnusable { chain_id: String },
}
