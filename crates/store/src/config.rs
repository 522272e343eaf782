//! openraft's types, filled in: what an entry carries, what it answers, who the members are.

use std::fmt;
use std::sync::Arc;

use machine::{Batch, Reply};
use minicbor::{Decode, Encode};
use openraft::alias;
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

openraft::declare_raft_types!(
    /// The type configuration of every Raft node here.
    pub Raft:
        D = Payload,
        R = Answers,
        NodeId = u64,
        Node = Member,
        // Elections draw from a seed given at the start: a simulation repeats them.
        AsyncRuntime = DeterministicRng<TokioRuntime>,
);

pub type Entry = alias::EntryOf<Raft>;
pub type LogId = alias::LogIdOf<Raft>;
pub type Vote = alias::VoteOf<Raft>;
pub type Membership = openraft::Membership<u64, Member>;
pub type StoredMembership = alias::StoredMembershipOf<Raft>;
pub type SnapshotMeta = alias::SnapshotMetaOf<Raft>;
pub type Snapshot = alias::SnapshotOf<Raft, crate::snapshot::SnapshotData>;

/// One batch of commands, encoded once by its proposer and kept as bytes until it is applied.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// Encodes a batch.
    pub fn of(batch: &Batch) -> Self {
        Self(machine::row::bytes(batch).into())
    }

    /// Takes bytes that a peer sent; they are decoded when they are applied.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes the batch, all of the bytes.
    ///
    /// # Errors
    /// The bytes are not one encoded batch.
    pub fn decode(&self) -> Result<Batch, minicbor::decode::Error> {
        let mut decoder = minicbor::Decoder::new(&self.0);
        let batch = decoder.decode()?;
        if decoder.position() == self.0.len() {
            Ok(batch)
        } else {
            Err(minicbor::decode::Error::message("bytes follow the batch"))
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch of {} bytes", self.0.len())
    }
}

/// What an applied entry answered, one reply a command; none for blank and membership entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Answers {
    #[n(0)]
    pub replies: Vec<Reply>,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} replies", self.replies.len())
    }
}

/// A node as the membership records it: its name and where it is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct Member {
    #[n(0)]
    pub name: String,
    /// Where other nodes reach it.
    #[n(1)]
    pub peer: String,
    /// Where clients reach it.
    #[n(2)]
    pub client: String,
    /// Where probes and metrics reach it.
    #[n(3)]
    pub http: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.peer)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(Bytes).map(Self::from_bytes)
    }
}

impl Serialize for Answers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&machine::row::bytes(self))
    }
}

impl<'de> Deserialize<'de> for Answers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserializer.deserialize_byte_buf(Bytes)?;
        minicbor::decode(&bytes).map_err(D::Error::custom)
    }
}

/// Reads bytes from any serde format, as bytes or as a sequence of numbers.
struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}
