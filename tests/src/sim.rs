//! A whole cluster in one thread, repeatable by its seed: the real node, the real store over simulated
//! disks, and a network that loses, delays and cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::Signer;
use cluster::{
    Clock, Connecting, Connector, Entropy, Founding, Io, Node, Options, PeerIdentity, Setup, Status, Urgency,
};
use decision::Timestamp;
use machine::command::Principal;
use machine::{Command, Guard, Reply};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use store::{Kept, Member, MemoryNode, StateReader, Store};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use turmoil::net::{TcpListener, TcpStream};

use crate::history::{Attempt, History};

const PEER_PORT: u16 = 9001;
const DOOR_PORT: u16 = 9000;
/// How long a node works on a client's command.
const NODE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a client waits for an answer before it asks again.
const CLIENT_PATIENCE: Duration = Duration::from_millis(2_500);

pub type SimResult = Result<(), Box<dyn std::error::Error>>;

/// Work that a node is given from outside the simulated world.
type Job = Box<dyn FnOnce(Node) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;
/// How often a node looks for such work.
const JOBS_EVERY: Duration = Duration::from_millis(50);

/// A simulated cluster and everything that survives its nodes' crashes.
pub struct Sim {
    pub turmoil: turmoil::Sim<'static>,
    pub names: Vec<String>,
    pub shared: Arc<Shared>,
    rng: StdRng,
    down: BTreeSet<String>,
    cuts: BTreeSet<(String, String)>,
}

/// What hosts and the test have in common; it is outside the simulated world.
#[derive(Default)]
pub struct Shared {
    pub history: Mutex<History>,
    pub readers: Mutex<BTreeMap<String, StateReader>>,
    nodes: Mutex<BTreeMap<String, Node>>,
    jobs: Mutex<BTreeMap<String, Vec<Job>>>,
    /// How many nanoseconds a node's clock is ahead of the true time.
    clocks: Mutex<BTreeMap<String, i64>>,
    disks: Mutex<BTreeMap<String, MemoryNode>>,
    starts: Mutex<BTreeMap<String, u64>>,
    pub finished: Mutex<usize>,
}

impl Shared {
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sim {
    /// Makes a cluster of this many nodes, which found themselves.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self::with_spares(seed, nodes, 0)
    }

    /// The same, and further nodes that belong to no cluster yet and that no configuration lists.
    pub fn with_spares(seed: u64, nodes: usize, spares: usize) -> Self {
        let options = Options {
            snapshot_every: 500,
            log_kept: 200,
            ..Options::default()
        };
        Self::with_options(seed, nodes, spares, &options)
    }

    /// The same, with these timings and sizes: a test may take a bound away to see what it is for.
    pub fn with_options(seed: u64, nodes: usize, spares: usize, options: &Options) -> Self {
        let turmoil = turmoil::Builder::new()
            .rng_seed(seed)
            .epoch(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
            .simulation_duration(Duration::from_secs(3_600))
            .tick_duration(Duration::from_millis(2))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(20))
            .tcp_capacity(4_096)
            .build();
        let names: Vec<String> = (1..=nodes).map(|number| format!("n{number}")).collect();
        let mut sim = Self {
            turmoil,
            names: names.clone(),
            shared: Arc::default(),
            rng: StdRng::seed_from_u64(seed ^ 0x5eed),
            down: BTreeSet::new(),
            cuts: BTreeSet::new(),
        };
        let all = (1..=nodes + spares).map(|number| format!("n{number}"));
        for (place, name) in (1_u64..).zip(all) {
            let disk = MemoryNode::new(place);
            lock(&sim.shared.disks).insert(name.clone(), disk);
            let (shared, names, options) = (sim.shared.clone(), names.clone(), options.clone());
            sim.turmoil.host(name.clone(), move || {
                let host = Host {
                    seed,
                    place,
                    name: name.clone(),
                    names: names.clone(),
                    shared: shared.clone(),
                    options: options.clone(),
                };
                host.run()
            });
        }
        sim
    }

