//! Around every gRPC request: room for agents' calls, time and status measured, and a detail for errors that
//! gRPC makes by itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::metadata::MetadataValue;
use tonic::{Code as Grpc, Status};
use tower::{Layer, Service};
use wire::error::{METADATA_KEY, without_detail};
use wire::rpc::Rpc;
use wire::{Code, Failure};

use crate::metrics::Metrics;

/// Agents' paths: theirs alone are counted against the room.
const AGENTS: &str = "/shackle.v1.";

/// The longest that a call takes from its headers to its answer, its message included. Streams answer at once.
const CALL_MAX: Duration = Duration::from_secs(30);

/// Puts `Outer` around the services of the clients' port.
#[derive(Debug, Clone)]
pub struct OuterLayer {
    pub metrics: Metrics,
    /// Room for agents' calls on this node. Operators never wait for it.
    pub room: Arc<Semaphore>,
}

impl<S> Layer<S> for OuterLayer {
    type Service = Outer<S>;

    fn layer(&self, inner: S) -> Outer<S> {
        Outer {
            inner,
            around: self.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Outer<S> {
    inner: S,
    around: OuterLayer,
}

impl<S> Service<Request<Body>> for Outer<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let OuterLayer { metrics, room } = self.around.clone();
        let path = request.uri().path().to_owned();
        let place = if path.starts_with(AGENTS) {
            match room.try_acquire_owned() {
                Ok(place) => Some(Counted::one(place, &metrics)),
                Err(_full) => {
                    metrics.unavailable_total.with_label_values(&["in_flight"]).inc();
                    let failure = Failure::new(
                        Code::DaemonUnavailable,
                        "too many calls are under way on this node",
                    );
                    let response = failure.retry_after_ms(50).to_status().into_http();
                    return Box::pin(std::future::ready(Ok(response)));
                }
            }
        } else {
            None
        };
        let begun = Instant::now();
        let answering = self.inner.call(request);
        Box::pin(async move {
            // A call whose message does not come to its end holds a place for so long and no longer.
            let mut response = match tokio::time::timeout(CALL_MAX, answering).await {
                Ok(answered) => answered?,
                Err(_elapsed) => {
                    let failure = Failure::new(
                        Code::DaemonUnavailable,
                        "the call did not come to its end in time",
                    );
                    failure.to_status().into_http()
                }
            };
            drop(place);
            let status = Status::from_header_map(response.headers());
            if let Some(status) = &status
                && status.code() != Grpc::Ok
                && !has_detail(response.headers())
            {
                response = with_detail(status).into_http();
            }
            let rpc = named(&path);
            metrics
                .rpc_seconds
                .with_label_values(&[rpc])
                .observe(begun.elapsed().as_secs_f64());
            let grpc = Status::from_header_map(response.headers()).map_or(Grpc::Ok, |status| status.code());
            metrics.rpc_total.with_label_values(&[rpc, word(grpc)]).inc();
            Ok(response)
        })
    }
}

/// One agent's request under way.
struct Counted {
    _place: tokio::sync::OwnedSemaphorePermit,
    metrics: Metrics,
}

impl Counted {
    fn one(place: tokio::sync::OwnedSemaphorePermit, metrics: &Metrics) -> Self {
        metrics.calls_in_flight.inc();
        Self {
            _place: place,
            metrics: metrics.clone(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.calls_in_flight.dec();
    }
}

fn has_detail(headers: &HeaderMap) -> bool {
    headers.contains_key(METADATA_KEY)
}

/// Gives an error that gRPC's own code made the detail that ours have, and the code of the specification.
pub fn with_detail(status: &Status) -> Status {
    let undecodable = status.code() == Grpc::Internal && status.message().contains("failed to decode");
    let failure = match status.code() {
        Grpc::Internal if undecodable => Failure::new(Code::InvalidRequest, status.message()),
        Grpc::OutOfRange => Failure::new(Code::MessageTooLarge, status.message()),
        // Its status stays: probes and tools know it.
        other => {
            let failure = Failure::new(without_detail(other), status.message());
            let mut status = status.clone();
            let detail = MetadataValue::from_bytes(&failure.to_detail());
            status.metadata_mut().insert_bin(METADATA_KEY, detail);
            return status;
        }
    };
    failure.to_status()
}

/// An RPC as metrics name it: one of ours, or `other`.
fn named(route: &str) -> &'static str {
    Rpc::at(route).map_or("other", Rpc::path)
}

const fn word(grpc: Grpc) -> &'static str {
    match grpc {
        Grpc::Ok => "OK",
        Grpc::Cancelled => "CANCELLED",
        Grpc::Unknown => "UNKNOWN",
        Grpc::InvalidArgument => "INVALID_ARGUMENT",
        Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Grpc::NotFound => "NOT_FOUND",
        Grpc::AlreadyExists => "ALREADY_EXISTS",
        Grpc::PermissionDenied => "PERMISSION_DENIED",
        Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Grpc::FailedPrecondition => "FAILED_PRECONDITION",
        Grpc::Aborted => "ABORTED",
        Grpc::OutOfRange => "OUT_OF_RANGE",
        Grpc::Unimplemented => "UNIMPLEMENTED",
        Grpc::Internal => "INTERNAL",
        Grpc::Unavailable => "UNAVAILABLE",
        Grpc::DataLoss => "DATA_LOSS",
        Grpc::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::{named, with_detail};
    use tonic::{Code as Grpc, Status};
    use wire::{Code, Failure};

    #[test]
    fn errors_of_grpc_itself_get_a_detail() {
        let rows = [
            (
                Status::out_of_range("too large"),
                Grpc::ResourceExhausted,
                Code::MessageTooLarge,
            ),
            (
                Status::internal("failed to decode Protobuf message: x"),
                Grpc::InvalidArgument,
                Code::InvalidRequest,
            ),
            (Status::internal("other"), Grpc::Internal, Code::Internal),
            (
                Status::unimplemented("no such path"),
                Grpc::Unimplemented,
                Code::InvalidRequest,
            ),
            (
                Status::cancelled("gone"),
                Grpc::Cancelled,
                Code::DaemonUnavailable,
            ),
        ];
        for (status, grpc, code) in rows {
            let detailed = with_detail(&status);
            assert_eq!(detailed.code(), grpc);
            assert_eq!(Failure::from_status(&detailed).code, code, "{status}");
        }
    }

    #[test]
    fn paths_of_others_are_not_labels() {
        assert_eq!(
            named("/shackle.v1.ShackleDaemon/PreExec"),
            "shackle.v1.ShackleDaemon/PreExec"
        );
        assert_eq!(named("/grpc.health.v1.Health/Check"), "other");
        assert_eq!(named("/anything"), "other");
    }
}
