use base64ct::{Base64, Encoding as _};
use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::key::Signer;
use crate::keyring::{KeyRing, PublicKey};

/// Longest note that is read, bytes; C2SP asks for no more and it holds some 600 signatures.
pub const NOTE_BYTES_MAX: usize = 65_536;
/// Most signature lines of a note: every replica and some witnesses.
pub const NOTE_SIGNATURES_MAX: usize = 64;

const ORIGIN: &str = "haltgate/";
const HEAD: &str = "head ";
/// The signature type byte of Ed25519 in a signed note.
const ED25519: u8 = 1;

/// A statement of how long the chain is and what is in it, signed by nodes (docs/SPEC.md 16).
///
/// As text it is a C2SP signed note (tlog-checkpoint): the origin `haltgate/<chain id>`, the size, the Merkle root,
/// the extension line `head <hash>`, an empty line, and signature lines whose key name is the origin. Hashes are base64.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Checkpoint {
    #[n(0)]
    pub chain_id: String,
    /// Number of entries: the sequence of the last one.
    #[n(1)]
    pub size: u64,
    /// [`Frontier::root`](crate::merkle::Frontier::root) over the hashes of these entries.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub root: [u8; 32],
    /// Hash of the last entry.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub head: [u8; 32],
    #[n(4)]
    pub signatures: Vec<NoteSignature>,
}

/// One signature line of a note; lines of strangers are kept as they came.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NoteSignature {
    #[n(0)]
    pub name: String,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub key_hash: [u8; 4],
    /// What follows the key hash; 64 bytes for Ed25519.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub signature: Vec<u8>,
}

impl Checkpoint {
    /// Makes an unsigned checkpoint; errors where the chain id cannot stand in a note.
    pub fn new(chain_id: &str, size: u64, root: [u8; 32], head: [u8; 32]) -> Result<Self, Error> {
        if chain_id.is_empty() || chain_id.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
        {
            return Err(Error::ChainIdUnusable {
                chain_id: chain_id.to_owned(),
            });
        }
        Ok(Self {
            chain_id: chain_id.to_owned(),
            size,
            root,
            head,
            signatures: Vec::new(),
        })
    }

    /// Adds a node's signature, once a key.
    pub fn sign(&mut self, signer: &Signer) {
        self.add(self.signed_by(signer));
    }

    /// Makes a node's signature without adding it: what a replica that agrees sends to the others.
    pub fn signed_by(&self, signer: &Signer) -> NoteSignature {
        let key_hash = note_key_hash(&self.origin(), &signer.public());
        let signature = signer.sign(self.body().as_bytes()).to_vec();
        NoteSignature {
            name: self.origin(),
            key_hash,
            signature,
        }
    }

    /// Adds a signature that was made elsewhere over the same body, once a key.
    pub fn add(&mut self, signature: NoteSignature) {
        let same =
            |other: &NoteSignature| other.name == signature.name && other.key_hash == signature.key_hash;
        if !self.signatures.iter().any(same) && self.signatures.len() < NOTE_SIGNATURES_MAX {
            self.signatures.push(signature);
        }
    }

    /// Gives the ids of the known keys that signed, at least one; errors where one of their signatures is wrong.
    ///
    /// Signatures of unknown keys are passed over, as C2SP asks; a key retired before `size` counts as unknown.
    pub fn verify(&self, ring: &KeyRing) -> Result<Vec<String>, Error> {
        let origin = self.origin();
        let body = self.body();
        let mut signed_by = Vec::new();
        for line in self.signatures.iter().filter(|line| line.name == origin) {
            for key in ring
                .iter()
                .filter(|key| note_key_hash(&origin, &key.public) == line.key_hash)
            {
                if ring.signing(&key.key_id, self.size).is_err() {
                    continue;
                }
                if !verifies(key, &body, &line.signature) {
                    return Err(Error::CheckpointSignature {
                        key_id: key.key_id.clone(),
                    });
                }
                signed_by.push(key.key_id.clone());
            }
        }
        if signed_by.is_empty() {
            Err(Error::CheckpointUnsigned)
        } else {
            Ok(signed_by)
        }
    }

    /// Gives the text that is signed, up to and including its last line break.
    pub fn body(&self) -> String {
        let root = Base64::encode_string(&self.root);
        let head = Base64::encode_string(&self.head);
        format!("{}\n{}\n{root}\n{HEAD}{head}\n", self.origin(), self.size)
    }

