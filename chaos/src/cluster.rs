//! A cluster of real processes in a directory of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{Client, Credentials, Pool};
use serde_json::Value;

use crate::record::Line;

/// How long anything that must happen may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

/// The processes, and where their files are.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    layout: Value,
    nodes: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts and forms a cluster; `settings` are further lines of every node's configuration.
    pub fn form(nodes: usize, settings: &str) -> Self {
        let mut cluster = Self::lay_out(nodes, settings);
        for node in 0..nodes {
            cluster.start(node);
        }
        let first = cluster.config(0);
        let formed = haltgate()
            .args(["init", "--config"])
            .arg(first)
            .output()
            .expect("haltgate init runs");
        assert!(
            formed.status.success(),
            "init: {}",
            String::from_utf8_lossy(&formed.stderr)
        );
        cluster
    }

    /// Writes a cluster's files; starts nothing.
    pub fn lay_out(nodes: usize, settings: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Process ids come again, and a failed test leaves its folder.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!(
            "haltgate-chaos-{}-{number}-{}",
            std::process::id(),
            now.as_millis()
        );
        let dir = std::env::temp_dir().join(name);
        let laid_out = haltgate()
            .arg("local-cluster")
            .arg(&dir)
            .args([
                "--nodes",
                &nodes.to_string(),
                "--base-port",
                &free_base_port(nodes).to_string(),
                "--output",
                "json",
            ])
            .output()
            .expect("haltgate local-cluster runs");
        assert!(
            laid_out.status.success(),
            "local-cluster: {}",
            String::from_utf8_lossy(&laid_out.stderr)
        );
        let layout: Value = serde_json::from_slice(&laid_out.stdout).expect("local-cluster prints JSON");
        let cluster = Self {
            dir,
            layout,
            nodes: (0..nodes).map(|_| None).collect(),
        };
        for node in 0..nodes {
            let path = cluster.config(node);
            let text = std::fs::read_to_string(&path).expect("a configuration");
            std::fs::write(&path, format!("{text}\n{settings}")).expect("a configuration");
        }
        cluster
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a node and waits until it says that it is ready.
    pub fn start(&mut self, node: usize) {
        self.start_with(node, &[]);
    }

    /// Starts a node under another program, such as `strace -f`.
    pub fn start_with(&mut self, node: usize, program: &[&str]) {
        let log = self.dir.join(format!("node-{}.log", node + 1));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log file");
        let binary = binary();
        let mut command = match program {
            [] => Command::new(&binary),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&binary);
                command
            }
        };
        let mut child = command
            .args(["server", "--config"])
            .arg(self.config(node))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("a node starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output"))
            .read_line(&mut line)
            .expect("its first line");
        assert_eq!(line.trim(), "ready", "node {}: {}", node + 1, self.log_tail(node));
        self.nodes[node] = Some(child);
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            child.kill().expect("a node is killed");
            child.wait().expect("a node ends");
        }
    }

    /// SIGTERM; gives the exit status once it has drained.
    pub fn terminate(&mut self, node: usize) -> std::process::ExitStatus {
        let mut child = self.nodes[node].take().expect("a running node");
        signal(child.id(), "TERM");
        child.wait().expect("a node ends")
    }

    /// Removes a node's data: it comes back as a new one.
    pub fn wipe(&mut self, node: usize) {
        self.kill(node);
        std::fs::remove_dir_all(self.dir.join(format!("data-{}", node + 1))).expect("its data");
    }

    pub fn runs(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    /// Whether a node that was started has ended by itself.
    pub fn ended(&self, node: usize) -> bool {
        let Some(child) = &self.nodes[node] else {
            return true;
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.is_empty()
            || stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }

    /// How a node that has ended by itself did so.
    pub fn exit_status(&mut self, node: usize) -> Option<std::process::ExitStatus> {
        self.nodes[node].take()?.wait().ok()
    }

    /// The process id of a running node.
    pub fn pid(&self, node: usize) -> u32 {
        self.nodes[node].as_ref().expect("a running node").id()
    }

    /// Runs the binary as a client of the layout; gives what it printed and how it ended.
    pub fn cli(&self, who: &str, args: &[&str]) -> Output {
        self.cli_at(who, &self.endpoints().join(","), args)
    }

    /// The same, asking one node only.
    pub fn cli_of(&self, node: usize, who: &str, args: &[&str]) -> Output {
        self.cli_at(who, &self.endpoint(node), args)
    }

    fn cli_at(&self, who: &str, endpoints: &str, args: &[&str]) -> Output {
        let Credentials { ca, cert, key } = self.credentials(who);
        haltgate()
            .args(args)
            .env("HALTGATE_ENDPOINTS", endpoints)
            .env("HALTGATE_CA", ca)
            .env("HALTGATE_CERT", cert)
            .env("HALTGATE_KEY", key)
            .output()
            .expect("haltgate runs")
    }

    /// Runs the binary and expects it to succeed; gives its JSON.
    pub fn json(&self, who: &str, args: &[&str]) -> Value {
        self.json_at(who, &self.endpoints().join(","), args)
    }

    /// The same, asking one node only.
    pub fn json_of(&self, node: usize, who: &str, args: &[&str]) -> Value {
        self.json_at(who, &self.endpoint(node), args)
    }

    fn json_at(&self, who: &str, endpoints: &str, args: &[&str]) -> Value {
        let mut with_output = args.to_vec();
        with_output.extend(["--output", "json"]);
        let output = self.cli_at(who, endpoints, &with_output);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Sets a budget, as the admin.
    pub fn fund(&self, scope: &str, dollars: &str) {
        self.json("admin", &["budget", "set", scope, dollars]);
    }

    /// What a node says of itself; none while it does not answer.
    pub fn status(&self, node: usize, state_hash: bool) -> Option<Value> {
        let mut args = vec!["status", "--output", "json", "--timeout", "2s"];
        if state_hash {
            args.push("--state-hash");
        }
        let output = self.cli_of(node, "admin", &args);
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Waits for a node that leads.
    pub fn leader(&self) -> usize {
        let running: Vec<usize> = (0..self.len()).filter(|node| self.runs(*node)).collect();
        self.wait_for("a leader", || self.leads(&running))
    }

    /// Which of these nodes leads now; none where none does.
    pub fn leads(&self, nodes: &[usize]) -> Option<usize> {
        nodes.iter().copied().find(|node| {
            self.status(*node, false)
                .is_some_and(|status| status["role"] == "leader")
        })
    }

    /// Waits until every running node has applied the same, and gives their common status.
    pub fn wait_even(&self) -> Value {
        self.wait_for("equal nodes", || {
            let statuses: Vec<Value> = (0..self.len())
                .filter(|node| self.runs(*node))
                .map(|node| self.status(node, true))
                .collect::<Option<_>>()?;
            let first = statuses.first()?.clone();
            let same = |field: &str| statuses.iter().all(|status| status[field] == first[field]);
            let fields = [
                "applied_index",
                "head_sequence",
                "head_hash",
                "state_hash",
                "halt_epoch",
            ];
            fields.iter().all(|field| same(field)).then_some(first)
        })
    }

    /// Waits until the nodes are equal and have nothing left to do by themselves: every node's key is registered,
    /// and every entry is sealed.
    pub fn wait_quiet(&self) -> Value {
        self.wait_for("a quiet cluster", || {
            let status = self.wait_even();
            let keys = self
                .chain(0)
                .iter()
                .filter(|entry| entry["kind"] == "key_registered")
                .count();
            (keys == self.len() && status["sealed_to"] == status["head_sequence"]).then_some(status)
        })
    }

    /// Waits for something to be there.
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            let logs = || {
                (0..self.len())
                    .map(|node| self.log_tail(node))
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            assert!(
                Instant::now() < deadline,
                "{what}: not within {PATIENCE:?}\n{}",
                logs()
            );
            std::thread::sleep(STEP);
        }
    }

    /// One node's whole audit log, checked offline first.
    pub fn chain(&self, node: usize) -> Vec<Line> {
        let file = self.dir.join(format!("export-{}.jsonl", node + 1));
        let path = file.to_str().expect("a path").to_owned();
        let exported = self.cli_of(
            node,
            "cluster_auditor",
            &["audit", "export", "--to", &path, "--timeout", "30s"],
        );
        assert!(
            exported.status.success(),
            "export: {}",
            String::from_utf8_lossy(&exported.stderr)
        );
        let verified = haltgate()
            .args(["audit", "verify", &path, "--allow-unsealed"])
            .output()
            .expect("haltgate runs");
        assert!(
            verified.status.success(),
            "verify: {}",
            String::from_utf8_lossy(&verified.stderr)
        );
        crate::record::read(&file)
    }

    /// The chains of all running nodes once these are equal, as far as they were then: entries that a node writes by
    /// itself afterwards (seals wait for no caller) are not part of it.
    pub fn even_chains(&self) -> Vec<Vec<Line>> {
        let even = self.wait_even()["head_sequence"].as_u64().expect("a sequence");
        let upto = |line: &Line| line["sequence"].as_u64().is_some_and(|sequence| sequence <= even);
        (0..self.len())
            .filter(|node| self.runs(*node))
            .map(|node| self.chain(node).into_iter().filter(upto).collect())
            .collect()
    }

    pub fn client(&self, who: &str) -> Client {
        Client::open(&self.endpoints(), &self.credentials(who)).expect("a client")
    }

    /// A client that knows one node only.
    pub fn client_of(&self, node: usize, who: &str) -> Client {
        Client::open(&[self.endpoint(node)], &self.credentials(who)).expect("a client")
    }

    /// Connections for RPCs that the client crate has none for.
    pub fn pool_of(&self, node: usize, who: &str) -> Pool {
        Pool::open(&[self.endpoint(node)], &self.credentials(who)).expect("a pool")
    }

    pub fn credentials(&self, who: &str) -> Credentials {
        let client = &self.layout["clients"][who];
        let path = |value: &Value| PathBuf::from(value.as_str().expect("a path"));
        Credentials {
            ca: path(&self.layout["ca"]),
            cert: path(&client["cert"]),
            key: path(&client["key"]),
        }
    }

    pub fn endpoint(&self, node: usize) -> String {
        self.layout["nodes"][node]["grpc"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    pub fn peer(&self, node: usize) -> String {
        self.layout["nodes"][node]["peer"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    pub fn http(&self, node: usize) -> String {
        self.layout["nodes"][node]["http"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    /// The sum of a metric of a node; none while it does not answer.
    pub fn metric(&self, node: usize, name: &str) -> Option<f64> {
        let mut stream = std::net::TcpStream::connect(self.http(node)).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let values = text
            .lines()
            .filter(|line| line.starts_with(name) && !line.starts_with('#'));
        Some(
            values
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum(),
        )
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.len()).map(|node| self.endpoint(node)).collect()
    }

    pub fn config(&self, node: usize) -> PathBuf {
        PathBuf::from(self.layout["nodes"][node]["config"].as_str().expect("a path"))
    }

    /// The end of what a node logged.
    pub fn log_tail(&self, node: usize) -> String {
        let text =
            std::fs::read_to_string(self.dir.join(format!("node-{}.log", node + 1))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("--- node {} ---\n{tail}", node + 1)
    }
}

/// Ends what was started here, and nothing else; a failed test keeps its files.
impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..self.len() {
            self.kill(node);
        }
        if !std::thread::panicking() {
            let _gone_already = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Sends a signal to a process of ours.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(sent.success(), "kill -{name} {pid}");
}

/// The binary that was built with these tests.
pub fn haltgate() -> Command {
    Command::new(binary())
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    let path = test
        .ancestors()
        .nth(2)
        .expect("the target folder")
        .join("haltgate");
    assert!(path.exists(), "{} is not built: run `make build`", path.display());
    path
}

/// A port such that it, and those that the nodes' layout takes after it, are free.
fn free_base_port(nodes: usize) -> u16 {
    for _ in 0..1_000 {
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let base = probe.local_addr().expect("its port").port();
        drop(probe);
        let ports = (0..nodes).flat_map(|node| (0..3).map(move |port| usize::from(base) + node * 10 + port));
        let free = |port: usize| {
            u16::try_from(port).is_ok_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        };
        if ports.clone().all(free) {
            return base;
        }
    }
    panic!("no row of free ports")
}
