use super::{CHAIN, Chain, a, b, c, chain, chain_signature, checkpoint_of, relink, unknown, verify};
use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::error::{Broken, Error};
use crate::key::Signer;
use crate::keyring::KeyChange;
use crate::seal::seal;
use crate::verify::flip::FIELDS;

#[test]
fn every_flipped_field_is_found_at_its_entry() {
    let untouched = chain();
    // First, in the middle and last of a range, first and last of all; unsealed ones against a checkpoint.
    for position in [1_usize, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12] {
        for (name, _, flip) in FIELDS {
            let mut chain = untouched.clone();
            chain.checkpoint = Some(checkpoint_of(&untouched.entries, &c()));
            flip(&mut chain.entries[position - 1]);
            let broken = verify(&chain).unwrap_err();
            assert_eq!(
                broken.sequence,
                u64::try_from(position).unwrap(),
                "{name} of {position}: {broken}"
            );
        }
    }
}

#[test]
fn every_flipped_field_of_a_sealed_entry_is_found_without_a_checkpoint() {
    let untouched = chain();
    for position in 1..=10_usize {
        for (name, _, flip) in FIELDS {
            let mut chain = untouched.clone();
            flip(&mut chain.entries[position - 1]);
            let broken = verify(&chain).unwrap_err();
            assert_eq!(
                broken.sequence,
                u64::try_from(position).unwrap(),
                "{name} of {position}: {broken}"
            );
        }
    }
}

#[test]
fn tampering_is_found_where_it_was_done() {
    type Tamper = fn(&mut Chain);
    let rows: &[(&str, Tamper, u64, Error)] = &[
        (
            "entry removed",
            |x| drop(x.entries.remove(6)),
            7,
            Error::Missing { found: 8 },
        ),
        (
            "entries swapped",
            |x| x.entries.swap(5, 6),
            6,
            Error::Missing { found: 7 },
        ),
        (
            "entry repeated",
            |x| x.entries.insert(7, x.entries[6].clone()),
            8,
            Error::Misplaced { found: 7 },
        ),
        (
            "entry inserted",
            |x| {
                let forged = Entry {
                    sequence: 7,
                    ..x.entries[5].clone()
                };
                x.entries.insert(6, forged);
            },
            8,
            Error::Misplaced { found: 7 },
        ),
        (
            "inserted, later ones renumbered",
            |x| {
                x.entries.insert(6, x.entries[5].clone());
                relink(&mut x.entries);
            },
            7,
            Error::EntrySignature,
        ),
        (
            "head cut",
            |x| drop(x.entries.drain(..3)),
            1,
            Error::HeadCut { found: 4 },
        ),
        (
            "everything cut",
            |x| {
                x.entries.clear();
                x.seals.clear();
            },
            1,
            Error::Empty,
        ),
        (
            "tail cut within a seal",
            |x| x.entries.truncate(7),
            8,
            Error::SealBeyondEntries { to: 8 },
        ),
        (
            "seal removed",
            |x| drop(x.seals.remove(1)),
            4,
            Error::SealOutOfPlace { from: 6 },
        ),
        (
            "seals swapped",
            |x| x.seals.swap(1, 2),
            4,
            Error::SealOutOfPlace { from: 6 },
        ),
        (
            "seal repeated",
            |x| x.seals.insert(1, x.seals[0].clone()),
            4,
            Error::SealOutOfPlace { from: 1 },
        ),
        (
            "seal over fewer entries",
            |x| x.seals[2].to = 7,
            6,
            Error::SealMalformed {
                from: 6,
                to: 7,
                signatures: 3,
            },
        ),
        (
            "entry signature flipped",
            |x| x.seals[2].signatures[1][0] ^= 1,
            7,
            Error::EntrySignature,
        ),
        (
            "chain signature flipped",
            |x| x.seals[2].chain_signature[0] ^= 1,
            8,
            chain_signature(6, 8),
        ),
        (
            "entry signatures swapped",
            |x| x.seals[2].signatures.swap(0, 1),
            6,
            Error::EntrySignature,
        ),
        (
            "sealed by a stranger",
            |x| {
                x.seals[2] = seal(&Signer::from_seed(&[9; 32]), &x.entries[5..8]).unwrap();
            },
            6,
            unknown(&Signer::from_seed(&[9; 32])),
        ),
        (
            "sealed by a stranger in another's name",
            |x| {
                x.seals[2] = seal(&Signer::from_seed(&[9; 32]), &x.entries[5..8]).unwrap();
                x.seals[2].key_id = c().key_id().to_owned();
            },
            6,
            Error::EntrySignature,
        ),
        (
            "sealed by a key after its rotation",
            |x| {
                x.seals[2] = seal(&a(), &x.entries[5..8]).unwrap();
            },
            6,
            Error::RetiredKey {
                key_id: a().key_id().to_owned(),
                retired_at: 5,
            },
        ),
        (
            "sealed across its own rotation",
            |x| {
                x.seals[1] = seal(&a(), &x.entries[3..8]).unwrap();
                x.seals.remove(2);
            },
            8,
            Error::RetiredKey {
                key_id: a().key_id().to_owned(),
                retired_at: 5,
            },
        ),
        (
            "sealed by a key before it is registered",
            |x| {
                x.seals[0] = seal(&b(), &x.entries[..3]).unwrap();
            },
            1,
            unknown(&b()),
        ),
        (
            "rotated by a stranger's signature",
            |x| {
                let stranger = Signer::from_seed(&[9; 32]);
                let mut change = KeyChange::rotate(&stranger, stranger.public(), "a", CHAIN);
                change.replaces.as_mut().unwrap().key_id = a().key_id().to_owned();
                x.entries[4].detail = change.to_string();
                relink(&mut x.entries);
                x.seals[1] = seal(&a(), &x.entries[3..5]).unwrap();
            },
            5,
            Error::KeyChangeSignature,
        ),
    ];
    for (name, tamper, sequence, what) in rows {
        let mut chain = chain();
        tamper(&mut chain);
        assert_eq!(
            verify(&chain),
            Err(Broken {
                sequence: *sequence,
                what: what.clone()
            }),
            "{name}"
        );
    }
}

