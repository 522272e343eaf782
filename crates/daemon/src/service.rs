//! The gRPC services: one function an RPC, called by its entry (`entry`). Each has a request that was let in
//! (`admit`), reads the message (`wire`), has it decided or reads the state (`door`), and writes the answer (`wire`).

pub mod approvals;
pub mod audit;
pub mod budgets;
pub mod cluster;
mod control;
pub mod guard;
pub mod guards;
pub mod halts;
pub mod sessions;
mod stream;
mod tickets;

use tonic::Status;

/// Streams end with the statuses that unary RPCs have.
pub type Streamed<T> = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
