use std::fmt;

use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

/// A node's Ed25519 signing key; it is wiped when dropped and never printed.
pub struct Signer {
    key: SigningKey,
    key_id: String,
}

impl Signer {
    /// Takes the 32 secret bytes of RFC 8032; drawing them is the caller's work.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let key_id = key_id(&key.verifying_key().to_bytes());
        Self { key, key_id }
    }

    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub fn public(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// Gives the id of a public key: the first 8 bytes of its SHA-256, in hex.
pub fn key_id(public: &[u8; 32]) -> String {
    Sha256::digest(public)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Signer;

    #[test]
    fn printed_signer_shows_its_key_id_only() {
        let signer = Signer::from_seed(&[7; 32]);
        assert_eq!(signer.key_id().len(), 16);
        assert_eq!(
            format!("{signer:?}"),
            format!("Signer {{ key_id: {:?}, .. }}", signer.key_id())
        );
    }
}
