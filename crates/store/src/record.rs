//! How openraft's values rest on disk and in snapshots. Field and variant numbers are never reused.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use openraft::EntryPayload;
use openraft::impls::leader_id_adv::LeaderId;

use crate::config::{self, Entry, LogId, Member, Membership, Payload, StoredMembership, Vote};

/// Encodes a log entry without copying its payload first.
pub(crate) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let payload = match &entry.payload {
        EntryPayload::Blank => PayloadRecord::Blank,
        EntryPayload::Normal(payload) => PayloadRecord::Batch(payload.bytes()),
        EntryPayload::Membership(membership) => PayloadRecord::Membership(MembershipRecord::of(membership)),
    };
    machine::row::bytes(&EntryRecord {
        log_id: LogIdRecord::of(&entry.log_id),
        payload,
    })
}

/// Decodes a log entry; the error says what is wrong with its bytes.
pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, String> {
    let record: EntryRecord<'_> = exact(bytes)?;
    let payload = match record.payload {
        PayloadRecord::Blank => EntryPayload::Blank,
        PayloadRecord::Batch(bytes) => EntryPayload::Normal(Payload::from_bytes(bytes)),
        PayloadRecord::Membership(membership) => EntryPayload::Membership(membership.value()?),
    };
    Ok(Entry {
        log_id: record.log_id.value(),
        payload,
    })
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    machine::row::bytes(&VoteRecord {
        term: vote.leader_id.term,
        node: vote.leader_id.node_id,
        committed: vote.committed,
    })
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, String> {
    let record: VoteRecord = exact(bytes)?;
    let leader_id = LeaderId {
        term: record.term,
        node_id: record.node,
    };
    Ok(Vote {
        leader_id,
        committed: record.committed,
    })
}

pub(crate) fn encode_log_id(log_id: &LogId) -> Vec<u8> {
    machine::row::bytes(&LogIdRecord::of(log_id))
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> Result<LogId, String> {
    Ok(exact::<LogIdRecord>(bytes)?.value())
}

pub(crate) fn encode_membership(membership: &StoredMembership) -> Vec<u8> {
    machine::row::bytes(&StoredMembershipRecord::of(membership))
}

pub(crate) fn decode_membership(bytes: &[u8]) -> Result<StoredMembership, String> {
    exact::<StoredMembershipRecord>(bytes)?.value()
}

/// Decodes all of the bytes.
pub(crate) fn exact<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, String> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let value = decoder.decode().map_err(|error| error.to_string())?;
    if decoder.position() == bytes.len() {
        Ok(value)
    } else {
        Err("bytes follow the record".to_owned())
    }
}

#[derive(Encode, Decode)]
struct EntryRecord<'b> {
    #[n(0)]
    log_id: LogIdRecord,
    #[b(1)]
    payload: PayloadRecord<'b>,
}

#[derive(Encode, Decode)]
enum PayloadRecord<'b> {
    #[n(0)]
    Blank,
    #[n(1)]
    Batch(#[cbor(b(0), with = "minicbor::bytes")] &'b [u8]),
    #[n(2)]
    Membership(#[n(0)] MembershipRecord),
}

#[derive(Encode, Decode)]
struct VoteRecord {
    #[n(0)]
    term: u64,
    #[n(1)]
    node: u64,
    #[n(2)]
    committed: bool,
}

#[derive(Encode, Decode)]
pub(crate) struct LogIdRecord {
    #[n(0)]
    term: u64,
    #[n(1)]
    node: u64,
    #[n(2)]
    index: u64,
}

impl LogIdRecord {
    pub fn of(log_id: &LogId) -> Self {
        Self {
            term: log_id.leader_id.term,
            node: log_id.leader_id.node_id,
            index: log_id.index,
        }
    }

    pub fn value(&self) -> LogId {
        config::LogId {
            leader_id: LeaderId {
                term: self.term,
                node_id: self.node,
            },
            index: self.index,
        }
    }
}

#[derive(Encode, Decode)]
pub(crate) struct StoredMembershipRecord {
    #[n(0)]
    log_id: Option<LogIdRecord>,
    #[n(1)]
    membership: MembershipRecord,
}

impl StoredMembershipRecord {
    pub fn of(stored: &StoredMembership) -> Self {
        Self {
            log_id: stored.log_id().as_ref().map(LogIdRecord::of),
            membership: MembershipRecord::of(stored.membership()),
        }
    }

    pub fn value(self) -> Result<StoredMembership, String> {
        let log_id = self.log_id.as_ref().map(LogIdRecord::value);
        Ok(StoredMembership::new(log_id, self.membership.value()?))
    }
}

#[derive(Encode, Decode)]
struct MembershipRecord {
    /// The voters; two sets while a change is under way.
    #[n(0)]
    configs: Vec<BTreeSet<u64>>,
    /// All members, learners too.
    #[n(1)]
    nodes: BTreeMap<u64, Member>,
}

impl MembershipRecord {
    fn of(membership: &Membership) -> Self {
        Self {
            configs: membership.get_joint_config().clone(),
            nodes: membership
                .nodes()
                .map(|(id, member)| (*id, member.clone()))
                .collect(),
        }
    }

    fn value(self) -> Result<Membership, String> {
        Membership::new(self.configs, self.nodes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{
        LogIdRecord, decode_entry, decode_membership, decode_vote, encode_entry, encode_membership,
        encode_vote,
    };
    use crate::config::{Entry, Member, Membership, Payload, StoredMembership, Vote};
    use openraft::EntryPayload;

    fn membership() -> Membership {
        let member = Member {
            name: "a".into(),
            peer: "a:1".into(),
            client: "a:2".into(),
            http: "a:3".into(),
        };
        Membership::new(
            vec![BTreeSet::from([1]), BTreeSet::from([1, 2])],
            BTreeMap::from([(1, member.clone()), (2, member.clone()), (3, member)]),
        )
        .unwrap()
    }

    #[test]
    fn entries_votes_and_memberships_read_back_the_same() {
        let log_id = LogIdRecord {
            term: 3,
            node: u64::MAX,
            index: 7,
        }
        .value();
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(Payload::from_bytes(vec![0, 1, 255])),
            EntryPayload::Membership(membership()),
        ];
        for payload in payloads {
            let entry = Entry { log_id, payload };
            let bytes = encode_entry(&entry);
            assert_eq!(decode_entry(&bytes), Ok(entry));
            assert!(decode_entry(&bytes[..bytes.len() - 1]).is_err());
            assert!(decode_entry(&[&bytes[..], &[0]].concat()).is_err());
        }
        for vote in [Vote::new(3, 4), Vote::new_committed(5, 6)] {
            assert_eq!(decode_vote(&encode_vote(&vote)), Ok(vote));
        }
        for stored in [
            StoredMembership::default(),
            StoredMembership::new(Some(log_id), membership()),
        ] {
            assert_eq!(decode_membership(&encode_membership(&stored)), Ok(stored));
        }
    }

    /// The bytes rest on disks: this test changes only together with a new format version.
    #[test]
    fn bytes_are_as_they_were_given() {
        let log_id = LogIdRecord {
            term: 3,
            node: 4,
            index: 5,
        }
        .value();
        let entry = Entry {
            log_id,
            payload: EntryPayload::Normal(Payload::from_bytes(vec![9])),
        };
        assert_eq!(
            encode_entry(&entry),
            [0x82, 0x83, 3, 4, 5, 0x82, 1, 0x81, 0x41, 9]
        );
        assert_eq!(encode_vote(&Vote::new(3, 4)), [0x83, 3, 4, 0xf4]);
    }
}
