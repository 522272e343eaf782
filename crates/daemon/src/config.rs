//! Every setting of a node, its default, and why it is that. One TOML file < `HALTGATE_…` variables < flags.
//!
//! A key that is not known is an error: a limit with a typo in its name limits nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::Guard;
use serde::Deserialize;
use store::Member;

use crate::environment;
use crate::guard_section::GuardSection;

/// A node's settings. Paths are relative to the folder of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub node: NodeSection,
    #[serde(default)]
    pub listen: ListenSection,
    pub tls: TlsSection,
    #[serde(default)]
    pub cluster: ClusterSection,
    /// The default guard that a cluster begins with; afterwards it is replicated, and this is not read. Its keys
    /// are those of `GuardConfig` (shackle.proto), their defaults those of `machine::Guard`:
    ///
    /// config key: `guard.budget_usd`
    /// config key: `guard.budget_scope`
    /// config key: `guard.max_repeat_calls`
    /// config key: `guard.error_amplification`
    /// config key: `guard.timeout_seconds`
    /// config key: `guard.window_duration_s`
    /// config key: `guard.window_max_calls`
    /// config key: `guard.max_total_calls`
    /// config key: `guard.probabilistic_deny`
    /// config key: `guard.deny_jitter_ratio`
    /// config key: `guard.hitl_mode`
    /// config key: `guard.hitl_budget_threshold`
    /// config key: `guard.hold_ttl_seconds`
    /// config key: `guard.unsettled_policy`
    /// config key: `guard.trip_policy`
    /// config key: `guard.default_cost_usd`
    /// config key: `guard.settle_at_least_hold`
    /// config key: `guard.require_params`
    /// config key: `guard.approval_ttl_seconds`
    /// config key: `guard.pause_scope`
    /// config key: `guard.mode`
    /// config key: `guard.allowed_tools`
    /// config key: `guard.rate_max_calls`
    /// config key: `guard.rate_window_seconds`
    /// config key: `guard.breakers`
    /// config key: `guard.max_tokens`
    /// config key: `guard.max_cost_usd`
    /// config key: `guard.tool_prices`
    /// config key: `guard.model_prices`
    /// config key: `guard.other_models`
    /// config key: `guard.tool_overrides`
    /// config key: `guard.on_deny_rules`
    /// config key: `guard.latch_scope`
    /// config key: `guard.max_sessions_per_agent`
    /// config key: `guard.max_sessions_per_organization`
    /// config key: `guard.ticket_ttl_seconds`
    /// config key: `guard.warn_ratio`
    /// config key: `guard.max_overdraft_usd`
    /// config key: `guard.rules`
    #[serde(default)]
    pub guard: GuardSection,
    #[serde(default)]
    pub limits: LimitsSection,
    #[serde(default)]
    pub audit: AuditSection,
    #[serde(default)]
    pub timing: TimingSection,
    #[serde(default)]
    pub raft: RaftSection,
    #[serde(default)]
    pub log: LogSection,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    /// Names a place in the cluster: the id of the node certificate.
    ///
    /// config key: `node.id`
    pub id: u32,
    /// What people call the node, in its log lines; decides nothing.
    ///
    /// config key: `node.name`
    #[serde(default)]
    pub name: String,
    /// Where the log, the state and the chain live; of this node alone.
    ///
    /// config key: `node.data_dir`
    pub data_dir: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenSection {
    /// Agents, operators and auditors (mutual TLS). 9000: SP/1.0's port.
    ///
    /// config key: `listen.grpc`
    pub grpc: SocketAddr,
    /// The other nodes (mutual TLS, node certificates only).
    ///
    /// config key: `listen.peer`
    pub peer: SocketAddr,
    /// Probes and metrics: no identity, no content.
    ///
    /// config key: `listen.http`
    pub http: SocketAddr,
    /// What others are told instead of `listen.grpc`. Default: this node's entry in `cluster.members`.
    ///
    /// config key: `listen.advertise_grpc`
    pub advertise_grpc: Option<String>,
    /// The same for `listen.peer`.
    ///
    /// config key: `listen.advertise_peer`
    pub advertise_peer: Option<String>,
    /// The same for `listen.http`.
    ///
    /// config key: `listen.advertise_http`
    pub advertise_http: Option<String>,
}