    /// Lets a client run; `work` gets a handle to ask nodes with, and a generator of its own.
    pub fn client<F, Fut>(&mut self, seed: u64, number: usize, work: F)
    where
        F: FnOnce(Asker) -> Fut + 'static,
        Fut: Future<Output = SimResult> + 'static,
    {
        let asker = Asker {
            number,
            names: self.names.clone(),
            shared: self.shared.clone(),
            rng: StdRng::seed_from_u64(
                seed.wrapping_mul(31)
                    .wrapping_add(u64::try_from(number).unwrap_or(u64::MAX)),
            ),
        };
        let shared = self.shared.clone();
        self.turmoil.client(format!("c{number}"), async move {
            let done = work(asker).await;
            *lock(&shared.finished) += 1;
            done
        });
    }

    /// One step of simulated time.
    pub fn step(&mut self) -> SimResult {
        self.turmoil.step().map(|_all_clients_done| ())
    }

    pub fn now(&self) -> Duration {
        self.turmoil.elapsed()
    }

    /// One random fault, or the end of one: a crash, a restart, a cut, a repair.
    pub fn disturb(&mut self) {
        let names = self.names.clone();
        let pick = |rng: &mut StdRng| names[rng.random_range(0..names.len())].clone();
        match self.rng.random_range(0..100_u32) {
            0..35 => {
                // A minority at a time: more is the business of its own test.
                if self.down.len() < names.len() / 2 {
                    let name = pick(&mut self.rng);
                    self.crash(&name);
                }
            }
            35..70 => {
                if let Some(name) = self.down.first().cloned() {
                    self.restart(&name);
                }
            }
            70..74 => {
                // One node's only: what a majority's clocks show is the time.
                let ahead = self.rng.random_range(-3_600_000..=3_600_000_i64);
                self.set_clock("n2", ahead);
            }
            74..85 => {
                let (a, b) = (pick(&mut self.rng), pick(&mut self.rng));
                if a != b {
                    let oneway = self.rng.random_bool(0.3);
                    self.cut(&a, &b, oneway);
                }
            }
            _ => self.repair_all(),
        }
    }

    /// Kills a node: its unsynced writes may be lost, but for a prefix.
    pub fn crash(&mut self, name: &str) {
        if !self.down.insert(name.to_owned()) {
            return;
        }
        self.turmoil.crash(name);
        lock(&self.shared.readers).remove(name);
        lock(&self.shared.nodes).remove(name);
        let kept = match self.rng.random_range(0..3_u32) {
            0 => Kept::Nothing,
            1 => Kept::Everything,
            _ => Kept::Prefix(self.rng.next_u64()),
        };
        if let Some(disk) = lock(&self.shared.disks).get(name) {
            disk.crash(kept);
        }
        self.note(&format!("crash {name} {kept:?}"));
    }

    pub fn restart(&mut self, name: &str) {
        if self.down.remove(name) {
            self.turmoil.bounce(name);
            self.note(&format!("restart {name}"));
        }
    }

    /// Sets a node's clock ahead of the true time, or behind it.
    pub fn set_clock(&mut self, name: &str, ahead_ms: i64) {
        lock(&self.shared.clocks).insert(name.to_owned(), ahead_ms * 1_000_000);
        self.note(&format!("clock {name} {ahead_ms} ms ahead"));
    }

    /// The true time.
    pub fn true_time(&self) -> Timestamp {
        timestamp(self.turmoil.since_epoch())
    }

