use std::collections::VecDeque;

use crate::canonical;
use crate::chain::ChainHead;
use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind, entry_id};
use crate::error::{Broken, Error};
use crate::keyring::KeyRing;
use crate::merkle::Frontier;
use crate::seal::Seal;

/// Most entries kept in memory while no seal covers them: some 500 MB of signed bytes.
pub const UNSEALED_MAX: u64 = 1 << 20;

/// Checks a chain, entry by entry and seal by seal, without the cluster (docs/SPEC.md 16).
///
/// A seal is pushed after the entries it covers. The first thing that is wrong is the answer of every later call.
/// Within a sealed range the chain signature vouches for the last hash and the links, followed backwards, for
/// every entry: so the entry named is the one that was changed, not its neighbour.
#[derive(Debug)]
pub struct Verifier {
    start: Start,
    ring: KeyRing,
    checkpoints: Vec<Kept>,
    /// The last entry pushed; its chain id is set by the start or by the first entry.
    head: Option<ChainHead>,
    first: u64,
    entries: u64,
    tree: Option<Frontier>,
    /// Sequence and hash of the last entry a seal vouches for, or of what comes before the first entry.
    sealed: Option<(u64, [u8; 32])>,
    pending: VecDeque<Pending>,
    /// What checkpoints say against entries; told only if no entry is found to be the cause.
    contradictions: Vec<Broken>,
    broken: Option<Broken>,
}

/// Where the entries to verify begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At entry 1 of a chain.
    Genesis,
    /// Behind a head that is trusted; with the tree up to it, Merkle roots are checked too.
    After { head: ChainHead, tree: Option<Frontier> },
    /// In the middle: nothing is known of the entry before, and Merkle roots are not checked.
    At { sequence: u64 },
}

/// What to do about entries at the end that no seal covers yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    Refuse,
    Allow,
}

/// What holds of a chain that is not broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Number of entries checked.
    pub entries: u64,
    /// Sequence of the first and of the last entry.
    pub first: u64,
    pub last: u64,
    pub head: ChainHead,
    /// Merkle root up to `last`, if the tree before `first` was known.
    pub root: Option<[u8; 32]>,
    /// Number of entries at the end that no seal covers.
    pub unsealed: u64,
    /// The trusted keys and those that sealed entries brought.
    pub ring: KeyRing,
}

/// A checkpoint, and whether the entry it ends with has come by.
#[derive(Debug)]
struct Kept {
    checkpoint: Checkpoint,
    compared: bool,
}

/// What is kept of an entry until a seal covers it.
#[derive(Debug)]
struct Pending {
    sequence: u64,
    hash: [u8; 32],
    previous_hash: [u8; 32],
    has_own_id: bool,
    signed_bytes: Vec<u8>,
    key_change: Option<Box<Entry>>,
}

impl Verifier {
    /// Begins with the keys that are trusted; keys that the chain registers join once their entry is sealed.
    pub fn new(start: Start, trusted: KeyRing) -> Self {
        let (head, tree, sealed) = match &start {
            Start::Genesis => (None, Some(Frontier::default()), Some((0, [0; 32]))),
            Start::After { head, tree } => {
                let tree = tree.clone().filter(|tree| tree.size() == head.sequence);
                (Some(head.clone()), tree, Some((head.sequence, head.hash)))
            }
            Start::At { .. } => (None, None, None),
        };
        Self {
            start,
            ring: trusted,
            checkpoints: Vec::new(),
            head,
            first: 0,
            entries: 0,
            tree,
            sealed,
            pending: VecDeque::new(),
            contradictions: Vec::new(),
            broken: None,
        }
    }

    /// Adds a checkpoint that was kept elsewhere; one that comes after its last entry was pushed is not believed.
    pub fn against(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoints.push(Kept {
            checkpoint,
            compared: false,
        });
        if let (0, Start::After { head, .. }) = (self.entries, &self.start) {
            let (sequence, hash) = (head.sequence, head.hash);
            self.compare_with_checkpoints(sequence, &hash);
        }
        self
    }

    /// Trusts one more key from outside the chain.
    pub fn push_key(&mut self, public: [u8; 32], node: &str) -> Result<(), Error> {
        self.ring.trust(public, node)
    }

