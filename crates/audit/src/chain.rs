use minicbor::{Decode, Encode};

use crate::canonical;
use crate::entry::{Entry, entry_id};

/// The end of a chain: what the next entry follows. It rests in replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ChainHead {
    #[n(0)]
    pub chain_id: String,
    /// Sequence of the last entry; 0 before the first.
    #[n(1)]
    pub sequence: u64,
    /// Hash of the last entry; zero before the first.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub hash: [u8; 32],
}

impl ChainHead {
    /// Gives the head of a chain that has no entry yet.
    pub fn empty(chain_id: impl Into<String>) -> Self {
        Self {
            chain_id: chain_id.into(),
            sequence: 0,
            hash: [0; 32],
        }
    }
}

/// An entry in its place, and the head it makes; `head.hash` is the entry's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub entry: Entry,
    pub head: ChainHead,
}

/// Puts an entry behind the head: sets its chain, sequence, id and previous hash (docs/SPEC.md 16).
pub fn link(head: &ChainHead, entry: Entry) -> Linked {
    // A chain of one entry a nanosecond lasts 584 years.
    let sequence = head.sequence.saturating_add(1);
    let entry = Entry {
        sequence,
        entry_id: entry_id(entry.timestamp, &head.chain_id, sequence),
        previous_hash: head.hash,
        chain_id: head.chain_id.clone(),
        ..entry
    };
    let hash = canonical::hash(&entry);
    Linked {
        entry,
        head: ChainHead {
            chain_id: head.chain_id.clone(),
            sequence,
            hash,
        },
    }
}

/// Tells whether an entry is the one that follows this head: chain, sequence, id and previous hash.
pub fn follows(head: &ChainHead, entry: &Entry) -> bool {
    entry.chain_id == head.chain_id
        && Some(entry.sequence) == head.sequence.checked_add(1)
        && entry.previous_hash == head.hash
        && entry.entry_id == entry_id(entry.timestamp, &entry.chain_id, entry.sequence)
}

#[cfg(test)]
mod tests {
    use super::{ChainHead, follows, link};
    use crate::entry::{Entry, Kind};
    use decision::time::Timestamp;

    #[test]
    fn linked_entries_follow_each_other_and_nothing_else() {
        let empty = ChainHead::empty("chain");
        let first = link(&empty, Entry::blank(Kind::Genesis, Timestamp::from_nanos(1)));
        let second = link(&first.head, Entry::blank(Kind::Fixture, Timestamp::from_nanos(2)));
        assert_eq!((first.entry.sequence, second.entry.sequence), (1, 2));
        assert_eq!(second.entry.previous_hash, first.head.hash);
        assert!(follows(&empty, &first.entry));
        assert!(follows(&first.head, &second.entry));
        assert!(!follows(&empty, &second.entry));
        assert!(!follows(&second.head, &second.entry));
        assert!(!follows(&ChainHead::empty("other"), &first.entry));
    }

    #[test]
    fn the_same_entry_has_another_hash_in_another_chain() {
        let entry = Entry::blank(Kind::Genesis, Timestamp::from_nanos(1));
        let here = link(&ChainHead::empty("here"), entry.clone());
        let there = link(&ChainHead::empty("there"), entry);
        assert_ne!(here.head.hash, there.head.hash);
    }

    #[test]
    fn stored_head_reads_back_the_same() {
        let head = ChainHead {
            chain_id: "chain".into(),
            sequence: 7,
            hash: [9; 32],
        };
        let stored = minicbor::to_vec(&head).unwrap();
        assert_eq!(minicbor::decode::<ChainHead>(&stored).unwrap(), head);
    }
}
