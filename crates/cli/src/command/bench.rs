//! `haltgate bench`: the workload authorize-v1 (docs/bench/authorize-v1.md) on three nodes of its own, closed loop, every
//! verdict checked.

mod pools;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use decision::Digest;
use serde_json::json;
use tokio::sync::Barrier;
use wire::proto::shackle::v1 as sp;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

use crate::args::{Bench, Output};
use crate::command::running::Running;
use crate::failed::Failed;
use crate::print;

use pools::{HEALTHY, OTHERS, PREPARED, Pool, Sessions};

const NODES: usize = 3;
/// Sessions are registered as fast as the nodes can.
const SETTINGS: &str = "\n[limits]\nregisters_per_second_per_address = 0\n";
/// Room for the call numbers of one repeat: the jump limit leaves four on one server.
const CALLS_OF_A_REPEAT: u64 = 250_000;
const TOOLS: [&str; 8] = [
    "web_search",
    "read_file",
    "write_file",
    "http_get",
    "sql_query",
    "send_email",
    "run_python",
    "list_dir",
];

pub async fn run(args: Bench, output: Output) -> Result<(), Failed> {
    if args.connections == 0 || args.seconds == 0 || args.repeat == 0 || args.repeat > 4 {
        return Err(Failed::usage(
            "--connections and --seconds must be above 0, --repeat 1 to 4",
        ));
    }
    let mut cluster = Running::prepare("bench", NODES, SETTINGS)?;
    let measured = measure(&mut cluster, &args).await;
    if measured.is_err() {
        cluster.print_logs();
    }
    report(&args, output, measured?)
}

/// Sets up, which is not timed, and runs.
async fn measure(cluster: &mut Running, args: &Bench) -> Result<Measured, Failed> {
    for place in cluster.places() {
        cluster.spawn(place)?;
    }
    cluster.form().await?;
    let sessions = pools::open(cluster).await?;
    let shared = Arc::new(SharedCounters::default());
    let barrier = Arc::new(Barrier::new(
        usize::try_from(args.connections).unwrap_or(usize::MAX),
    ));
    let (warmup, window) = (
        Duration::from_secs(args.warmup_seconds),
        Duration::from_secs(args.seconds),
    );
    let endpoints = cluster.layout.endpoints();
    let mut connections = Vec::new();
    for (number, endpoint) in (0..u64::from(args.connections)).zip(endpoints.iter().cycle()) {
        let credentials = cluster.layout.credentials("sidecar")?;
        let nodes = client::Pool::open(std::slice::from_ref(endpoint), &credentials)?;
        let connection = Connection {
            client: ShackleDaemonClient::new(nodes.channel()),
            requests: Requests::new(
                number,
                u64::from(args.connections),
                args.repeat,
                Arc::clone(&sessions),
            ),
            shared: shared.clone(),
            measured: Measured::default(),
        };
        connections.push(tokio::spawn(connection.run(barrier.clone(), warmup, window)));
    }
    let mut all = Measured::default();
    for connection in connections {
        all.add(
            connection
                .await
                .map_err(|error| Failed::refused(error.to_string()))?,
        );
    }
    all.latencies_us.sort_unstable();
    Ok(all)
}

fn report(args: &Bench, output: Output, all: Measured) -> Result<(), Failed> {
    let ops = all.allowed.saturating_add(all.denied);
    let result = json!({
        "workload": "authorize-v1-org",
        "durability": "D2",
        "connections": args.connections,
        "seconds": args.seconds,
        "ops_s": ops / args.seconds,
        "p50_ms": all.percentile_ms(50),
        "p90_ms": all.percentile_ms(90),
        "p99_ms": all.percentile_ms(99),
        "max_ms": all.percentile_ms(100),
        "allowed": all.allowed,
        "denied": all.denied,
        "mismatches": all.mismatches,
        "errors": all.errors,
        "first_error": all.first_error,
    });
    print::object(output, &result);
    if all.mismatches == 0 && all.errors == 0 && ops > 0 {
        Ok(())
    } else {
        Err(Failed::refused(
            "the run does not count: mismatches, errors, or no operation at all",
        ))
    }
}