    /// Gives a running node work to do, in its world.
    pub fn on<F, Fut>(&mut self, name: &str, work: F)
    where
        F: FnOnce(Node) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let job: Job = Box::new(|node| Box::pin(work(node)));
        lock(&self.shared.jobs)
            .entry(name.to_owned())
            .or_default()
            .push(job);
    }

    /// What a node says of itself, while it runs.
    pub fn status(&self, name: &str) -> Option<Status> {
        lock(&self.shared.nodes).get(name).map(Node::status)
    }

    /// The node that leads, in the newest term of which one is known.
    pub fn leader(&self) -> Option<String> {
        let nodes = lock(&self.shared.nodes);
        let leading = nodes
            .iter()
            .map(|(name, node)| (name, node.status()))
            .filter(|(_, status)| status.leads());
        leading
            .max_by_key(|(_, status)| status.term)
            .map(|(name, _)| name.clone())
    }

    /// A node's disks; they survive its crashes.
    pub fn disk(&self, name: &str) -> MemoryNode {
        lock(&self.shared.disks)[name].clone()
    }

    /// Puts other disks into a node that is down.
    pub fn put_disk(&mut self, name: &str, disk: MemoryNode) {
        assert!(self.down.contains(name), "{name} runs");
        lock(&self.shared.disks).insert(name.to_owned(), disk);
        self.note(&format!("other disks in {name}"));
    }

    pub fn cut(&mut self, a: &str, b: &str, oneway: bool) {
        if oneway {
            self.turmoil.partition_oneway(a, b);
        } else {
            self.turmoil.partition(a, b);
        }
        self.cuts.insert((a.to_owned(), b.to_owned()));
        self.note(&format!("cut {a} {b} oneway={oneway}"));
    }

    pub fn repair_all(&mut self) {
        for (a, b) in std::mem::take(&mut self.cuts) {
            self.turmoil.repair(a.as_str(), b.as_str());
            self.note(&format!("repair {a} {b}"));
        }
    }

    /// Ends every fault.
    pub fn heal(&mut self) {
        lock(&self.shared.clocks).clear();
        self.heal_but_clocks();
    }

    /// Ends every fault but the clocks'.
    pub fn heal_but_clocks(&mut self) {
        self.repair_all();
        for name in self.down.clone() {
            self.restart(&name);
        }
    }

    fn note(&self, what: &str) {
        self.shared.history().note(self.now(), what);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One node's process, from start to crash.
struct Host {
    seed: u64,
    place: u64,
    name: String,
    names: Vec<String>,
    shared: Arc<Shared>,
    options: Options,
}

impl Host {
    async fn run(self) -> SimResult {
        let start = {
            let mut starts = lock(&self.shared.starts);
            let start = starts.entry(self.name.clone()).or_default();
            *start += 1;
            *start
        };
        let disk = lock(&self.shared.disks)
            .get(&self.name)
            .cloned()
            .ok_or("no disk")?;
        let store = Store::in_memory(&disk, store::Options::default())?;
        let rng = StdRng::seed_from_u64(self.seed.wrapping_mul(1_000_003) ^ (self.place << 32) ^ start);
        let node = Node::start(Setup {
            member: member(&self.name),
            listed: self.names.iter().map(|name| member(name)).collect(),
            store,
            options: self.options,
            connector: Arc::new(SimConnector {
                name: self.name.clone(),
            }),
            clock: Arc::new(SimClock {
                name: self.name.clone(),
                shared: self.shared.clone(),
            }),
            entropy: Arc::new(SimEntropy(Mutex::new(rng))),
            signer: Signer::from_seed(&[u8::try_from(self.place)?; 32]),
        })
        .await?;
        lock(&self.shared.readers).insert(self.name.clone(), node.reader().clone());
        lock(&self.shared.nodes).insert(self.name.clone(), node.clone());

        let peers = serve_peers(&node).await?;
        let door = tokio::spawn(serve_door(node.clone()));
        if self.place == 1 {
            tokio::spawn(found(node.clone(), self.names.clone()));
        }
        tokio::spawn(work_off(node.clone(), self.name.clone(), self.shared.clone()));
        tokio::select! {
            served = peers => served?,
            served = door => served??,
            why = node.stopped() => return Err(format!("{} stopped: {why}", self.name).into()),
        }
        Ok(())
    }
}

async fn work_off(node: Node, name: String, shared: Arc<Shared>) {
    loop {
        let jobs = lock(&shared.jobs).remove(&name).unwrap_or_default();
        for job in jobs {
            tokio::spawn(job(node.clone()));
        }
        tokio::time::sleep(JOBS_EVERY).await;
    }
}

/// How a simulated node introduces itself.
pub fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        peer: format!("{name}:{PEER_PORT}"),
        ..Member::default()
    }
}

async fn found(node: Node, names: Vec<String>) {
    let founding = Founding {
        by: Principal {
            name: "cluster/admin/sim".to_owned(),
            organization: None,
            agents: Vec::new(),
        },
        members: names.iter().map(|name| member(name)).collect(),
        default_guard: Guard::default(),
        unfunded_organizations: false,
        fixtures: false,
    };
    loop {
        match node.found(founding.clone(), Duration::from_secs(10)).await {
            Ok(()) | Err(cluster::MemberError::Taken { .. }) => return,
            Err(_again) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Serves the peer port; a connection begins with its node's name, which stands for the certificate.
async fn serve_peers(node: &Node) -> io::Result<impl Future<Output = Result<(), tonic::transport::Error>>> {
    let listener = TcpListener::bind((IpAddr::from([0, 0, 0, 0]), PEER_PORT)).await?;
    let (out, incoming) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _from)) = listener.accept().await {
            let out = out.clone();
            tokio::spawn(async move {
                let mut name = vec![0; 2];
                if stream.read_exact(&mut name).await.is_ok() {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    // The server ended: so does the connection.
                    let _closed = out.send(Ok::<_, io::Error>(PeerStream { stream, name })).await;
                }
            });
        }
    });
    let service = node.peer_service();
    Ok(Server::builder()
        .add_service(service)
        .serve_with_incoming(ReceiverStream::new(incoming)))
}

