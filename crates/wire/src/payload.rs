//! What a retried request must agree with: one digest over the fields as they were read.

use decision::{Digest, NanoUsd, RequestId};
use machine::command::Request;

use crate::invalid::Invalid;

/// Separates these digests from everything else that is hashed. Digests rest in the retry table: a change of
/// the bytes below makes conflicts of retries that cross an upgrade.
const LABEL: &[u8] = b"haltgate request payload v1\n";

/// Fields of one request, each with its length, in one order. `approval_id` and `request_id` are not among them.
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    pub fn of(rpc: &str) -> Self {
        Self(LABEL.to_vec()).text(rpc)
    }

    pub fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    pub fn flag(self, flag: bool) -> Self {
        self.number(u64::from(flag))
    }

    /// An absent amount is not the same as 0.
    pub fn amount(self, amount: Option<NanoUsd>) -> Self {
        match amount {
            Some(amount) => self.bytes(&amount.nanos().to_be_bytes()),
            None => self.bytes(&[]),
        }
    }

    /// A map without an order, in the order of its keys.
    pub fn pairs<'a>(self, pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let mut sorted: Vec<_> = pairs.collect();
        sorted.sort_unstable();
        let count = u64::try_from(sorted.len()).unwrap_or(u64::MAX);
        sorted
            .into_iter()
            .fold(self.number(count), |payload, (key, value)| {
                payload.text(key).text(value)
            })
    }

    fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

/// Reads the retry key of a request that may go without one; the payload is only worked out where there is one.
pub(crate) fn request(id: &str, payload: impl FnOnce() -> Payload) -> Result<Option<Request>, Invalid> {
    if id.is_empty() {
        return Ok(None);
    }
    required_request(id, payload).map(Some)
}

/// Reads the retry key of a request that must have one.
pub(crate) fn required_request(id: &str, payload: impl FnOnce() -> Payload) -> Result<Request, Invalid> {
    let id = RequestId::parse(id)
        .map_err(|error| Invalid::new("request_id", format!("must be {}", error.rule)))?;
    Ok(Request {
        id,
        payload: payload().digest(),
    })
}
