use decision::time::Timestamp;
use decision::verdict::Verdict;

use super::{Start, Unsealed, Verified, Verifier};
use crate::canonical;
use crate::chain::{ChainHead, link};
use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind};
use crate::error::{Broken, Error};
use crate::key::Signer;
use crate::keyring::{KeyChange, KeyRing};
use crate::merkle::Frontier;
use crate::seal::{Seal, seal};

const CHAIN: &str = "chain-1";

/// Entries 1–12: 1 genesis, 2 registers b, 5 rotates a to c, the others are verdicts.
/// Seals: 1–3 by a, 4–5 by a, 6–8 by c, 9–10 by b; 11 and 12 are not sealed.
#[derive(Clone)]
struct Chain {
    entries: Vec<Entry>,
    seals: Vec<Seal>,
    checkpoint: Option<Checkpoint>,
}

fn a() -> Signer {
    Signer::from_seed(&[0xa; 32])
}

fn b() -> Signer {
    Signer::from_seed(&[0xb; 32])
}

fn c() -> Signer {
    Signer::from_seed(&[0xc; 32])
}

fn chain() -> Chain {
    let register = KeyChange::register(b().public(), "b").to_string();
    let rotate = KeyChange::rotate(&a(), c().public(), "a", CHAIN).to_string();
    let mut head = ChainHead::empty(CHAIN);
    let mut entries = Vec::new();
    for sequence in 1..=12 {
        let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + sequence);
        let entry = match sequence {
            1 => Entry::blank(Kind::Genesis, time),
            2 => Entry {
                detail: register.clone(),
                ..Entry::blank(Kind::KeyRegistered, time)
            },
            5 => Entry {
                detail: rotate.clone(),
                ..Entry::blank(Kind::KeyRotated, time)
            },
            _ => Entry {
                session_id: "s".into(),
                call_number: sequence,
                verdict: Some(Verdict::Allow),
                ..Entry::blank(Kind::Verdict, time)
            },
        };
        let linked = link(&head, entry);
        entries.push(linked.entry);
        head = linked.head;
    }
    let seals = vec![
        seal(&a(), &entries[..3]).unwrap(),
        seal(&a(), &entries[3..5]).unwrap(),
        seal(&c(), &entries[5..8]).unwrap(),
        seal(&b(), &entries[8..10]).unwrap(),
    ];
    Chain {
        entries,
        seals,
        checkpoint: None,
    }
}

fn checkpoint_of(entries: &[Entry], signer: &Signer) -> Checkpoint {
    let mut tree = Frontier::default();
    for entry in entries {
        tree.push(&canonical::hash(entry));
    }
    let last = entries.last().unwrap();
    let mut checkpoint = Checkpoint::new(CHAIN, last.sequence, tree.root(), canonical::hash(last)).unwrap();
    checkpoint.sign(signer);
    checkpoint
}

fn trusted() -> KeyRing {
    let mut ring = KeyRing::default();
    ring.trust(a().public(), "a").unwrap();
    ring
}

fn verify(chain: &Chain) -> Result<Verified, Broken> {
    verify_from(chain, Start::Genesis, trusted(), Unsealed::Allow)
}

fn verify_from(chain: &Chain, start: Start, ring: KeyRing, unsealed: Unsealed) -> Result<Verified, Broken> {
    let mut verifier = Verifier::new(start, ring);
    if let Some(checkpoint) = &chain.checkpoint {
        verifier = verifier.against(checkpoint.clone());
    }
    let mut seals = chain.seals.iter().peekable();
    for entry in &chain.entries {
        verifier.push_entry(entry)?;
        while let Some(seal) = seals.next_if(|seal| seal.to == entry.sequence) {
            verifier.push_seal(seal)?;
        }
    }
    for seal in seals {
        verifier.push_seal(seal)?;
    }
    verifier.finish(unsealed)
}

/// Hashes and links everything again as someone without any key could, ids and signatures left as they were.
fn relink(entries: &mut [Entry]) {
    let mut previous = [0; 32];
    for (entry, sequence) in entries.iter_mut().zip(1..) {
        entry.sequence = sequence;
        entry.previous_hash = previous;
        previous = canonical::hash(entry);
    }
}

fn chain_signature(from: u64, to: u64) -> Error {
    Error::ChainSignature { from, to }
}

fn unknown(signer: &Signer) -> Error {
    Error::UnknownKey {
        key_id: signer.key_id().to_owned(),
    }
}

#[test]
fn an_untouched_chain_verifies_with_the_first_key_alone() {
    let mut chain = chain();
    chain.checkpoint = Some(checkpoint_of(&chain.entries, &c()));
    let verified = verify(&chain).unwrap();
    assert_eq!(
        (verified.entries, verified.first, verified.last, verified.unsealed),
        (12, 1, 12, 2)
    );
    assert_eq!(verified.head.hash, canonical::hash(&chain.entries[11]));
    assert_eq!(verified.root, chain.checkpoint.map(|checkpoint| checkpoint.root));
    assert_eq!(verified.ring.iter().count(), 3);
}