    /// Gives the whole signed note.
    pub fn to_note(&self) -> String {
        let mut note = self.body();
        note.push('\n');
        for NoteSignature {
            name,
            key_hash,
            signature,
        } in &self.signatures
        {
            let blob = [key_hash.as_slice(), signature].concat();
            note.push_str(&format!("\u{2014} {name} {}\n", Base64::encode_string(&blob)));
        }
        note
    }

    /// Reads a signed note in exactly the form [`Checkpoint::to_note`] writes; it verifies nothing.
    pub fn parse(note: &str) -> Result<Self, Error> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(malformed("too long"));
        }
        let (body, signatures) = note.split_once("\n\n").ok_or(malformed("no empty line"))?;
        let mut lines = body.split('\n');
        let mut line = || lines.next().ok_or(malformed("four lines are needed"));
        let chain_id = line()?.strip_prefix(ORIGIN).ok_or(malformed("unknown origin"))?;
        let size = line()?
            .parse()
            .map_err(|_| malformed("the size is not a number"))?;
        let root = hash(line()?)?;
        let head = hash(line()?.strip_prefix(HEAD).ok_or(malformed("no head hash"))?)?;
        let mut checkpoint = Self::new(chain_id, size, root, head)?;
        for line in signatures
            .strip_suffix('\n')
            .ok_or(malformed("no signature"))?
            .split('\n')
        {
            checkpoint.signatures.push(signature_line(line)?);
        }
        if checkpoint.signatures.len() > NOTE_SIGNATURES_MAX {
            return Err(malformed("too many signatures"));
        }
        if checkpoint.to_note() == note {
            Ok(checkpoint)
        } else {
            Err(malformed("not in its one form"))
        }
    }

    fn origin(&self) -> String {
        format!("{ORIGIN}{}", self.chain_id)
    }
}

/// Gives the C2SP verifier key `name+hash+base64` of a node's key, for other tools that check our notes.
pub fn verifier_key(chain_id: &str, public: &[u8; 32]) -> String {
    let origin = format!("{ORIGIN}{chain_id}");
    let hash: String = note_key_hash(&origin, public)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let key = [[ED25519].as_slice(), public].concat();
    format!("{origin}+{hash}+{}", Base64::encode_string(&key))
}

fn signature_line(line: &str) -> Result<NoteSignature, Error> {
    let rest = line
        .strip_prefix("\u{2014} ")
        .ok_or(malformed("not a signature line"))?;
    let (name, blob) = rest.split_once(' ').ok_or(malformed("not a signature line"))?;
    let blob = Base64::decode_vec(blob).map_err(|_| malformed("a signature is not base64"))?;
    let (key_hash, signature) = blob
        .split_first_chunk::<4>()
        .ok_or(malformed("a signature is too short"))?;
    Ok(NoteSignature {
        name: name.to_owned(),
        key_hash: *key_hash,
        signature: signature.to_vec(),
    })
}

/// Gives the first 4 bytes of SHA-256(name ‖ line break ‖ type ‖ key), as C2SP signed notes name a key.
fn note_key_hash(name: &str, public: &[u8; 32]) -> [u8; 4] {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(name)
        .chain_update([b'\n', ED25519])
        .chain_update(public)
        .finalize()
        .into();
    let [a, b, c, d, ..] = digest;
    [a, b, c, d]
}

fn verifies(key: &PublicKey, body: &str, signature: &[u8]) -> bool {
    <&[u8; 64]>::try_from(signature).is_ok_and(|signature| key.verifies(body.as_bytes(), signature))
}

fn hash(text: &str) -> Result<[u8; 32], Error> {
    crate::keyring::from_base64(text).ok_or(malformed("a hash is not 32 bytes of base64"))
}

