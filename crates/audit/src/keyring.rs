use std::collections::BTreeMap;
use std::fmt;

use base64ct::{Base64, Encoding as _};
use ed25519_dalek::{Signature, VerifyingKey};
use minicbor::{Decode, Encode};

use crate::canonical::length;
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::key::{Signer, key_id};

/// Most keys of one chain, retired ones included: some hundred rotations of each of a few nodes.
pub const KEYS_MAX: u64 = 4096;

/// Separates key rotations from everything else that is signed.
const ROTATION_LABEL: &[u8] = b"haltgate audit key rotation v1\n";

/// The public keys that may sign a chain, by key id. One rests in replicated state; an auditor brings another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct KeyRing {
    #[n(0)]
    keys: BTreeMap<String, PublicKey>,
}

/// One public key, whose it is and how long it counts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PublicKey {
    #[n(0)]
    pub key_id: String,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub public: [u8; 32],
    /// The node that holds the secret half.
    #[n(2)]
    pub node: String,
    /// Sequence of the entry that registered it; 0 for a key given from outside the chain.
    #[n(3)]
    pub registered_at: u64,
    /// Sequence of the entry that replaced it: it signs no entry after that one.
    #[n(4)]
    pub retired_at: Option<u64>,
}

impl KeyRing {
    /// Adds a key that is trusted from outside the chain, or changes nothing if it is there.
    pub fn trust(&mut self, public: [u8; 32], node: impl Into<String>) -> Result<(), Error> {
        self.insert(PublicKey {
            key_id: key_id(&public),
            public,
            node: node.into(),
            registered_at: 0,
            retired_at: None,
        })
    }

    /// Takes in the key that an entry registers or rotates; other kinds change nothing (docs/SPEC.md 16).
    pub fn learn(&mut self, entry: &Entry) -> Result<(), Error> {
        match entry.kind {
            Kind::KeyRegistered | Kind::KeyRotated => {}
            _ => return Ok(()),
        }
        let change = KeyChange::parse(&entry.detail)?;
        if (entry.kind == Kind::KeyRotated) != change.replaces.is_some() {
            return Err(Error::KeyChangeMalformed);
        }
        self.change(&change, &entry.chain_id, entry.sequence)
    }

    /// Registers or rotates a key at this sequence of the chain; an error leaves the ring as it was.
    pub fn change(&mut self, change: &KeyChange, chain_id: &str, sequence: u64) -> Result<(), Error> {
        let key = PublicKey {
            key_id: key_id(&change.public),
            public: change.public,
            node: change.node.clone(),
            registered_at: sequence,
            retired_at: None,
        };
        let Some(replaced) = &change.replaces else {
            return self.insert(key);
        };
        let old = self.signing(&replaced.key_id, sequence)?;
        if old.key_id == key.key_id {
            return Err(Error::KeyIdTaken { key_id: key.key_id });
        }
        let message = rotation_message(chain_id, &change.public, &change.node);
        if !old.verifies(&message, &replaced.signature) {
            return Err(Error::KeyChangeSignature);
        }
        self.insert(key)?;
        if let Some(old) = self.keys.get_mut(&replaced.key_id) {
            old.retired_at = Some(sequence);
        }
        Ok(())
    }

    /// Gives the key that may sign entries up to and including this sequence, or says why it may not.
    pub fn signing(&self, key_id: &str, to: u64) -> Result<&PublicKey, Error> {
        let key = self.keys.get(key_id).ok_or_else(|| Error::UnknownKey {
            key_id: key_id.to_owned(),
        })?;
        match key.retired_at {
            Some(retired_at) if retired_at < to => Err(Error::RetiredKey {
                key_id: key_id.to_owned(),
                retired_at,
            }),
            _ => Ok(key),
        }
    }

    /// Gives the keys in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.values()
    }

    fn insert(&mut self, key: PublicKey) -> Result<(), Error> {
        match self.keys.get(&key.key_id) {
            Some(present) if present.public != key.public => {
                return Err(Error::KeyIdTaken { key_id: key.key_id });
            }
            // A key that was replaced does not come back; one that is there already is no change.
            Some(_) => return self.signing(&key.key_id, key.registered_at).map(drop),
            None => {}
        }
        if u64::try_from(self.keys.len()).unwrap_or(u64::MAX) >= KEYS_MAX {
            return Err(Error::TooManyKeys { max: KEYS_MAX });
        }
        if VerifyingKey::from_bytes(&key.public).map_or(true, |parsed| parsed.is_weak()) {
            return Err(Error::InvalidKey { key_id: key.key_id });
        }
        self.keys.insert(key.key_id.clone(), key);
        Ok(())
    }
}

impl PublicKey {
    /// Tells whether this key made the signature, by the strict rules (no malleable or weak ones).
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.public).is_ok_and(|key| {
            key.verify_strict(message, &Signature::from_bytes(signature))
                .is_ok()
        })
    }
}

/// What the `detail` of a KeyRegistered or KeyRotated entry says; [`fmt::Display`] writes it, `parse` reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    pub public: [u8; 32],
    pub node: String,
    /// The key that the new one replaces; `None` registers one more.
    pub replaces: Option<Replaced>,
}

/// The old key's consent to its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub key_id: String,
    pub signature: [u8; 64],
}

impl KeyChange {
    /// Registers one more key for a node.
    pub fn register(public: [u8; 32], node: impl Into<String>) -> Self {
        Self {
            public,
            node: node.into(),
            replaces: None,
        }
    }

    /// Replaces `old` by another key, signed by `old`; it holds in this chain only.
    pub fn rotate(old: &Signer, public: [u8; 32], node: impl Into<String>, chain_id: &str) -> Self {
        let node = node.into();
        let signature = old.sign(&rotation_message(chain_id, &public, &node));
        Self {
            public,
            node,
            replaces: Some(Replaced {
                key_id: old.key_id().to_owned(),
                signature,
            }),
        }
    }