/// Call numbers of the pools that all connections share.
struct SharedCounters {
    next: [[AtomicU64; 100]; 3],
}

impl Default for SharedCounters {
    fn default() -> Self {
        Self {
            next: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

/// One connection's requests, in the order that the workload fixes.
struct Requests {
    state: u64,
    connection: u64,
    connections: u64,
    run_id: u64,
    sequence: u64,
    base: u64,
    /// Calls made in the healthy sessions that this connection owns.
    own_calls: std::collections::BTreeMap<u64, u64>,
    sessions: Arc<Sessions>,
}

impl Requests {
    fn new(connection: u64, connections: u64, repeat: u64, sessions: Arc<Sessions>) -> Self {
        let state = repeat.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ connection.wrapping_add(1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            state,
            connection,
            connections,
            // Differs from the last run's on the same server, and is never 0.
            run_id: (seconds.wrapping_mul(5).wrapping_add(repeat) & 0x7fff).max(1),
            sequence: 0,
            base: CALLS_OF_A_REPEAT.saturating_mul(repeat.saturating_sub(1)),
            own_calls: std::collections::BTreeMap::new(),
            sessions,
        }
    }

    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn next(&mut self, shared: &SharedCounters) -> (Pool, sp::PreExecRequest) {
        let (x, y) = (self.draw(), self.draw());
        self.sequence = self.sequence.wrapping_add(1);
        let mut nonce = self.run_id << 48 | self.connection << 36 | self.sequence;
        let pool = match x % 100 {
            0..=94 => Pool::Healthy,
            95..=96 => Pool::Exhausted,
            97..=98 => Pool::Tripped,
            _ => Pool::Replay,
        };
        let other = (x >> 16) % OTHERS;
        let stride = (HEALTHY / self.connections).max(1);
        let (index, place) = match pool {
            Pool::Healthy => (
                (((x >> 16) % stride) * self.connections + self.connection) % HEALTHY,
                None,
            ),
            Pool::Exhausted => (other, Some(0)),
            Pool::Tripped => (other, Some(1)),
            Pool::Replay => (other, Some(2)),
        };
        if pool == Pool::Replay {
            nonce = 1;
        }
        let number = match place {
            None => {
                let calls = self.own_calls.entry(index).or_insert(0);
                *calls = calls.saturating_add(1);
                *calls
            }
            Some(place) => shared
                .next
                .get::<usize>(place)
                .and_then(|pool| pool.get(usize::try_from(index).unwrap_or(0)))
                .map_or(1, |counter| {
                    counter.fetch_add(1, Ordering::Relaxed).saturating_add(1)
                }),
        };
        let tool = TOOLS
            .get(usize::try_from((y >> 32) % 8).unwrap_or(0))
            .copied()
            .unwrap_or("web_search");
        let request = sp::PreExecRequest {
            session_id: self.sessions.id(pool, index),
            call_number: self.base.saturating_add(PREPARED).saturating_add(number),
            tool_name: tool.to_owned(),
            tool_params_hash: Digest::of(params(y, nonce).as_bytes()).as_bytes().to_vec(),
            estimated_cost_usd: 0.001,
            nonce,
            ..sp::PreExecRequest::default()
        };
        (pool, request)
    }
}

fn params(y: u64, unique: u64) -> String {
    let object = (unique & 0xffff_ffff) ^ ((unique >> 36) & 0xffff_ffff);
    let mut text = String::with_capacity(112);
    // Writing into a string cannot fail.
    let _written = write!(
        text,
        "{{\"limit\":50,\"path\":\"/data/tenant-{:04}/object-{object:08x}.json\",\"query\":\"{unique:016x}\",\"source\":\"authorize-v1\"}}",
        y % 10_000
    );
    text
}

struct Connection {
    client: ShackleDaemonClient<tonic::transport::Channel>,
    requests: Requests,
    shared: Arc<SharedCounters>,
    measured: Measured,
}

impl Connection {
    async fn run(mut self, barrier: Arc<Barrier>, warmup: Duration, window: Duration) -> Measured {
        // The connection is open before the clock starts.
        let first = sp::GetSessionStateRequest {
            session_id: self.requests.sessions.id(Pool::Healthy, 0),
            allow_stale: true,
        };
        if let Err(status) = self.client.get_session_state(first).await {
            self.measured.error(&status);
        }
        barrier.wait().await;
        let start = Instant::now() + warmup;
        let end = start + window;
        loop {
            let (pool, request) = self.requests.next(&self.shared);
            let asked = Instant::now();
            if asked >= end {
                return self.measured;
            }
            let answer = self.client.pre_exec(request).await;
            let answered = Instant::now();
            let counts = asked >= start;
            match answer {
                Ok(answer) => {
                    let allowed = answer.get_ref().verdict() == sp::Verdict::Allow;
                    // A warm-up that goes wrong spoils the run as well.
                    if allowed != (pool == Pool::Healthy) {
                        self.measured.mismatch(pool, answer.get_ref());
                    }
                    if counts {
                        self.measured
                            .count(allowed, answered.saturating_duration_since(asked));
                    }
                }
                Err(status) => {
                    self.measured.error(&status);
                    // An error that comes back at once would spin.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Measured {
    allowed: u64,
    denied: u64,
    mismatches: u64,
    errors: u64,
    first_error: Option<String>,
    latencies_us: Vec<u64>,
}

impl Measured {
    fn count(&mut self, allowed: bool, latency: Duration) {
        if allowed {
            self.allowed = self.allowed.saturating_add(1);
        } else {
            self.denied = self.denied.saturating_add(1);
        }
        self.latencies_us
            .push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    fn mismatch(&mut self, pool: Pool, answer: &sp::PreExecResponse) {
        self.mismatches = self.mismatches.saturating_add(1);
        self.first_error
            .get_or_insert_with(|| format!("{pool:?} {}: {}", answer.session_id, answer.reason));
    }

    fn error(&mut self, status: &tonic::Status) {
        self.errors = self.errors.saturating_add(1);
        self.first_error
            .get_or_insert_with(|| format!("{}: {}", status.code(), status.message()));
    }

    fn add(&mut self, other: Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.mismatches = self.mismatches.saturating_add(other.mismatches);
        self.errors = self.errors.saturating_add(other.errors);
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies_us.extend(other.latencies_us);
    }

    /// A percentile of sorted latencies, in milliseconds with three decimals.
    fn percentile_ms(&self, percent: usize) -> serde_json::Value {
        let last = self.latencies_us.len().saturating_sub(1);
        let place = last.saturating_mul(percent) / 100;
        match self.latencies_us.get(place) {
            Some(us) => {
                let text = format!("{}.{:03}", us / 1_000, us % 1_000);
                text.parse::<serde_json::Number>()
                    .map_or(serde_json::Value::Null, serde_json::Value::Number)
            }
            None => serde_json::Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEALTHY, OTHERS, Pool, Requests, Sessions, SharedCounters, params};
    use std::sync::Arc;

    #[test]
    fn parameters_are_111_bytes_and_canonical() {
        for (y, unique) in [(0, 1), (9_999, u64::MAX), (12_345, 1 << 48 | 3 << 36 | 7)] {
            let text = params(y, unique);
            assert_eq!(text.len(), 111, "{text}");
            let facts = decision::params::inspect(text.as_bytes());
            assert_eq!(
                facts.digest,
                Some(decision::Digest::of(text.as_bytes())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_pools_have_their_shares_and_sessions_one_caller() {
        let shared = SharedCounters::default();
        let ids = |letter: char, count| (0..count).map(|number| format!("{letter}-{number}")).collect();
        let sessions = Sessions([
            ids('h', HEALTHY),
            ids('x', OTHERS),
            ids('t', OTHERS),
            ids('r', OTHERS),
        ]);
        let mut requests = Requests::new(3, 64, 1, Arc::new(sessions));
        let mut healthy = 0;
        for _ in 0..10_000 {
            let (pool, request) = requests.next(&shared);
            if pool == Pool::Healthy {
                healthy += 1;
                let index: u64 = request.session_id["h-".len()..].parse().unwrap();
                assert_eq!(index % 64, 3);
            }
            assert_ne!(request.nonce, 0);
        }
        assert!((9_400..9_600).contains(&healthy), "{healthy}");
    }
}
