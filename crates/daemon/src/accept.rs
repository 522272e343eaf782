//! From a listening socket to verified connections.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::identity::{Identity, NoIdentity};
use crate::metrics::{Metrics, Port};
use crate::tls::{Tls, not_after};

/// How long a handshake may take: one that stalls holds a connection's place.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that wait to be served.
const WAITING: usize = 1_024;
/// Handshakes under way, and those of one address among them: who only begins them keeps few out.
const HANDSHAKES: usize = 512;
const HANDSHAKES_OF_ONE: usize = 384;
/// Places of a port that agents' connections never take: operators and nodes come in when those are full.
const RESERVED_MAX: usize = 256;
/// The pause after a failed accept: out of file descriptors, it would spin.
const AGAIN: Duration = Duration::from_millis(50);

/// Who is at the other end of a connection; in the extensions of each of its requests.
#[derive(Debug)]
pub struct Caller {
    pub identity: Result<Identity, NoIdentity>,
    pub address: IpAddr,
    /// End of the certificate's validity, seconds since the epoch: a connection does not outlive it.
    pub not_after: i64,
}

/// A connection whose certificate was verified.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    caller: Arc<Caller>,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

/// Takes connections until the stream is dropped. Above `most` at once, further ones are closed: agents' first,
/// a part of the places is kept from them.
pub fn incoming(
    listener: TcpListener,
    port: Port,
    tls: Arc<Tls>,
    metrics: Metrics,
    most: usize,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let door = Arc::new(Places::new(most));
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                accepted = listener.accept() => accepted,
            };
            let (tcp, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            let failed = |why| {
                metrics
                    .handshake_failures_total
                    .with_label_values(&[port.word(), why])
                    .inc()
            };
            let Some(shaking) = door.begin(address.ip()) else {
                failed("full");
                continue;
            };
            let (sender, tls, metrics, door) = (
                sender.clone(),
                Arc::clone(&tls),
                metrics.clone(),
                Arc::clone(&door),
            );
            tokio::spawn(async move {
                let failed = |why| {
                    metrics
                        .handshake_failures_total
                        .with_label_values(&[port.word(), why])
                        .inc()
                };
                let shaken = tokio::time::timeout(HANDSHAKE, shake(tcp, address.ip(), &tls)).await;
                drop(shaking);
                match shaken {
                    Ok(Ok((stream, caller))) => match door.place(&caller) {
                        // The server has gone where this fails, and the connection with it.
                        Some(place) => {
                            let counted = Counted::one(&metrics, port);
                            let connection = Connection {
                                stream,
                                caller,
                                _place: place,
                                _counted: counted,
                            };
                            drop(sender.send(Ok(connection)).await);
                        }
                        None => failed("full"),
                    },
                    Ok(Err(error)) => {
                        tracing::debug!(%error, peer = %address, "no handshake");
                        failed("tls");
                    }
                    Err(_elapsed) => failed("timeout"),
                }
            });
        }
    });
    ReceiverStream::new(receiver)
}

/// The places of a port.
struct Places {
    handshakes: Mutex<BTreeMap<IpAddr, usize>>,
    agents: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A handshake under way.
struct Shaking {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn new(most: usize) -> Self {
        let reserved = (most / 4).clamp(1, RESERVED_MAX);
        Self {
            handshakes: Mutex::default(),
            agents: Arc::new(Semaphore::new(most.saturating_sub(reserved))),
            others: Arc::new(Semaphore::new(reserved)),
        }
    }

    fn begin(self: &Arc<Self>, address: IpAddr) -> Option<Shaking> {
        let mut under_way = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = under_way.values().sum();
        let own = under_way.get(&address).copied().unwrap_or(0);
        if all >= HANDSHAKES || own >= HANDSHAKES_OF_ONE {
            return None;
        }
        under_way.insert(address, own.saturating_add(1));
        Some(Shaking {
            places: Arc::clone(self),
            address,
        })
    }

    /// A place for a connection of this kind; none where those are taken.
    fn place(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        let kind = if caller.is_agent() {
            &self.agents
        } else {
            &self.others
        };
        Arc::clone(kind).try_acquire_owned().ok()
    }
}

impl Drop for Shaking {
    fn drop(&mut self) {
        let mut under_way = self
            .places
            .handshakes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = under_way.get_mut(&self.address) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                under_way.remove(&self.address);
            }
        }
    }
}

/// Parts agents' connections from everyone else's: each kind is served by threads of its own.
pub fn agents_apart(
    mut incoming: ReceiverStream<io::Result<Connection>>,
) -> (
    ReceiverStream<io::Result<Connection>>,
    ReceiverStream<io::Result<Connection>>,
) {
    let (to_agents, agents) = mpsc::channel(WAITING);
    let (to_others, others) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        while let Some(connection) = incoming.next().await {
            let of_agent = connection
                .as_ref()
                .is_ok_and(|connection| connection.caller.is_agent());
            let to = if of_agent { &to_agents } else { &to_others };
            // Never waits for one kind on account of the other: who finds no room connects again.
            if let Err(mpsc::error::TrySendError::Closed(_)) = to.try_send(connection) {
                return;
            }
        }
    });
    (ReceiverStream::new(agents), ReceiverStream::new(others))
}

impl Caller {
    fn is_agent(&self) -> bool {
        matches!(self.identity, Ok(Identity::Agent(..) | Identity::Sidecar { .. }))
    }
}

async fn shake(
    tcp: TcpStream,
    address: IpAddr,
    tls: &Tls,
) -> io::Result<(TlsStream<TcpStream>, Arc<Caller>)> {
    tcp.set_nodelay(true)?;
    let stream = TlsAcceptor::from(tls.server()).accept(tcp).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identity = match certificate {
        Some(certificate) => Identity::of_certificate(tls.trust_domain(), certificate),
        None => Err(NoIdentity::NoUri),
    };
    let not_after = certificate
        .and_then(|certificate| not_after(certificate))
        .unwrap_or(0);
    let caller = Arc::new(Caller {
        identity,
        address,
        not_after,
    });
    Ok((stream, caller))
}

/// One open connection in the metric, for as long as it lives.
#[derive(Debug)]
struct Counted(prometheus::IntGauge);

impl Counted {
    fn one(metrics: &Metrics, port: Port) -> Self {
        let gauge = metrics.connections.with_label_values(&[port.word()]);
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Connected for Connection {
    type ConnectInfo = Arc<Caller>;

    fn connect_info(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