    /// Reads `public=… node=…` or `public=… replaces=… signature=… node=…`; keys and signatures are base64.
    pub fn parse(detail: &str) -> Result<Self, Error> {
        Self::read(detail).ok_or(Error::KeyChangeMalformed)
    }

    fn read(detail: &str) -> Option<Self> {
        let (public, rest) = detail.strip_prefix("public=")?.split_once(' ')?;
        let (replaces, rest) = match rest.strip_prefix("replaces=") {
            None => (None, rest),
            Some(rest) => {
                let (key_id, rest) = rest.split_once(' ')?;
                let (signature, rest) = rest.strip_prefix("signature=")?.split_once(' ')?;
                let signature = from_base64(signature)?;
                (
                    Some(Replaced {
                        key_id: key_id.to_owned(),
                        signature,
                    }),
                    rest,
                )
            }
        };
        let node = rest.strip_prefix("node=")?.to_owned();
        Some(Self {
            public: from_base64(public)?,
            node,
            replaces,
        })
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "public={} ", Base64::encode_string(&self.public))?;
        if let Some(Replaced { key_id, signature }) = &self.replaces {
            write!(
                f,
                "replaces={key_id} signature={} ",
                Base64::encode_string(signature)
            )?;
        }
        write!(f, "node={}", self.node)
    }
}

/// Reads exactly N bytes of padded base64.
pub(crate) fn from_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    let read = Base64::decode(text, &mut bytes).ok()?.len();
    (read == N).then_some(bytes)
}

fn rotation_message(chain_id: &str, public: &[u8; 32], node: &str) -> Vec<u8> {
    let mut message = ROTATION_LABEL.to_vec();
    message.extend_from_slice(&length(chain_id.as_bytes()));
    message.extend_from_slice(chain_id.as_bytes());
    message.extend_from_slice(public);
    message.extend_from_slice(&length(node.as_bytes()));
    message.extend_from_slice(node.as_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::{KeyChange, KeyRing};
    use crate::error::Error;
    use crate::key::Signer;

    fn ring_with(signer: &Signer) -> KeyRing {
        let mut ring = KeyRing::default();
        ring.trust(signer.public(), "a").unwrap();
        ring
    }

    #[test]
    fn key_changes_read_back_the_same() {
        let (old, new) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        for change in [
            KeyChange::register(new.public(), "node a"),
            KeyChange::rotate(&old, new.public(), "node=b replaces=c", "chain"),
        ] {
            assert_eq!(KeyChange::parse(&change.to_string()), Ok(change));
        }
        for text in ["", "public=", "public=AAAA node=a", "node=a"] {
            assert_eq!(KeyChange::parse(text), Err(Error::KeyChangeMalformed), "{text}");
        }
    }

    #[test]
    fn a_rotated_key_signs_up_to_its_rotation_and_the_new_one_after_it() {
        let (old, new) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let mut ring = ring_with(&old);
        ring.change(&KeyChange::rotate(&old, new.public(), "a", "chain"), "chain", 9)
            .unwrap();
        assert!(ring.signing(old.key_id(), 9).is_ok());
        let retired = Error::RetiredKey {
            key_id: old.key_id().into(),
            retired_at: 9,
        };
        assert_eq!(ring.signing(old.key_id(), 10).unwrap_err(), retired);
        assert!(ring.signing(new.key_id(), 10).is_ok());
        let stored = minicbor::to_vec(&ring).unwrap();
        assert_eq!(minicbor::decode::<KeyRing>(&stored).unwrap(), ring);
    }

    #[test]
    fn a_rotation_needs_the_old_keys_signature_for_this_chain_node_and_key() {
        let (old, new) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let stranger = Signer::from_seed(&[3; 32]);
        let good = KeyChange::rotate(&old, new.public(), "a", "chain");
        let other_node = KeyChange {
            node: "b".into(),
            ..good.clone()
        };
        let other_key = KeyChange {
            public: stranger.public(),
            ..good.clone()
        };
        let other_chain = KeyChange::rotate(&old, new.public(), "a", "other");
        for change in [other_node, other_key, other_chain] {
            let mut ring = ring_with(&old);
            assert_eq!(ring.change(&change, "chain", 9), Err(Error::KeyChangeSignature));
            assert_eq!(ring, ring_with(&old));
        }
        let unknown = KeyChange::rotate(&stranger, new.public(), "a", "chain");
        let refused = ring_with(&old).change(&unknown, "chain", 9);
        assert_eq!(
            refused,
            Err(Error::UnknownKey {
                key_id: stranger.key_id().into()
            })
        );
    }

    #[test]
    fn a_rotated_key_does_not_come_back() {
        let (old, new) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let mut ring = ring_with(&old);
        ring.change(&KeyChange::rotate(&old, new.public(), "a", "chain"), "chain", 9)
            .unwrap();
        let retired = Err(Error::RetiredKey {
            key_id: old.key_id().into(),
            retired_at: 9,
        });
        assert_eq!(
            ring.change(&KeyChange::register(old.public(), "a"), "chain", 10),
            retired
        );
        assert_eq!(
            ring.change(&KeyChange::rotate(&new, old.public(), "a", "chain"), "chain", 10),
            retired
        );
        assert!(ring.signing(new.key_id(), 11).is_ok());
    }

    #[test]
    fn weak_and_malformed_public_keys_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        for public in [[0; 32], identity] {
            let refused = KeyRing::default().trust(public, "a");
            assert!(matches!(refused, Err(Error::InvalidKey { .. })));
        }
    }
}