#[test]
fn an_unsealed_tail_is_refused_unless_it_is_allowed() {
    let mut chain = chain();
    let refused = verify_from(&chain, Start::Genesis, trusted(), Unsealed::Refuse);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 11,
            what: Error::Unsealed { to: 12 }
        })
    );
    chain.entries.truncate(10);
    assert!(verify_from(&chain, Start::Genesis, trusted(), Unsealed::Refuse).is_ok());
}

#[test]
fn a_chain_without_a_trusted_key_is_not_believed() {
    let refused = verify_from(&chain(), Start::Genesis, KeyRing::default(), Unsealed::Allow);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 1,
            what: unknown(&a())
        })
    );
}

#[test]
fn a_part_verifies_behind_a_trusted_head_or_where_it_is_told_to_begin() {
    let whole = chain();
    let ring = verify(&whole).unwrap().ring;
    let mut tree = Frontier::default();
    for entry in &whole.entries[..5] {
        tree.push(&canonical::hash(entry));
    }
    let head = ChainHead {
        chain_id: CHAIN.into(),
        sequence: 5,
        hash: canonical::hash(&whole.entries[4]),
    };
    let mut part = Chain {
        entries: whole.entries[5..].to_vec(),
        seals: whole.seals[2..].to_vec(),
        checkpoint: Some(checkpoint_of(&whole.entries, &c())),
    };
    let after = Start::After {
        head: head.clone(),
        tree: Some(tree),
    };
    let verified = verify_from(&part, after.clone(), ring.clone(), Unsealed::Allow).unwrap();
    assert_eq!((verified.first, verified.last, verified.entries), (6, 12, 7));
    assert_eq!(
        verified.root,
        part.checkpoint.as_ref().map(|checkpoint| checkpoint.root)
    );

    let wrong = Start::After {
        head: ChainHead {
            hash: [0; 32],
            ..head
        },
        tree: None,
    };
    let refused = verify_from(&part, wrong, ring.clone(), Unsealed::Allow);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 6,
            what: Error::Unlinked
        })
    );

    // A checkpoint of exactly the trusted head is compared with it; an older one cannot be.
    part.checkpoint = Some(checkpoint_of(&whole.entries[..5], &a()));
    assert!(verify_from(&part, after.clone(), ring.clone(), Unsealed::Allow).is_ok());
    part.checkpoint = Some(checkpoint_of(&whole.entries[..4], &a()));
    let refused = verify_from(&part, after.clone(), ring.clone(), Unsealed::Allow);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 4,
            what: Error::CheckpointNotCompared { size: 4 }
        })
    );
    part.checkpoint = None;

    // From the middle of a seal: its chain signature needs only the last hash.
    part.entries.remove(0);
    let at = verify_from(&part, Start::At { sequence: 7 }, ring.clone(), Unsealed::Allow).unwrap();
    assert_eq!((at.first, at.last, at.root), (7, 12, None));
    let middle = ChainHead {
        chain_id: CHAIN.into(),
        sequence: 6,
        hash: canonical::hash(&whole.entries[5]),
    };
    let behind = Start::After {
        head: middle,
        tree: None,
    };
    let verified = verify_from(&part, behind, ring.clone(), Unsealed::Allow).unwrap();
    assert_eq!((verified.first, verified.last, verified.root), (7, 12, None));
    let refused = verify_from(&part, after, ring.clone(), Unsealed::Allow);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 6,
            what: Error::HeadCut { found: 7 }
        })
    );
    let refused = verify_from(&part, Start::Genesis, ring, Unsealed::Allow);
    assert_eq!(
        refused,
        Err(Broken {
            sequence: 1,
            what: Error::HeadCut { found: 7 }
        })
    );
}

#[test]
fn what_is_broken_stays_broken() {
    let chain = chain();
    let mut verifier = Verifier::new(Start::Genesis, trusted());
    let broken = verifier.push_entry(&chain.entries[1]).unwrap_err();
    assert_eq!(verifier.push_entry(&chain.entries[0]), Err(broken.clone()));
    assert_eq!(verifier.push_seal(&chain.seals[0]), Err(broken.clone()));
    assert_eq!(verifier.finish(Unsealed::Allow), Err(broken));
}

#[test]
fn only_a_linked_range_is_sealed_and_a_stored_seal_reads_back_the_same() {
    let chain = chain();
    let gap = [chain.entries[0].clone(), chain.entries[2].clone()];
    assert!(matches!(seal(&a(), &gap), Err(Error::NotARange { .. })));
    assert!(matches!(seal(&a(), &[]), Err(Error::NotARange { .. })));
    let stored = minicbor::to_vec(&chain.seals[0]).unwrap();
    assert_eq!(minicbor::decode::<Seal>(&stored).unwrap(), chain.seals[0]);
}

#[test]
fn nothing_to_verify_is_no_proof() {
    let head = ChainHead {
        chain_id: CHAIN.into(),
        sequence: 5,
        hash: [0; 32],
    };
    let starts = [
        (Start::Genesis, 1),
        (Start::After { head, tree: None }, 6),
        (Start::At { sequence: 7 }, 7),
    ];
    for (start, sequence) in starts {
        let refused = Verifier::new(start, trusted()).finish(Unsealed::Allow);
        assert_eq!(
            refused,
            Err(Broken {
                sequence,
                what: Error::Empty
            })
        );
    }
}

mod tampering;