struct PeerStream {
    stream: TcpStream,
    name: String,
}

impl Connected for PeerStream {
    type ConnectInfo = PeerIdentity;

    fn connect_info(&self) -> PeerIdentity {
        PeerIdentity(self.name.clone())
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The clients' port: a command in, a reply out, each behind its length.
async fn serve_door(node: Node) -> io::Result<()> {
    let listener = TcpListener::bind((IpAddr::from([0, 0, 0, 0]), DOOR_PORT)).await?;
    loop {
        let (mut stream, _from) = listener.accept().await?;
        let node = node.clone();
        tokio::spawn(async move {
            let Ok(bytes) = receive(&mut stream).await else {
                return;
            };
            let Ok(command) = minicbor::decode::<Command>(&bytes) else {
                return;
            };
            let urgency = match command {
                Command::Engage(_) | Command::Release(_) => Urgency::Urgent,
                _ => Urgency::Call,
            };
            if let Ok(reply) = node.propose(command, urgency, NODE_PATIENCE).await {
                // A client that has gone asks again.
                let _gone = send(&mut stream, &machine::row::bytes(&reply)).await;
            }
        });
    }
}

async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream
        .write_u32(u32::try_from(bytes.len()).map_err(io::Error::other)?)
        .await?;
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// A client's way to the nodes: every attempt is on record.
pub struct Asker {
    pub number: usize,
    names: Vec<String>,
    shared: Arc<Shared>,
    pub rng: StdRng,
}

impl Asker {
    /// Sends a command to a random node, once.
    pub async fn attempt(&mut self, command: &Command) -> Option<Reply> {
        let node = self.names[self.rng.random_range(0..self.names.len())].clone();
        let invoked = turmoil::sim_elapsed().unwrap_or_default();
        let asking = async {
            let mut stream = TcpStream::connect((node.as_str(), DOOR_PORT)).await?;
            send(&mut stream, &machine::row::bytes(command)).await?;
            receive(&mut stream).await
        };
        let reply = match tokio::time::timeout(CLIENT_PATIENCE, asking).await {
            Ok(Ok(bytes)) => minicbor::decode(&bytes).ok(),
            Ok(Err(_)) | Err(_) => None,
        };
        let returned = turmoil::sim_elapsed().unwrap_or_default();
        let attempt = Attempt {
            client: self.number,
            node,
            command: command.clone(),
            invoked,
            returned,
            reply: reply.clone(),
        };
        self.shared.history().push(attempt);
        reply
    }

    /// Sends a command until it is answered, or the time is up.
    pub async fn ask(&mut self, command: &Command, until: Duration) -> Option<Reply> {
        while turmoil::sim_elapsed().unwrap_or_default() < until {
            if let Some(reply) = self.attempt(command).await {
                return Some(reply);
            }
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(5..100))).await;
        }
        None
    }
}

struct SimConnector {
    name: String,
}

impl Connector for SimConnector {
    fn connect(&self, peer: &Member) -> Connecting {
        let (own, peer) = (self.name.clone(), peer.name.clone());
        Box::pin(async move {
            let mut stream = TcpStream::connect((peer.as_str(), PEER_PORT)).await?;
            stream.write_all(own.as_bytes()).await?;
            let io: Box<dyn Io> = Box::new(stream);
            Ok(io)
        })
    }
}

struct SimClock {
    name: String,
    shared: Arc<Shared>,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let ahead = lock(&self.shared.clocks).get(&self.name).copied().unwrap_or(0);
        let now = timestamp(turmoil::since_epoch().unwrap_or_default());
        Timestamp::from_nanos(now.nanos().saturating_add_signed(ahead))
    }
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

struct SimEntropy(Mutex<StdRng>);

impl Entropy for SimEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        lock(&self.0).fill_bytes(bytes);
    }
}