    /// Takes the next entry.
    pub fn push_entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.unbroken()?;
        let taken = self.take_entry(entry);
        self.keep(taken)
    }

    /// Takes a seal over the entries that come after the previous seal; all of them must have been pushed.
    pub fn push_seal(&mut self, seal: &Seal) -> Result<(), Broken> {
        self.unbroken()?;
        let taken = self.take_seal(seal);
        self.keep(taken)
    }

    /// Ends: checks what no seal covers, then every checkpoint.
    pub fn finish(self, unsealed: Unsealed) -> Result<Verified, Broken> {
        self.unbroken()?;
        let head = match self.head.clone() {
            Some(head) if self.entries > 0 => head,
            _ => return Err(broken(self.expected(), Error::Empty)),
        };
        for Kept { checkpoint, .. } in &self.checkpoints {
            check_authorship(checkpoint, &head.chain_id, &self.ring)?;
        }
        // A checkpoint vouches for the very last hash as a chain signature does: then the last entry is the cause.
        let last_contradicted = self
            .contradictions
            .iter()
            .find(|said| said.sequence == head.sequence && matches!(said.what, Error::CheckpointHead { .. }));
        if let Some(contradiction) = last_contradicted {
            return Err(contradiction.clone());
        }
        self.check_links(self.pending.len())?;
        if let Some(contradiction) = self.contradictions.into_iter().next() {
            return Err(contradiction);
        }
        for kept in &self.checkpoints {
            check_reach(kept, head.sequence)?;
        }
        match self.pending.front() {
            Some(first) if unsealed == Unsealed::Refuse => {
                return Err(broken(first.sequence, Error::Unsealed { to: head.sequence }));
            }
            _ => {}
        }
        Ok(Verified {
            entries: self.entries,
            first: self.first,
            last: head.sequence,
            root: self.tree.map(|tree| tree.root()),
            head,
            unsealed: count(self.pending.len()),
            ring: self.ring,
        })
    }

    fn take_entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        let sequence = self.expected();
        let has_own_id = entry.entry_id == entry_id(entry.timestamp, &entry.chain_id, entry.sequence);
        self.check_place(entry, sequence, has_own_id)?;
        if count(self.pending.len()) >= UNSEALED_MAX {
            return Err(broken(sequence, Error::TooManyUnsealed { max: UNSEALED_MAX }));
        }
        let hash = canonical::hash(entry);
        self.pending.push_back(Pending {
            sequence,
            hash,
            previous_hash: entry.previous_hash,
            has_own_id,
            signed_bytes: canonical::signed_bytes(entry),
            key_change: matches!(entry.kind, Kind::KeyRegistered | Kind::KeyRotated)
                .then(|| Box::new(entry.clone())),
        });
        if let Some(tree) = &mut self.tree {
            tree.push(&hash);
        }
        if self.entries == 0 {
            self.first = sequence;
        }
        self.entries = self.entries.saturating_add(1);
        self.head = Some(ChainHead {
            chain_id: entry.chain_id.clone(),
            sequence,
            hash,
        });
        self.compare_with_checkpoints(sequence, &hash);
        Ok(())
    }

    /// Errors unless the entry has the sequence and the chain that come next.
    fn check_place(&self, entry: &Entry, expected: u64, has_own_id: bool) -> Result<(), Broken> {
        let found = entry.sequence;
        if found != expected {
            let what = match (found > expected, self.entries) {
                (true, 0) => Error::HeadCut { found },
                (true, _) => Error::Missing { found },
                (false, _) => Error::Misplaced { found },
            };
            return Err(broken(expected, what));
        }
        match &self.head {
            Some(head) if head.chain_id != entry.chain_id => Err(broken(
                expected,
                Error::OtherChain {
                    found: entry.chain_id.clone(),
                },
            )),
            // The first entry names the chain, so its name must be the one its id was made from.
            None if !has_own_id => Err(broken(expected, Error::WrongEntryId)),
            _ => Ok(()),
        }
    }

    fn compare_with_checkpoints(&mut self, sequence: u64, hash: &[u8; 32]) {
        for Kept { checkpoint, compared } in &mut self.checkpoints {
            let size = checkpoint.size;
            if size != sequence || *compared {
                continue;
            }
            *compared = true;
            if checkpoint.head != *hash {
                self.contradictions
                    .push(broken(sequence, Error::CheckpointHead { size }));
            } else if self
                .tree
                .as_ref()
                .is_some_and(|tree| tree.root() != checkpoint.root)
            {
                self.contradictions
                    .push(broken(sequence, Error::CheckpointRoot { size }));
            }
        }
    }

    fn take_seal(&mut self, seal: &Seal) -> Result<(), Broken> {
        let from = match self.sealed {
            Some((sealed, _)) => sealed.saturating_add(1),
            None => self.first,
        };
        // Where entries begin in the middle of a chain, their first seal may have begun before them.
        let may_begin_before = from == self.first && self.start != Start::Genesis;
        let begins_before = may_begin_before && seal.from <= from && seal.to >= from;
        if seal.from != from && !begins_before {
            return Err(broken(from, Error::SealOutOfPlace { from: seal.from }));
        }
        seal.check_shape().map_err(|what| broken(from, what))?;
        let covered = self
            .pending
            .iter()
            .take_while(|entry| entry.sequence <= seal.to)
            .count();
        let last = match covered.checked_sub(1).and_then(|index| self.pending.get(index)) {
            Some(last) if last.sequence == seal.to => last,
            _ => return Err(broken(self.expected(), Error::SealBeyondEntries { to: seal.to })),
        };
        self.check_signatures(seal, from, last, covered)?;
        let vouched = Some((last.sequence, last.hash));
        for entry in self.pending.drain(..covered) {
            if let Some(change) = entry.key_change {
                self.ring
                    .learn(&change)
                    .map_err(|what| broken(entry.sequence, what))?;
            }
        }
        self.sealed = vouched;
        // The range may have retired the very key that signed it.
        self.ring
            .signing(&seal.key_id, seal.to)
            .map_err(|what| broken(seal.to, what))?;
        Ok(())
    }

    fn check_signatures(&self, seal: &Seal, from: u64, last: &Pending, covered: usize) -> Result<(), Broken> {
        let key = self
            .ring
            .signing(&seal.key_id, seal.to)
            .map_err(|what| broken(from, what))?;
        let chain_id = self
            .head
            .as_ref()
            .map(|head| head.chain_id.as_str())
            .unwrap_or_default();
        let chain_holds = seal.chain_signature_verifies(key, chain_id, &last.hash);
        if chain_holds {
            self.check_links(covered)?;
        }
        let unsigned = self
            .pending
            .iter()
            .take(covered)
            .find(|entry| !seal.entry_signature_verifies(key, entry.sequence, &entry.signed_bytes));
        match unsigned {
            Some(entry) => Err(broken(entry.sequence, Error::EntrySignature)),
            None if chain_holds => Ok(()),
            None => Err(broken(
                seal.to,
                Error::ChainSignature {
                    from: seal.from,
                    to: seal.to,
                },
            )),
        }
    }

    /// Follows the links of the first pending entries backwards: the hash of the last one is taken as right.
    fn check_links(&self, covered: usize) -> Result<(), Broken> {
        let mut next: Option<&Pending> = None;
        for entry in self.pending.iter().take(covered).rev() {
            if next.is_some_and(|next| next.previous_hash != entry.hash) {
                return Err(broken(entry.sequence, Error::Altered));
            }
            next = Some(entry);
        }
        match (next, self.sealed) {
            (Some(first), Some((_, hash))) if first.previous_hash != hash => {
                return Err(broken(first.sequence, Error::Unlinked));
            }
            _ => {}
        }
        match self.pending.iter().take(covered).find(|entry| !entry.has_own_id) {
            Some(entry) => Err(broken(entry.sequence, Error::WrongEntryId)),
            None => Ok(()),
        }
    }

    /// Sequence of the entry that comes next.
    fn expected(&self) -> u64 {
        match (&self.head, &self.start) {
            (Some(head), _) => head.sequence.saturating_add(1),
            (None, Start::At { sequence }) => *sequence,
            (None, _) => 1,
        }
    }

    fn unbroken(&self) -> Result<(), Broken> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn keep(&mut self, outcome: Result<(), Broken>) -> Result<(), Broken> {
        self.broken = outcome.clone().err();
        outcome
    }
}

/// Errors unless a checkpoint is of this chain and signed by a known key.
fn check_authorship(checkpoint: &Checkpoint, chain_id: &str, ring: &KeyRing) -> Result<(), Broken> {
    if checkpoint.chain_id != chain_id {
        let found = checkpoint.chain_id.clone();
        return Err(broken(checkpoint.size, Error::CheckpointChain { found }));
    }
    let signed = checkpoint.verify(ring);
    signed.map(drop).map_err(|what| broken(checkpoint.size, what))
}

/// Errors unless the entry a checkpoint ends with was among those verified.
fn check_reach(Kept { checkpoint, compared }: &Kept, last: u64) -> Result<(), Broken> {
    let size = checkpoint.size;
    match (size > last, compared) {
        (true, _) => Err(broken(last.saturating_add(1), Error::TailCut { size })),
        (false, true) => Ok(()),
        (false, false) => Err(broken(size, Error::CheckpointNotCompared { size })),
    }
}

fn broken(sequence: u64, what: Error) -> Broken {
    Broken { sequence, what }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod flip;
#[cfg(test)]
mod tests;
