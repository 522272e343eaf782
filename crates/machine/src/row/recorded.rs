//! The retry memory: answers kept for requests that come again.

use decision::{Digest, DurationNs};
use minicbor::{Decode, Encode};

use crate::row::reply::Reply;

/// An answer to a registration or an operator's write is kept this long for retries.
pub const REQUEST_KEPT: DurationNs = DurationNs::from_secs(24 * 3600);

/// An answer kept for a retry.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Recorded {
    #[n(0)]
    pub payload: Digest,
    #[n(1)]
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// The verdict stands in the call's row.
    #[n(0)]
    Call(#[n(0)] u64),
    #[n(1)]
    Reply(#[n(0)] Box<Reply>),
}
