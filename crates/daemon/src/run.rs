//! A node from its first file to its last answer.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Node, PeerIdentity, Rejoined, Setup, SystemClock, SystemEntropy};
use machine::command::Principal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::{InterceptorLayer, RoutesBuilder};
use tonic::transport::Server;
use tonic::{Request, Status};

use crate::accept::{self, Caller, Connection, incoming};
use crate::call_threads::CallThreads;
use crate::config::{Config, ConfigError};
use crate::door::Door;
use crate::http::{Few, router};
use crate::identity::Identity;
use crate::layer::OuterLayer;
use crate::metrics::{Metrics, Port};
use crate::service::cluster::founding;
use crate::signing_key::{self, KeyError};
use crate::tls::{Tls, TlsConnector, TlsError};
use crate::{entry, log, observe, status, tls};

/// How long a node that stops tries to hand its leadership on.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How long requests under way may take to end.
const FINISH: Duration = Duration::from_secs(10);
/// How long the members may take to answer the one that forms the cluster, before it begins again.
const FORM: Duration = Duration::from_secs(30);
/// The pause before a node without a cluster looks for one again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Idle connections are asked for a sign of life this often.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Requests of one connection under way.
const STREAMS_MAX: u32 = 1_024;

/// Why a node did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Log(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error(transparent)]
    Start(#[from] cluster::StartError),
    #[error("{what} cannot be bound: {source}")]
    Bind { what: String, source: std::io::Error },
    #[error("{0}")]
    Internal(String),
    /// Raft ended by itself: nothing may go on answering beside it.
    #[error("Raft has ended: {0}")]
    Ended(String),
}

/// A node that listens.
#[derive(Debug)]
pub struct Running {
    node: Node,
    door: Arc<Door>,
    addresses: Addresses,
    draining: watch::Sender<bool>,
    /// Ends the peers' port, after everything else.
    closing: watch::Sender<bool>,
    /// Servers of the clients' and of the HTTP port.
    servers: JoinSet<()>,
    calls: CallThreads,
    peers: JoinSet<()>,
    chores: JoinSet<()>,
}

/// Where a node listens: the configured addresses, with the ports that port 0 became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub grpc: SocketAddr,
    pub peer: SocketAddr,
    pub http: SocketAddr,
}

/// Runs a node in the foreground: prints `ready` when it listens, drains on SIGTERM or SIGINT.
///
/// # Errors
/// It did not start, or Raft ended.
pub async fn run(config: Config) -> Result<(), RunError> {
    let listened =
        signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    let (mut term, mut interrupt) = listened.map_err(|error| RunError::Internal(error.to_string()))?;
    let running = Running::start(config).await?;
    // Whoever waits for the line has gone where this fails; the node has not.
    let mut out = std::io::stdout();
    let _gone = writeln!(out, "ready").and_then(|()| out.flush());
    tokio::select! {
        why = running.ended() => return Err(RunError::Ended(why)),
        _ = term.recv() => tracing::info!("SIGTERM: draining"),
        _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
    }
    running.stop().await;
    Ok(())
}

/// Says whether a node could start with these settings, as far as files tell.
///
/// # Errors
/// Certificates that are missing or do not fit, or a level that is none.
pub fn check(config: &Config) -> Result<(), RunError> {
    log::init(&config.log).map_err(RunError::Log)?;
    Tls::load(&config.tls, config.node.id)?;
    Ok(())
}