fn malformed(why: &'static str) -> Error {
    Error::CheckpointMalformed { why }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, NOTE_BYTES_MAX, verifier_key};
    use crate::error::Error;
    use crate::key::Signer;
    use crate::keyring::{KeyChange, KeyRing};

    fn signed() -> (Checkpoint, Signer, KeyRing) {
        let signer = Signer::from_seed(&[1; 32]);
        let mut ring = KeyRing::default();
        ring.trust(signer.public(), "a").unwrap();
        let mut checkpoint = Checkpoint::new("prod-1", 12, [3; 32], [4; 32]).unwrap();
        checkpoint.sign(&signer);
        (checkpoint, signer, ring)
    }

    #[test]
    fn a_note_has_the_golden_bytes_that_openssl_made_and_reads_back_the_same() {
        let (checkpoint, signer, ring) = signed();
        let note = checkpoint.to_note();
        let golden = [
            "haltgate/prod-1",
            "12",
            "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
            "head BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=",
            "",
            "\u{2014} haltgate/prod-1 IYKvqJC4qALeO2jDqvCHU+xfeifQ0A1rU02Q0abrKFCFay/23itnAjrZ76kmlOBl1DmzrQVNqHHB/LF9lw7qOyr8vAI=",
            "",
        ]
        .join("\n");
        assert_eq!(note, golden);
        let golden_key = "haltgate/prod-1+2182afa8+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";
        assert_eq!(verifier_key("prod-1", &signer.public()), golden_key);
        let read = Checkpoint::parse(&note).unwrap();
        assert_eq!(read, checkpoint);
        assert_eq!(read.verify(&ring), Ok(vec![signer.key_id().to_owned()]));
        let stored = minicbor::to_vec(&read).unwrap();
        assert_eq!(minicbor::decode::<Checkpoint>(&stored).unwrap(), read);
    }

    #[test]
    fn every_flipped_statement_breaks_the_signature() {
        let (checkpoint, signer, ring) = signed();
        let wrong = Err(Error::CheckpointSignature {
            key_id: signer.key_id().to_owned(),
        });
        let size = Checkpoint {
            size: 13,
            ..checkpoint.clone()
        };
        let root = Checkpoint {
            root: [9; 32],
            ..checkpoint.clone()
        };
        let head = Checkpoint {
            head: [9; 32],
            ..checkpoint.clone()
        };
        for flipped in [size, root, head] {
            assert_eq!(flipped.verify(&ring), wrong);
        }
        // The chain is in the key hash too, so the signature is nobody's.
        let chain = Checkpoint {
            chain_id: "other".into(),
            ..checkpoint
        };
        assert_eq!(chain.verify(&ring), Err(Error::CheckpointUnsigned));
    }

    #[test]
    fn signatures_of_strangers_are_passed_over_and_never_enough() {
        let (mut checkpoint, signer, ring) = signed();
        checkpoint.sign(&Signer::from_seed(&[2; 32]));
        checkpoint.sign(&signer);
        assert_eq!(checkpoint.signatures.len(), 2);
        assert_eq!(checkpoint.verify(&ring), Ok(vec![signer.key_id().to_owned()]));
        checkpoint.signatures.remove(0);
        assert_eq!(checkpoint.verify(&ring), Err(Error::CheckpointUnsigned));
    }

    #[test]
    fn a_retired_key_signs_no_later_checkpoint() {
        let (checkpoint, signer, mut ring) = signed();
        let change = KeyChange::rotate(&signer, Signer::from_seed(&[2; 32]).public(), "a", "prod-1");
        ring.change(&change, "prod-1", 11).unwrap();
        assert_eq!(checkpoint.verify(&ring), Err(Error::CheckpointUnsigned));
    }

    #[test]
    fn what_is_not_a_note_is_refused() {
        let note = signed().0.to_note();
        let long = " ".repeat(NOTE_BYTES_MAX + 1);
        for (what, text) in [
            ("nothing", String::new()),
            ("too long", long),
            (
                "no signature",
                note.split_once("\n\n").unwrap().0.to_owned() + "\n\n",
            ),
            ("other origin", note.replacen("haltgate", "other", 1)),
            ("leading zero", note.replacen("\n12\n", "\n012\n", 1)),
            ("negative size", note.replacen("\n12\n", "\n-12\n", 1)),
            ("short root", note.replacen("AwMDAwMD", "AwMD", 1)),
            ("no head", note.replacen("\nhead ", "\n", 1)),
            ("hyphen", note.replacen('\u{2014}', "-", 1)),
            ("cut signature", note[..note.len() - 10].to_owned()),
            ("extra line", note.replacen("\n\n", "\nmore\n\n", 1)),
        ] {
            assert!(Checkpoint::parse(&text).is_err(), "{what}");
        }
        for chain_id in ["", "a b", "a+b", "a\nb"] {
            assert!(
                Checkpoint::new(chain_id, 1, [0; 32], [0; 32]).is_err(),
                "{chain_id:?}"
            );
        }
    }
}
