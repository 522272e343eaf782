//! The nodes of one cluster, and which of them is asked: the one that answered last, the leader when a node
//! names it, else the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use wire::proto::haltgate::error::v1::Error;
use wire::rpc::{Followed, Rpc, Unary};

use crate::credentials::{Credentials, OpenError};

/// The pause before a first repetition; it doubles, so that a full queue is not filled by its own refusals.
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_LAST: Duration = Duration::from_millis(100);
/// One node may take this part of what is left before another is asked: a node that is stopped, not dead,
/// does not answer at all.
const PATIENCE_PART: u32 = 2;
const PATIENCE_LEAST: Duration = Duration::from_millis(50);

/// Connections to all nodes, opened when first used and again when they broke.
#[derive(Debug)]
pub struct Pool {
    nodes: Vec<(String, Channel)>,
    current: AtomicUsize,
}

impl Pool {
    /// Prepares connections to `host:port` addresses; none is opened yet.
    ///
    /// # Errors
    /// A file cannot be read, or an address is none.
    pub fn open(endpoints: &[String], credentials: &Credentials) -> Result<Self, OpenError> {
        let tls = credentials.tls()?;
        let mut nodes = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let invalid = |error: tonic::transport::Error| OpenError::Endpoint {
                endpoint: endpoint.clone(),
                why: causes(&error),
            };
            let channel = Endpoint::from_shared(format!("https://{endpoint}"))
                .map_err(invalid)?
                .tcp_nodelay(true)
                .connect_timeout(Duration::from_secs(2))
                .http2_keep_alive_interval(Duration::from_secs(20))
                .keep_alive_timeout(Duration::from_secs(5))
                .tls_config(tls.clone())
                .map_err(invalid)?
                .connect_lazy();
            nodes.push((endpoint.clone(), channel));
        }
        if nodes.is_empty() {
            return Err(OpenError::NoEndpoint);
        }
        Ok(Self {
            nodes,
            current: AtomicUsize::new(0),
        })
    }

    /// The node that is asked next.
    pub fn channel(&self) -> Channel {
        self.node(self.current.load(Ordering::Relaxed)).1.clone()
    }

    /// Asks, again and elsewhere while nodes are unavailable, until the time is up.
    ///
    /// The request must be one that may be repeated: its request id is the same every time.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn call<M: Unary>(&self, message: &M, within: Duration) -> Result<M::Reply, Status> {
        let ask = |mut grpc: Grpc<Channel>, request| async move {
            let codec = ProstCodec::<M, M::Reply>::default();
            grpc.unary(request, path(M::RPC), codec).await
        };
        self.repeat(message, within, ask).await
    }

    /// The same of a request that a stream answers: the time is for its beginning.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn follow<M: Followed>(
        &self,
        message: &M,
        within: Duration,
    ) -> Result<Streaming<M::Reply>, Status> {
        let ask = |mut grpc: Grpc<Channel>, request| async move {
            let codec = ProstCodec::<M, M::Reply>::default();
            grpc.server_streaming(request, path(M::RPC), codec).await
        };
        self.repeat(message, within, ask).await
    }

    async fn repeat<M, T, F, Fut>(&self, message: &M, within: Duration, ask: F) -> Result<T, Status>
    where
        M: Clone,
        F: Fn(Grpc<Channel>, Request<M>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + within;
        let mut backoff = BACKOFF_FIRST;
        // What a node said is worth more than that another could not be reached.
        let mut told: Option<Status> = None;
        loop {
            let asked = self.current.load(Ordering::Relaxed);
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if self.nodes.len() > 1 {
                (left / PATIENCE_PART).max(PATIENCE_LEAST).min(left)
            } else {
                left
            };
            let mut request = Request::new(message.clone());
            request.set_timeout(patience);
            let mut grpc = Grpc::new(self.node(asked).1.clone());
            let asking = async {
                let unreachable = |error| Status::unknown(format!("Service was not ready: {error}"));
                grpc.ready().await.map_err(unreachable)?;
                ask(grpc, request).await
            };
            let status = match tokio::time::timeout(patience, asking).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if is_final(&status) => return Err(status),
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::unavailable("no answer in time"),
            };
            self.turn_from(asked, &status);
            let status = match error_detail(&status) {
                Some(_) => {
                    told = Some(status.clone());
                    status
                }
                None => Status::new(
                    status.code(),
                    format!("{}: {}", self.node(asked).0, status.message()),
                ),
            };
            if Instant::now() + backoff >= deadline {
                return Err(told.unwrap_or(status));
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_LAST);
        }
    }

    /// Moves on from a node that could not answer: to the leader it names, else to the next.
    fn turn_from(&self, asked: usize, status: &Status) {
        let leader = error_detail(status)
            .and_then(|error| error.leader)
            .map(|leader| leader.grpc_addr);
        let named = leader.and_then(|leader| self.nodes.iter().position(|(endpoint, _)| *endpoint == leader));
        let next = named
            .filter(|named| *named != asked)
            .unwrap_or(asked.wrapping_add(1) % self.nodes.len().max(1));
        // Another task may have moved already: then its choice stands.
        let _moved = self
            .current
            .compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn node(&self, index: usize) -> &(String, Channel) {
        #[expect(
            clippy::indexing_slicing,
            reason = "`open` refuses an empty list, and the index is below its length"
        )]
        &self.nodes[index % self.nodes.len()]
    }
}

/// Whether asking again cannot help.
fn is_final(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => false,
        // A transport that broke under a request surfaces as unknown, without any detail of ours.
        Code::Unknown | Code::Internal => error_detail(status).is_some(),
        _ => true,
    }
}

/// The `haltgate-error` detail that every refusal of a node carries.
pub fn error_detail(status: &Status) -> Option<Error> {
    let bytes = status.metadata().get_bin("haltgate-error-bin")?.to_bytes().ok()?;
    Error::decode(bytes).ok()
}

fn path(rpc: Rpc) -> PathAndQuery {
    PathAndQuery::from_static(rpc.route())
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        words.push_str(": ");
        words.push_str(&next.to_string());
        cause = next.source();
    }
    words
}
