//! The gRPC services. Each RPC is the same few steps: who asks and may they (`door`), what do they ask (`wire`),
//! have it decided or read it (`cluster`), say so (`wire`).

pub mod approvals;
pub mod audit;
pub mod budgets;
pub mod cluster;
mod control;
mod facts;
pub mod guard;
pub mod guards;
pub mod halts;
pub mod sessions;
mod stream;
mod tickets;

use tonic::Status;
use wire::{Code, Failure};

/// An answer that does not belong to its question: a bug, and nothing was allowed.
pub(crate) fn unexpected(what: &str) -> Failure {
    Failure::new(
        Code::Internal,
        format!("the cluster answered {what} with something else"),
    )
}

/// Streams end with the statuses that unary RPCs have.
type Streamed<T> = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