#[test]
fn relinking_without_the_key_is_caught_by_the_chain_signature_alone() {
    // A field outside 1–13 changed, everything after it hashed again: each entry's own signature still verifies.
    let mut changed = chain();
    changed.entries[6].detail = "nothing happened".into();
    relink(&mut changed.entries);
    assert_eq!(
        verify(&changed),
        Err(Broken {
            sequence: 8,
            what: chain_signature(6, 8)
        })
    );

    // An entry cut out, the rest renumbered and hashed again, signatures and ranges moved along.
    let mut cut = chain();
    cut.entries.remove(6);
    relink(&mut cut.entries);
    cut.seals[2].signatures.remove(1);
    cut.seals[2].to = 7;
    cut.seals[3].from = 8;
    cut.seals[3].to = 9;
    assert_eq!(
        verify(&cut),
        Err(Broken {
            sequence: 7,
            what: chain_signature(6, 7)
        })
    );

    // A whole sealed range cut out.
    let mut range = chain();
    range.entries.drain(5..8);
    relink(&mut range.entries);
    range.seals.remove(2);
    range.seals[2].from = 6;
    range.seals[2].to = 7;
    assert_eq!(
        verify(&range),
        Err(Broken {
            sequence: 7,
            what: chain_signature(6, 7)
        })
    );
}

#[test]
fn truncation_and_rollback_show_against_a_checkpoint_kept_elsewhere() {
    let kept = checkpoint_of(&chain().entries, &c());
    let resigned = |mut checkpoint: Checkpoint| {
        checkpoint.signatures.clear();
        checkpoint.sign(&c());
        checkpoint
    };
    let stranger = Signer::from_seed(&[9; 32]);
    type Tamper = fn(&mut Chain);
    let rows: &[(&str, Tamper, Checkpoint, u64, Error)] = &[
        (
            "cut at a seal",
            |x| x.entries.truncate(10),
            kept.clone(),
            11,
            Error::TailCut { size: 12 },
        ),
        (
            "unsealed tail rewritten",
            |x| {
                x.entries[10].detail = "forged".into();
                relink(&mut x.entries);
            },
            kept.clone(),
            12,
            Error::CheckpointHead { size: 12 },
        ),
        (
            "checkpoint of an earlier size",
            |_| {},
            resigned(Checkpoint {
                size: 11,
                ..kept.clone()
            }),
            11,
            Error::CheckpointHead { size: 11 },
        ),
        (
            "other root",
            |_| {},
            resigned(Checkpoint {
                root: [0; 32],
                ..kept.clone()
            }),
            12,
            Error::CheckpointRoot { size: 12 },
        ),
        (
            "checkpoint changed",
            |_| {},
            Checkpoint {
                head: [0; 32],
                ..kept.clone()
            },
            12,
            Error::CheckpointSignature {
                key_id: c().key_id().to_owned(),
            },
        ),
        (
            "other chain",
            |_| {},
            Checkpoint {
                chain_id: "other".into(),
                ..kept.clone()
            },
            12,
            Error::CheckpointChain {
                found: "other".into(),
            },
        ),
        (
            "signed by a stranger",
            |_| {},
            checkpoint_of(&chain().entries, &stranger),
            12,
            Error::CheckpointUnsigned,
        ),
        (
            "signed by a key that was rotated",
            |_| {},
            checkpoint_of(&chain().entries, &a()),
            12,
            Error::CheckpointUnsigned,
        ),
    ];
    for (name, tamper, checkpoint, sequence, what) in rows {
        let mut chain = chain();
        tamper(&mut chain);
        chain.checkpoint = Some(checkpoint.clone());
        assert_eq!(
            verify(&chain),
            Err(Broken {
                sequence: *sequence,
                what: what.clone()
            }),
            "{name}"
        );
    }
    for size in [1, 5, 8, 12] {
        let signer = if size <= 5 { a() } else { c() };
        let mut chain = chain();
        chain.checkpoint = Some(checkpoint_of(&chain.entries[..size], &signer));
        assert!(verify(&chain).is_ok(), "checkpoint of {size}");
    }
}