impl Default for ListenSection {
    fn default() -> Self {
        let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
        Self {
            grpc: any(9000),
            peer: any(9001),
            http: any(9091),
            advertise_grpc: None,
            advertise_peer: None,
            advertise_http: None,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSection {
    /// Authorities (PEM) that clients' and nodes' certificates come from.
    ///
    /// config key: `tls.ca`
    pub ca: PathBuf,
    /// This node's certificate chain (PEM): serves both ports, and is shown to other nodes.
    ///
    /// config key: `tls.cert`
    pub cert: PathBuf,
    /// Its key (PEM).
    ///
    /// config key: `tls.key`
    pub key: PathBuf,
    /// The `spiffe://` domain that identities are of.
    ///
    /// config key: `tls.trust_domain`
    #[serde(default = "trust_domain")]
    pub trust_domain: String,
}

fn trust_domain() -> String {
    "haltgate".to_owned()
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// Who forms the cluster, this node included; and whom a wiped node asks to be taken in again.
    ///
    /// config key: `cluster.members`
    pub members: Vec<MemberEntry>,
    /// Forms the cluster without `haltgate init`, once: the listed node with the lowest id does it.
    ///
    /// config key: `cluster.bootstrap`
    pub bootstrap: bool,
    /// Whether an organization without an account may spend without limit; read when the cluster is formed.
    /// Off: forgetting a budget shows at the first call instead of on the bill.
    ///
    /// config key: `cluster.unfunded_organizations`
    pub unfunded_organizations: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberEntry {
    pub id: u32,
    /// `host:port` for the other nodes.
    pub peer: String,
    /// `host:port` for clients.
    pub grpc: String,
    /// `host:port` of probes and metrics.
    #[serde(default)]
    pub http: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Largest message, bytes. 1 MiB: SP/1.0.
    ///
    /// config key: `limits.message_bytes`
    pub message_bytes: usize,
    /// Largest PreExec, bytes. 64 KiB: parameters of a tool call; larger ones go by their digest.
    ///
    /// config key: `limits.pre_exec_bytes`
    pub pre_exec_bytes: usize,
    /// PreExec a second for one session at this node; 0 is no limit. 1,000: SP/1.0.
    ///
    /// config key: `limits.calls_per_second_per_session`
    pub calls_per_second_per_session: u32,
    /// Register a second for one peer address at this node; 0 is no limit. 10: SP/1.0.
    ///
    /// config key: `limits.registers_per_second_per_address`
    pub registers_per_second_per_address: u32,
    /// Agents' calls that this node has under way. 2,048: twice what the leader's queue holds, so that the
    /// queue is what says no first. Operators' calls are not counted.
    ///
    /// config key: `limits.in_flight`
    pub in_flight: usize,
    /// Questions of one PreExecStream under way; more wait in the stream. 256: a quarter of a batch.
    ///
    /// config key: `limits.stream_in_flight`
    pub stream_in_flight: usize,
    /// Connections of one port, handshakes included. 4,096: a file descriptor and some 50 KiB each.
    ///
    /// config key: `limits.connections`
    pub connections: usize,
    /// Deadline of a call whose client names none, milliseconds. 2,000: longer than an election takes.
    ///
    /// config key: `limits.deadline_ms`
    pub deadline_ms: u64,
    /// Longest deadline that a client may name, milliseconds.
    ///
    /// config key: `limits.deadline_max_ms`
    pub deadline_max_ms: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024,
            pre_exec_bytes: 64 * 1024,
            calls_per_second_per_session: 1_000,
            registers_per_second_per_address: 10,
            in_flight: 2_048,
            stream_in_flight: 256,
            connections: 4_096,
            deadline_ms: 2_000,
            deadline_max_ms: 60_000,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSection {
    /// File of this node's secret signing key: 64 hexadecimal digits, readable by its owner only. Default:
    /// `audit.key` in the data directory, made at the first start.
    ///
    /// config key: `audit.signing_key`
    pub signing_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingSection {
    /// How often a leader is heard from, milliseconds. 150: six in the shortest silence before an election.
    ///
    /// config key: `timing.heartbeat_ms`
    pub heartbeat_ms: u64,
    /// Shortest silence before an election, milliseconds. 1,000: a slow fsync must not unseat a leader.
    ///
    /// config key: `timing.election_min_ms`
    pub election_min_ms: u64,
    /// Longest such silence, milliseconds. 1,200: drawn between the two, so that candidates differ. Half of it is how
    /// long nobody may vote against a leader that was heard from, so it is below twice `election_min_ms`.
    ///
    /// config key: `timing.election_max_ms`
    pub election_max_ms: u64,
}

impl Default for TimingSection {
    fn default() -> Self {
        Self {
            heartbeat_ms: 150,
            election_min_ms: 1_000,
            election_max_ms: 1_200,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftSection {
    /// Applied log entries after which a snapshot is built. 100,000: some seconds at full rate, minutes else.
    ///
    /// config key: `raft.snapshot_every`
    pub snapshot_every: u64,
    /// Applied log entries kept behind a snapshot. 100,000: a follower that is less far behind needs no
    /// snapshot, and what is purged is far from what is applied.
    ///
    /// config key: `raft.log_kept`
    pub log_kept: u64,
}

impl Default for RaftSection {
    fn default() -> Self {
        let cluster::Options {
            snapshot_every,
            log_kept,
            ..
        } = cluster::Options::default();
        Self {
            snapshot_every,
            log_kept,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// What the process logs: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `cluster=debug`.
    /// openraft tells of every step at `info`: more than all the rest.
    ///
    /// config key: `log.level`
    pub level: String,
    /// `text` or `json`, on standard error.
    ///
    /// config key: `log.format`
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: "info,openraft=warn".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// Why the settings cannot be used; the message names the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", .path.display())]
    Malformed { path: PathBuf, message: String },
    #[error(transparent)]
    Variable(#[from] environment::InvalidVariable),
    #[error("{key}: {message}")]
    Wrong { key: &'static str, message: String },
}

impl Config {
    /// Reads the file, lays `HALTGATE_…` variables over it, and checks the whole.
    ///
    /// # Errors
    /// Anything that is missing, unknown, of the wrong type, or does not fit together.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, path, folder, std::env::vars())
    }

    fn parse(
        text: &str,
        path: &Path,
        folder: &Path,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let malformed = |error: toml::de::Error| ConfigError::Malformed {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        };
        let mut table: toml::Table = text.parse().map_err(malformed)?;
        // With variables laid over it, an error can no longer show its line: look at the file by itself first.
        let overlaid = environment::overlay(&mut table, variables)?;
        let mut config: Self = if overlaid {
            table.try_into()
        } else {
            toml::from_str(text)
        }
        .map_err(malformed)?;
        config.place(folder);
        config.check()?;
        Ok(config)
    }

    /// Makes the paths relative to the file's folder.
    fn place(&mut self, folder: &Path) {
        let TlsSection { ca, cert, key, .. } = &mut self.tls;
        for path in [&mut self.node.data_dir, ca, cert, key]
            .into_iter()
            .chain(self.audit.signing_key.as_mut())
        {
            *path = folder.join(&*path);
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: &str| {
            Err(ConfigError::Wrong {
                key,
                message: message.to_owned(),
            })
        };
        if self.node.id == 0 {
            return wrong("node.id", "must be 1 or more");
        }
        if self.tls.trust_domain.is_empty() || self.tls.trust_domain.contains('/') {
            return wrong("tls.trust_domain", "must be a name without a slash");
        }
        let ids: BTreeMap<u32, &MemberEntry> = self
            .cluster
            .members
            .iter()
            .map(|entry| (entry.id, entry))
            .collect();
        if ids.len() != self.cluster.members.len() || ids.contains_key(&0) {
            return wrong("cluster.members", "ids must be different and 1 or more");
        }
        if !ids.is_empty() && !ids.contains_key(&self.node.id) {
            return wrong("cluster.members", "must list this node too");
        }
        if self.cluster.bootstrap && ids.is_empty() {
            return wrong(
                "cluster.bootstrap",
                "needs cluster.members: who is to form the cluster?",
            );
        }
        let TimingSection {
            heartbeat_ms,
            election_min_ms,
            election_max_ms,
        } = self.timing;
        if heartbeat_ms == 0 || heartbeat_ms.saturating_mul(2) > election_min_ms {
            return wrong(
                "timing.heartbeat_ms",
                "must be above 0 and at most half of timing.election_min_ms",
            );
        }
        if election_min_ms >= election_max_ms {
            return wrong("timing.election_max_ms", "must be above timing.election_min_ms");
        }
        if election_min_ms.saturating_sub(election_max_ms / 2) <= heartbeat_ms {
            return wrong(
                "timing.election_max_ms",
                "half of it and timing.heartbeat_ms must be below timing.election_min_ms",
            );
        }
        if self.raft.snapshot_every == 0 || self.raft.log_kept < 100 {
            return wrong("raft", "snapshot_every must be above 0, log_kept at least 100");
        }
        let limits = &self.limits;
        if [limits.in_flight, limits.stream_in_flight, limits.connections].contains(&0) {
            return wrong(
                "limits",
                "in_flight, stream_in_flight and connections must be 1 or more",
            );
        }
        if !(1_024..=4 * 1024 * 1024).contains(&limits.message_bytes) {
            return wrong("limits.message_bytes", "must be 1 KiB to 4 MiB");
        }
        if !(1_024..=limits.message_bytes).contains(&limits.pre_exec_bytes) {
            return wrong("limits.pre_exec_bytes", "must be 1 KiB to limits.message_bytes");
        }
        if limits.deadline_ms == 0 || limits.deadline_ms > limits.deadline_max_ms {
            return wrong(
                "limits.deadline_ms",
                "must be above 0 and at most limits.deadline_max_ms",
            );
        }
        self.default_guard()?;
        Ok(())
    }

    /// The guard that a cluster begins with.
    pub fn default_guard(&self) -> Result<Guard, ConfigError> {
        self.guard.to_guard().map_err(|invalid| ConfigError::Wrong {
            key: "guard",
            message: invalid.to_string(),
        })
    }

    /// This node as others are told of it.
    pub fn member(&self) -> Member {
        let entry = self.cluster.members.iter().find(|entry| entry.id == self.node.id);
        let told = |advertised: &Option<String>, listed: Option<&String>, listening: SocketAddr| {
            let listed = listed.filter(|address| !address.is_empty());
            advertised
                .as_ref()
                .or(listed)
                .cloned()
                .unwrap_or_else(|| listening.to_string())
        };
        let listen = &self.listen;
        Member {
            name: self.node.id.to_string(),
            peer: told(
                &listen.advertise_peer,
                entry.map(|entry| &entry.peer),
                listen.peer,
            ),
            client: told(
                &listen.advertise_grpc,
                entry.map(|entry| &entry.grpc),
                listen.grpc,
            ),
            http: told(
                &listen.advertise_http,
                entry.map(|entry| &entry.http),
                listen.http,
            ),
        }
    }

    /// The members that form the cluster; this node alone where none are listed.
    pub fn members(&self) -> Vec<Member> {
        let listed = self
            .cluster
            .members
            .iter()
            .filter(|entry| entry.id != self.node.id)
            .map(MemberEntry::member);
        std::iter::once(self.member()).chain(listed).collect()
    }

    /// Whether this is the node that forms the cluster by itself: one has to, and only one.
    pub fn founds(&self) -> bool {
        self.cluster.bootstrap
            && self.cluster.members.iter().map(|entry| entry.id).min() == Some(self.node.id)
    }

    pub fn signing_key(&self) -> PathBuf {
        self.audit
            .signing_key
            .clone()
            .unwrap_or_else(|| self.node.data_dir.join("audit.key"))
    }

    pub fn raft_options(&self) -> cluster::Options {
        cluster::Options {
            heartbeat: Duration::from_millis(self.timing.heartbeat_ms),
            election_min: Duration::from_millis(self.timing.election_min_ms),
            election_max: Duration::from_millis(self.timing.election_max_ms),
            snapshot_every: self.raft.snapshot_every,
            log_kept: self.raft.log_kept,
            ..cluster::Options::default()
        }
    }
}

impl MemberEntry {
    fn member(&self) -> Member {
        Member {
            name: self.id.to_string(),
            peer: self.peer.clone(),
            client: self.grpc.clone(),
            http: self.http.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
