//! How a node reaches another: bytes to and from a peer's port. TLS, or a simulated network, is behind it.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use store::Member;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use wire::proto::haltgate::peer::v1::peer_client::PeerClient;

/// A connection's bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A connection in the making.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Opens connections to peers, and has made sure who is at the other end before it gives one out.
pub trait Connector: Send + Sync + 'static {
    fn connect(&self, peer: &Member) -> Connecting;
}

/// The largest message between peers: a snapshot chunk, or an append of capped size, with room.
pub const PEER_MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// How long a connection may take to be made; an election takes no less.
const CONNECT: Duration = Duration::from_secs(1);

/// What a connection carries. Each lane has one of its own: calls that pile up delay neither Raft's heartbeats
/// nor an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// And what nodes ask each other all the time: clocks, and who leads.
    Raft,
    /// Operators' commands, and what nodes ask each other for them.
    Urgent,
    Calls,
}

type Channels = BTreeMap<(String, String, Lane), Channel>;

/// One channel a peer and lane, opened when first used and again whenever it broke.
#[derive(Clone)]
pub(crate) struct Peers {
    connector: Arc<dyn Connector>,
    /// By the peer's name, its address, and the lane.
    channels: Arc<Mutex<Channels>>,
}

impl Peers {
    pub fn new(connector: Arc<dyn Connector>) -> Self {
        Self {
            connector,
            channels: Arc::default(),
        }
    }

    pub fn client(&self, peer: &Member, lane: Lane) -> PeerClient<Channel> {
        let key = (peer.name.clone(), peer.peer.clone(), lane);
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = channels.entry(key).or_insert_with(|| self.channel(peer)).clone();
        PeerClient::new(channel)
            .max_decoding_message_size(PEER_MESSAGE_MAX)
            .max_encoding_message_size(PEER_MESSAGE_MAX)
    }

    /// Gives up a connection on which a request got no answer: a cut network closes nothing by itself, and
    /// heartbeats find a dead one sooner than the system would.
    pub fn give_up(&self, peer: &Member, lane: Lane) {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.remove(&(peer.name.clone(), peer.peer.clone(), lane));
    }

    fn channel(&self, peer: &Member) -> Channel {
        let (connector, peer) = (self.connector.clone(), peer.clone());
        // The address in the URI is never resolved: the connector knows the peer.
        Endpoint::from_static("http://peer")
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .connect_with_connector_lazy(service_fn(move |_uri| {
                let connecting = connector.connect(&peer);
                async move { connecting.await.map(TokioIo::new) }
            }))
    }
}