impl Running {
    /// Starts a node; it listens when this returns, and joins or forms its cluster afterwards.
    ///
    /// # Errors
    /// A file, a port or the data directory cannot be used.
    pub async fn start(config: Config) -> Result<Self, RunError> {
        log::init(&config.log).map_err(RunError::Log)?;
        raise_file_limit();
        let metrics = Metrics::new().map_err(|error| RunError::Internal(error.to_string()))?;
        let tls = Arc::new(Tls::load(&config.tls, config.node.id)?);
        // The store first: it makes the directory, and knows by what is in it whether it is new.
        let store = Store::open(&config.node.data_dir, store::Options::default())?;
        let seed = signing_key::load_or_make(&config.signing_key())?;
        // Bound before Raft starts: nobody is told of a node that cannot listen.
        let [clients, peers, http] = [
            bind("listen.grpc", config.listen.grpc).await?,
            bind("listen.peer", config.listen.peer).await?,
            bind("listen.http", config.listen.http).await?,
        ];
        let addresses = Addresses {
            grpc: bound(&clients, config.listen.grpc),
            peer: bound(&peers, config.listen.peer),
            http: bound(&http, config.listen.http),
        };
        let node = Node::start(Setup {
            member: config.member(),
            listed: config.members(),
            store,
            options: config.raft_options(),
            connector: Arc::new(TlsConnector(Arc::clone(&tls))),
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            signer: signing_key::signer(&seed),
        })
        .await?;
        let (draining, drains) = watch::channel(false);
        let (closing, closes) = watch::channel(false);
        let door = Arc::new(Door::new(
            node.clone(),
            config,
            metrics.clone(),
            drains,
            signing_key::signer(&seed),
        ));
        let mut running = Self {
            node,
            door,
            addresses,
            draining,
            closing,
            servers: JoinSet::new(),
            calls: CallThreads::start().map_err(|error| RunError::Internal(error.to_string()))?,
            peers: JoinSet::new(),
            chores: JoinSet::new(),
        };
        running.serve_peers(peers, &tls, closes);
        running.serve_clients(clients, &tls)?;
        running.serve_http(http);
        running.begin_chores(tls);
        tracing::info!(
            node = running.door.config.node.id,
            name = running.door.config.node.name,
            raft_id = running.node.raft_id(),
            grpc = %addresses.grpc,
            peer = %addresses.peer,
            http = %addresses.http,
            "listening"
        );
        Ok(running)
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Why the node cannot decide now; nothing where it can.
    pub fn obstacles(&self) -> Vec<String> {
        self.door.obstacles()
    }

    /// Waits until Raft has ended by itself, and says why. The process must end then.
    pub async fn ended(&self) -> String {
        self.node.stopped().await
    }

    /// Takes no more work, hands leadership on, lets what is under way end, and ends.
    pub async fn stop(mut self) {
        self.draining.send_replace(true);
        if self.node.status().leads()
            && let Err(error) = self.node.transfer_leader(None, HAND_OVER).await
        {
            tracing::info!(%error, "leadership was not handed on");
        }
        if tokio::time::timeout(FINISH, all_of(&mut self.servers))
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end in time");
        }
        self.node.shutdown().await;
        self.closing.send_replace(true);
        if tokio::time::timeout(HAND_OVER, all_of(&mut self.peers))
            .await
            .is_err()
        {
            tracing::debug!("some peers did not hang up in time");
        }
        self.chores.shutdown().await;
        tracing::info!("stopped");
    }

