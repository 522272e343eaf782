use minicbor::{Decode, Encode};

use crate::canonical::{self, length};
use crate::chain::{ChainHead, follows};
use crate::entry::Entry;
use crate::error::Error;
use crate::key::Signer;
use crate::keyring::PublicKey;

/// Most entries in one seal: 4,096 signatures are 256 KiB, what one log entry may hold, and 100 ms of signing.
pub const SEAL_ENTRIES_MAX: u64 = 4096;

/// Separates chain signatures from everything else that is signed.
const SEAL_LABEL: &[u8] = b"haltgate audit seal v1\n";

/// The signatures of one range of entries (docs/SPEC.md 16.2).
///
/// Seals of a chain follow each other without a gap; they are not audit entries themselves.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Seal {
    /// Sequence of the first entry.
    #[n(0)]
    pub from: u64,
    /// Sequence of the last entry.
    #[n(1)]
    pub to: u64,
    #[n(2)]
    pub key_id: String,
    /// One Ed25519 signature an entry, in order, over its fields 1–13 (field 14 of SP/1.0).
    #[cbor(n(3), with = "crate::flat")]
    pub signatures: Vec<[u8; 64]>,
    /// Ed25519 over a label, the chain, the range and the hash of its last entry: the links cover the rest.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub chain_signature: [u8; 64],
}

/// Signs consecutive linked entries of one chain; errors with `NotARange` where they are not that.
pub fn seal(signer: &Signer, entries: &[Entry]) -> Result<Seal, Error> {
    let not_a_range = Error::NotARange {
        max: SEAL_ENTRIES_MAX,
    };
    let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return Err(not_a_range);
    };
    if count > SEAL_ENTRIES_MAX {
        return Err(not_a_range);
    }
    let mut head = head_at(first);
    for entry in entries.iter().skip(1) {
        if !follows(&head, entry) {
            return Err(not_a_range);
        }
        head = head_at(entry);
    }
    Ok(Seal {
        from: first.sequence,
        to: last.sequence,
        key_id: signer.key_id().to_owned(),
        signatures: entries
            .iter()
            .map(|entry| signer.sign(&canonical::signed_bytes(entry)))
            .collect(),
        chain_signature: signer.sign(&chain_message(
            &head.chain_id,
            first.sequence,
            last.sequence,
            &head.hash,
        )),
    })
}

impl Seal {
    /// Errors unless the range is in order, not too long, and has one signature for each entry.
    pub fn check_shape(&self) -> Result<(), Error> {
        let signatures = u64::try_from(self.signatures.len()).unwrap_or(u64::MAX);
        let count = self
            .to
            .checked_sub(self.from)
            .and_then(|distance| distance.checked_add(1));
        if self.from > 0 && count == Some(signatures) && signatures <= SEAL_ENTRIES_MAX {
            Ok(())
        } else {
            Err(Error::SealMalformed {
                from: self.from,
                to: self.to,
                signatures,
            })
        }
    }

    /// Checks all signatures over the entries of the range, in order.
    ///
    /// # Errors
    /// The entries are not those of the range, or a signature is not this key's over them.
    pub fn verify(&self, key: &PublicKey, entries: &[Entry]) -> Result<(), Error> {
        self.check_shape()?;
        let Some(last) = entries.last().filter(|_| entries.len() == self.signatures.len()) else {
            return Err(Error::NotARange {
                max: SEAL_ENTRIES_MAX,
            });
        };
        if !self.chain_signature_verifies(key, &last.chain_id, &canonical::hash(last)) {
            return Err(Error::ChainSignature {
                from: self.from,
                to: self.to,
            });
        }
        let verifies = |entry: &Entry| {
            self.entry_signature_verifies(key, entry.sequence, &canonical::signed_bytes(entry))
        };
        if entries.iter().all(verifies) {
            Ok(())
        } else {
            Err(Error::EntrySignature)
        }
    }

    /// Tells whether the chain signature is this key's over the range that ends in this hash.
    pub fn chain_signature_verifies(&self, key: &PublicKey, chain_id: &str, last_hash: &[u8; 32]) -> bool {
        key.verifies(
            &chain_message(chain_id, self.from, self.to, last_hash),
            &self.chain_signature,
        )
    }

    /// Tells whether the signature of the entry with this sequence is this key's over its signed bytes.
    pub fn entry_signature_verifies(&self, key: &PublicKey, sequence: u64, signed_bytes: &[u8]) -> bool {
        self.signature(sequence)
            .is_some_and(|signature| key.verifies(signed_bytes, signature))
    }

    /// Gives field 14 of the entry with this sequence, `None` outside the range.
    pub fn signature(&self, sequence: u64) -> Option<&[u8; 64]> {
        let offset = sequence.checked_sub(self.from)?;
        self.signatures.get(usize::try_from(offset).ok()?)
    }
}

fn head_at(entry: &Entry) -> ChainHead {
    ChainHead {
        chain_id: entry.chain_id.clone(),
        sequence: entry.sequence,
        hash: canonical::hash(entry),
    }
}

fn chain_message(chain_id: &str, from: u64, to: u64, last_hash: &[u8; 32]) -> Vec<u8> {
    let mut message = SEAL_LABEL.to_vec();
    message.extend_from_slice(&length(chain_id.as_bytes()));
    message.extend_from_slice(chain_id.as_bytes());
    message.extend_from_slice(&from.to_be_bytes());
    message.extend_from_slice(&to.to_be_bytes());
    message.extend_from_slice(last_hash);
    message
}
