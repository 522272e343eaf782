//! Tickets as they are handed out: signed by the node that answered, read and checked by anyone (docs/SPEC.md 21).
//!
//! A good signature proves where a ticket comes from. Whether it may still be used only the cluster knows.

use decision::{Digest, SessionId, Timestamp, ToolName};

use crate::error::Error;
use crate::key::Signer;
use crate::keyring::KeyRing;

/// Separates tickets from everything else that is signed.
const LABEL: &[u8] = b"haltgate ticket v1\n";
const SIGNATURE_BYTES: usize = 64;
/// Longer ones are not read.
const TICKET_BYTES_MAX: usize = 4_096;

/// One call's single-use authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub id: String,
    /// The cluster that decided.
    pub chain_id: String,
    pub session: SessionId,
    pub call_number: u64,
    pub tool: ToolName,
    /// Of the canonical parameters.
    pub digest: Option<Digest>,
    /// Of the guards that allowed the call.
    pub policy_digest: Digest,
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Ticket {
    /// Signs the ticket with a node's key.
    pub fn sign(&self, signer: &Signer) -> Vec<u8> {
        let mut bytes = LABEL.to_vec();
        let number = |number: u64| number.to_be_bytes().to_vec();
        let digest = |digest: &Digest| digest.as_bytes().to_vec();
        for field in [
            self.id.as_bytes().to_vec(),
            self.chain_id.as_bytes().to_vec(),
            self.session.as_str().as_bytes().to_vec(),
            number(self.call_number),
            self.tool.as_str().as_bytes().to_vec(),
            self.digest.as_ref().map(digest).unwrap_or_default(),
            digest(&self.policy_digest),
            number(self.issued_at.nanos()),
            number(self.expires_at.nanos()),
            signer.key_id().as_bytes().to_vec(),
        ] {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        let signature = signer.sign(&bytes);
        bytes.extend_from_slice(&signature);
        bytes
    }

    /// Reads a ticket and checks that one of these keys signed it. That it may still be used is not checked: a halt,
    /// a redemption or time may have voided it since.
    pub fn verify(bytes: &[u8], keys: &KeyRing) -> Result<Ticket, Error> {
        if bytes.len() > TICKET_BYTES_MAX {
            return Err(Error::TicketMalformed);
        }
        let (signed, signature) = bytes
            .split_last_chunk::<SIGNATURE_BYTES>()
            .ok_or(Error::TicketMalformed)?;
        let mut from = Fields(signed.strip_prefix(LABEL).ok_or(Error::TicketMalformed)?);
        let ticket = Ticket {
            id: from.text()?.to_owned(),
            chain_id: from.text()?.to_owned(),
            session: SessionId::parse(from.text()?).map_err(|_| Error::TicketMalformed)?,
            call_number: from.number()?,
            tool: ToolName::parse(from.text()?).map_err(|_| Error::TicketMalformed)?,
            digest: match from.bytes()? {
                [] => None,
                bytes => Some(Digest::from_slice(bytes).ok_or(Error::TicketMalformed)?),
            },
            policy_digest: Digest::from_slice(from.bytes()?).ok_or(Error::TicketMalformed)?,
            issued_at: Timestamp::from_nanos(from.number()?),
            expires_at: Timestamp::from_nanos(from.number()?),
        };
        let key_id = from.text()?;
        if !from.0.is_empty() {
            return Err(Error::TicketMalformed);
        }
        // A key that was replaced signs nothing new; what it signed before lives for seconds.
        let key = keys.signing(key_id, u64::MAX)?;
        if key.verifies(signed, signature) {
            Ok(ticket)
        } else {
            Err(Error::TicketSignature)
        }
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let (length, rest) = self.0.split_first_chunk::<4>().ok_or(Error::TicketMalformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Error::TicketMalformed)?;
        let (field, rest) = rest.split_at_checked(length).ok_or(Error::TicketMalformed)?;
        self.0 = rest;
        Ok(field)
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::TicketMalformed)
    }

    fn number(&mut self) -> Result<u64, Error> {
        let bytes = self.bytes()?.try_into().map_err(|_| Error::TicketMalformed)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use decision::{Digest, SessionId, Timestamp, ToolName};

    use super::Ticket;
    use crate::error::Error;
    use crate::key::Signer;
    use crate::keyring::KeyRing;

    fn ticket() -> Ticket {
        Ticket {
            id: "tkt_1".to_owned(),
            chain_id: "chain".to_owned(),
            session: SessionId::parse("ses_1").unwrap(),
            call_number: 7,
            tool: ToolName::parse("pay").unwrap(),
            digest: Some(Digest::of(b"{}")),
            policy_digest: Digest::of(b"guard"),
            issued_at: Timestamp::from_nanos(1),
            expires_at: Timestamp::from_nanos(2),
        }
    }

    fn keys(signer: &Signer) -> KeyRing {
        let mut keys = KeyRing::default();
        keys.trust(signer.public(), "n1").unwrap();
        keys
    }

    #[test]
    fn a_ticket_reads_back_and_no_byte_of_it_may_change() {
        let signer = Signer::from_seed(&[7; 32]);
        let keys = keys(&signer);
        for ticket in [
            ticket(),
            Ticket {
                digest: None,
                ..ticket()
            },
        ] {
            let bytes = ticket.sign(&signer);
            assert_eq!(Ticket::verify(&bytes, &keys).unwrap(), ticket);
            for place in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[place] ^= 1;
                assert!(Ticket::verify(&changed, &keys).is_err(), "byte {place}");
            }
            for length in 0..bytes.len() {
                assert!(Ticket::verify(&bytes[..length], &keys).is_err(), "{length} bytes");
            }
        }
    }

    #[test]
    fn a_key_that_is_not_known_signs_nothing() {
        let bytes = ticket().sign(&Signer::from_seed(&[8; 32]));
        let keys = keys(&Signer::from_seed(&[7; 32]));
        assert!(matches!(
            Ticket::verify(&bytes, &keys),
            Err(Error::UnknownKey { .. })
        ));
    }
}