    fn serve_peers(&mut self, listener: TcpListener, tls: &Arc<Tls>, closes: watch::Receiver<bool>) {
        let most = self.door.config.limits.connections;
        let incoming = incoming(
            listener,
            Port::Peers,
            Arc::clone(tls),
            self.door.metrics.clone(),
            most,
        );
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .max_concurrent_streams(STREAMS_MAX)
            .layer(InterceptorLayer::new(peers_only))
            .add_service(self.node.peer_service())
            .serve_with_incoming_shutdown(incoming, becomes_true(closes));
        self.peers.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the peers' port has ended");
            }
        });
    }

    fn serve_clients(&mut self, listener: TcpListener, tls: &Arc<Tls>) -> Result<(), RunError> {
        let door = &self.door;
        let limits = &door.config.limits;
        let incoming = incoming(
            listener,
            Port::Clients,
            Arc::clone(tls),
            door.metrics.clone(),
            limits.connections,
        );
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::proto::DESCRIPTORS)
            .build_v1()
            .map_err(|error| RunError::Internal(error.to_string()))?;
        // Tools of some age ask for the reflection's alpha.
        let reflection_alpha = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::proto::DESCRIPTORS)
            .build_v1alpha()
            .map_err(|error| RunError::Internal(error.to_string()))?;
        let (reporter, health) = tonic_health::server::health_reporter();
        let around = OuterLayer {
            metrics: door.metrics.clone(),
            room: Arc::new(Semaphore::new(limits.in_flight)),
        };
        let mut routes = RoutesBuilder::default();
        routes
            .add_service(health)
            .add_service(reflection)
            .add_service(reflection_alpha);
        entry::add_all(&mut routes, door);
        let routes = routes.routes();
        let serve = |incoming: ReceiverStream<io::Result<Connection>>| {
            let server = Server::builder()
                .http2_keepalive_interval(Some(KEEPALIVE))
                .max_concurrent_streams(STREAMS_MAX)
                .layer(around.clone())
                .add_routes(routes.clone())
                .serve_with_incoming_shutdown(incoming, becomes_true(self.draining.subscribe()));
            async move {
                if let Err(error) = server.await {
                    tracing::error!(%error, "the clients' port has ended");
                }
            }
        };
        let (agents, others) = accept::agents_apart(incoming);
        let (of_agents, of_others) = (serve(agents), serve(others));
        self.servers.spawn_on(of_agents, self.calls.handle());
        self.servers.spawn(of_others);
        let (door, draining) = (Arc::clone(door), self.draining.subscribe());
        self.chores
            .spawn(async move { status::keep_current(&door, &reporter, draining).await });
        Ok(())
    }

    fn serve_http(&mut self, listener: TcpListener) {
        let routes = router(Arc::clone(&self.door));
        // Probes are answered to the end: a node that drains says so.
        self.chores.spawn(async move {
            if let Err(error) = axum::serve(Few::of(listener), routes).await {
                tracing::error!(%error, "the HTTP port has ended");
            }
        });
    }

    fn begin_chores(&mut self, tls: Arc<Tls>) {
        let door = Arc::clone(&self.door);
        let metrics = door.metrics.clone();
        self.chores.spawn(async move { tls.keep_current(&metrics).await });
        let emergency = Arc::clone(&door.emergency);
        self.chores.spawn(emergency.listen());
        let counting = Arc::clone(&door);
        self.chores
            .spawn(async move { observe::keep_counting(&counting).await });
        self.chores.spawn(async move { find_cluster(&door).await });
    }
}

/// Comes back to the cluster that this node was a member of, or forms the one that it is to form.
async fn find_cluster(door: &Door) {
    let members = door.config.members();
    let mut complained = String::new();
    loop {
        let failed = match door.node.rejoin(&members).await {
            Ok(Rejoined::Votes) => return,
            Ok(Rejoined::NoCluster) if door.config.founds() => form(door, members.clone()).await,
            Ok(Rejoined::NoCluster) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = failed
            && why != complained
        {
            tracing::info!(why, "no cluster yet");
            complained = why;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Forms the cluster; says why it could not.
async fn form(door: &Door, members: Vec<store::Member>) -> Option<String> {
    let by = Principal {
        name: format!("node/{}", door.config.node.id),
        organization: None,
        agents: Vec::new(),
    };
    match founding(door, by, members) {
        Ok(founding) => door
            .node
            .found(founding, FORM)
            .await
            .err()
            .map(|error| error.to_string()),
        Err(failure) => Some(failure.to_string()),
    }
}

/// Lets nodes in, and tells the peer service which.
fn peers_only(mut request: Request<()>) -> Result<Request<()>, Status> {
    let caller = request.extensions().get::<Arc<Caller>>();
    let Some(Identity::Node(id)) = caller.and_then(|caller| caller.identity.as_ref().ok()) else {
        return Err(wire::Failure::new(wire::Code::PermissionDenied, "this port is for nodes").to_status());
    };
    if caller.is_none_or(|caller| caller.not_after < tls::wall_seconds()) {
        return Err(
            wire::Failure::new(wire::Code::Unauthenticated, "the certificate has expired").to_status(),
        );
    }
    let identity = PeerIdentity(id.to_string());
    request.extensions_mut().insert(identity);
    Ok(request)
}

/// A connection is a file: as many as the system lets this process have, not the few it gives every process.
fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current < maximum
        && let Err(error) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
    {
        tracing::warn!(%error, ?current, "the limit of open files stays as it is");
    }
}

async fn bind(key: &str, address: SocketAddr) -> Result<TcpListener, RunError> {
    let what = format!("{key} {address}");
    TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Bind { what, source })
}

fn bound(listener: &TcpListener, configured: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(configured)
}

async fn becomes_true(mut flag: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _closed = flag.wait_for(|flag| *flag).await;
}

async fn all_of(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
