//! The command line: every command, flag and default.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Decides, before it runs, whether an AI agent's tool call may run.
#[derive(Debug, Parser)]
#[command(
    name = "haltgate",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done or allowed, 1 refused, denied or failed, 2 usage, 3 needs a human, 4 unavailable."
)]
pub struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows it all on three local nodes: a runaway agent stopped, the leader killed, the record verified.
    Demo,
    /// Runs one node with its data in a directory, certificates made, ready to use.
    Dev(Dev),
    /// Runs one node of a cluster in the foreground.
    Server(Server),
    /// Writes configurations and certificates of a cluster on this machine; starts nothing.
    LocalCluster(LocalCluster),
    /// Forms the cluster from the members in a node's configuration.
    Init(OfNode),
    /// Adds a new node to a running cluster, by a cluster operator.
    Join(Join),
    /// Lists the members.
    Members(Remote),
    /// Shows what a node knows of itself and its cluster.
    Status(Status),
    /// Hands a node's leadership to another.
    Drain(Drain),
    /// Goes on with a newer version of the rules, after every node runs a release that has it. There is no way back.
    ActivateVersion(ActivateVersion),
    /// Makes and shows certificates, for development and small installations.
    #[command(subcommand)]
    Pki(Pki),
    /// Asks once whether a call may run. An allowed call is not settled: its hold is charged when it expires.
    Call(Call),
    /// Sessions of agents.
    #[command(subcommand)]
    Session(Session),
    /// Budgets of organizations, agents and sessions.
    #[command(subcommand)]
    Budget(Budget),
    /// Guards: the limits sessions run under.
    #[command(subcommand)]
    Guard(Guard),
    /// What a call would get, and why; nothing is written.
    #[command(subcommand)]
    Policy(Policy),
    /// The kill switch.
    #[command(subcommand)]
    Kill(Kill),
    /// Stops one node of this machine, with no leader, network or certificate; kept until it is lifted.
    Panic(Panic),
    /// Questions to people about held calls.
    #[command(subcommand)]
    Approvals(Approvals),
    /// The audit log.
    #[command(subcommand)]
    Audit(Audit),
    /// The published vectors of SP/1.0.
    #[command(subcommand)]
    Conformance(Conformance),
    /// Measures three nodes that it starts itself (docs/bench/authorize-v1.md).
    Bench(Bench),
    /// Prints the completions of a shell.
    Completions { shell: clap_complete::Shell },
}

// Which cluster, and as whom. No doc comment: clap would show it as the help of every command.
#[derive(Debug, Clone, Args)]
pub struct Remote {
    /// Addresses of nodes, separated by commas.
    #[arg(
        long,
        env = "HALTGATE_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:9000"
    )]
    pub endpoints: Vec<String>,
    /// The authorities that nodes' certificates come from (PEM).
    #[arg(long, env = "HALTGATE_CA")]
    pub ca: PathBuf,
    /// The certificate that says who asks (PEM).
    #[arg(long, env = "HALTGATE_CERT")]
    pub cert: PathBuf,
    /// Its key (PEM).
    #[arg(long, env = "HALTGATE_KEY")]
    pub key: PathBuf,
    /// How long the command may take, such as `10s` or `250ms`.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Dev {
    /// Where data and certificates live; made when missing.
    #[arg(default_value = "haltgate-dev")]
    pub dir: PathBuf,
    #[arg(long, default_value_t = 9000)]
    pub base_port: u16,
}

#[derive(Debug, Args)]
pub struct Server {
    /// The node's configuration (docs/CONFIG.md).
    #[arg(long, env = "HALTGATE_CONFIG")]
    pub config: PathBuf,
    /// Checks the configuration and ends.
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct LocalCluster {
    pub dir: PathBuf,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: u16,
    /// The first node's gRPC port; its peer and HTTP ports follow, the next node's are ten higher.
    #[arg(long, default_value_t = 9000)]
    pub base_port: u16,
}

#[derive(Debug, Args)]
pub struct OfNode {
    #[arg(long, env = "HALTGATE_CONFIG")]
    pub config: PathBuf,
    /// How long all members may take to answer.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Join {
    #[command(flatten)]
    pub remote: Remote,
    /// The configuration of the node that joins; it must be running.
    #[arg(long, env = "HALTGATE_CONFIG")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub remote: Remote,
    /// Also hashes the node's whole state.
    #[arg(long)]
    pub state_hash: bool,
}

#[derive(Debug, Args)]
pub struct Drain {
    #[command(flatten)]
    pub remote: Remote,
    /// The Raft id that shall lead; any other voter when left out.
    #[arg(long)]
    pub to: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ActivateVersion {
    #[command(flatten)]
    pub remote: Remote,
    /// The version; the newest that the asked node has when left out.
    pub version: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum Pki {
    /// Makes a certificate authority: `ca.crt` and `ca.key`.
    Init { dir: PathBuf },
    /// Issues a certificate, such as `org/acme/agent/bot-1` or `node/1`.
    Issue(PkiIssue),
    /// Shows whose certificate it is, and until when.
    Inspect { cert: PathBuf },
}

#[derive(Debug, Args)]
pub struct PkiIssue {
    /// The directory that `pki init` made.
    #[arg(long)]
    pub dir: PathBuf,
    /// The identity, a path below the trust domain.
    pub identity: String,
    /// Further identities: the agents a sidecar may speak for, a prefix with `*` at its end.
    #[arg(long)]
    pub agent: Vec<String>,
    /// Names and addresses under which a node is reached.
    #[arg(long)]
    pub host: Vec<String>,
    /// The files' name without ending.
    #[arg(long)]
    pub name: String,
    #[arg(long, default_value_t = 365)]
    pub days: u32,
}

#[derive(Debug, Args)]
pub struct Call {
    #[command(flatten)]
    pub remote: Remote,
    /// The session; a new one is opened when left out.
    #[arg(long)]
    pub session: Option<String>,
    /// The organization that the certificate belongs to.
    #[arg(long)]
    pub org: Option<String>,
    /// The agent that the certificate belongs to.
    #[arg(long)]
    pub agent: Option<String>,
    /// The tool.
    pub tool: String,
    /// The named guard that a new session runs under.
    #[arg(long)]
    pub guard: Option<String>,
    /// Tags of the call, which rules may look at.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub tag: Vec<(String, String)>,
    /// Its parameters, a JSON object.
    #[arg(default_value = "{}")]
    pub params: String,
    /// The expected cost in dollars, such as `0.01`.
    #[arg(long)]
    pub cost: Option<String>,
    /// The call's number in its session.
    #[arg(long, default_value_t = 1)]
    pub number: u64,
    /// The nonce; made from the request id when left out.
    #[arg(long)]
    pub nonce: Option<u64>,
    /// The request id; the same command line with the same id is the same call, asked again. Drawn when left out.
    #[arg(long)]
    pub request_id: Option<String>,
    /// The approval that this call follows.
    #[arg(long, value_name = "ID")]
    pub approval: Option<String>,
    /// Waits so long for people where they are asked, such as `5m`, and goes on as they decide.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum Session {
    /// Opens a session, as its agent.
    Register {
        #[command(flatten)]
        remote: Remote,
        /// The organization that the certificate belongs to.
        #[arg(long)]
        org: String,
        /// The agent that the certificate belongs to.
        #[arg(long)]
        agent: String,
        /// The named guard to run under.
        #[arg(long)]
        guard: Option<String>,
    },
    /// Lists sessions of `org/ORG` or `org/ORG/agent/AGENT`.
    List {
        #[command(flatten)]
        remote: Remote,
        /// `org/ORG` or `org/ORG/agent/AGENT`; all in reach when left out.
        #[arg(default_value = "")]
        scope: String,
    },
    /// Shows one: status, circuit, budget, guards, counters.
    Show(OnSession),
    /// Closes a tripped circuit.
    Reset(ActOnSession),
    /// Stops deciding its calls until it is resumed.
    Pause(ActOnSession),
    /// Lifts a pause; a call that waited for a person is cancelled.
    Resume(ActOnSession),
    /// Ends it for good; what it holds is settled by its guard's policy.
    Terminate(ActOnSession),
}

#[derive(Debug, Args)]
pub struct OnSession {
    #[command(flatten)]
    pub remote: Remote,
    /// The session, as `session list` shows it.
    pub session: String,
}

#[derive(Debug, Args)]
pub struct ActOnSession {
    #[command(flatten)]
    pub remote: Remote,
    /// The session, as `session list` shows it.
    pub session: String,
    /// Why; it stands in the audit log.
    #[arg(long)]
    pub justification: String,
}

#[derive(Debug, Subcommand)]
pub enum Budget {
    /// Shows one account, or all in reach.
    Show {
        #[command(flatten)]
        remote: Remote,
        /// `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`; all when left out.
        scope: Option<String>,
    },
    /// Sets an account's limit: dollars, `unlimited` or `suspended`.
    Set {
        #[command(flatten)]
        remote: Remote,
        /// `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`.
        scope: String,
        /// Dollars such as `5.00`, `unlimited` or `suspended`.
        limit: String,
        #[arg(long, default_value = "")]
        justification: String,
    },
    /// Adds dollars to an account.
    Grant {
        #[command(flatten)]
        remote: Remote,
        /// `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`.
        scope: String,
        /// Dollars, such as `2.50`.
        amount: String,
        #[arg(long, default_value = "")]
        justification: String,
    },
    /// Adds dollars to what was spent, or takes them off it (`-0.25`), by an entry of its own.
    Correct {
        #[command(flatten)]
        remote: Remote,
        /// `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`.
        scope: String,
        /// Dollars, such as `0.25` or `-0.25`.
        #[arg(allow_negative_numbers = true)]
        amount: String,
        /// Why; it stands in the audit log.
        #[arg(long)]
        justification: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Says what a call would get: verdict, every reason, the guards above it.
    Check(CheckPolicy),
}

#[derive(Debug, Args)]
pub struct CheckPolicy {
    #[command(flatten)]
    pub remote: Remote,
    /// Of this session.
    #[arg(long, conflicts_with_all = ["agent", "guard"])]
    pub session: Option<String>,
    /// Of a session that `org/ORG/agent/AGENT` would open now.
    #[arg(long)]
    pub agent: Option<String>,
    /// The named guard that it would run under.
    #[arg(long)]
    pub guard: Option<String>,
    #[arg(long)]
    pub tool: String,
    /// Its parameters, a JSON object; left out: only their digest is known.
    #[arg(long)]
    pub params: Option<String>,
    /// The expected cost in dollars; left out: unpriced.
    #[arg(long)]
    pub cost: Option<String>,
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub tag: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub enum Guard {
    /// Writes the guard of `default`, `org/ORG`, `org/ORG/agent/AGENT` or `org/ORG/guard/GUARD` from a TOML file (keys
    /// as in `[guard]`).
    Put {
        #[command(flatten)]
        remote: Remote,
        /// `default`, `org/ORG`, `org/ORG/agent/AGENT` or `org/ORG/guard/GUARD`.
        scope: String,
        /// The TOML file.
        file: PathBuf,
        #[arg(long, default_value = "")]
        justification: String,
    },
    /// Prints the guard in force as such a file.
    Show {
        #[command(flatten)]
        remote: Remote,
        /// `default`, `org/ORG`, `org/ORG/agent/AGENT` or `org/ORG/guard/GUARD`.
        #[arg(default_value = "default")]
        scope: String,
    },
    /// Lists the guards in reach, with their main limits.
    List {
        #[command(flatten)]
        remote: Remote,
    },
}

/// How hard a scope is stopped.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum KillMode {
    /// Nothing is allowed.
    Halt,
    /// Whatever would be allowed is asked for.
    Pause,
    /// No new sessions.
    Drain,
}

/// Questions to people about held calls.
#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// Lists what is open.
    List {
        #[command(flatten)]
        remote: Remote,
        /// Those of the last hour that are over, too.
        #[arg(long)]
        all: bool,
    },
    /// Shows one, with the parameters of the call.
    Show {
        #[command(flatten)]
        remote: Remote,
        approval: String,
    },
    /// Lets the call run, once.
    Approve {
        #[command(flatten)]
        decide: DecideApproval,
    },
    /// Refuses the call.
    Reject {
        #[command(flatten)]
        decide: DecideApproval,
    },
    /// Lets another call run in its place, once: same tool, other parameters.
    Modify {
        #[command(flatten)]
        decide: DecideApproval,
        /// The parameters as JSON text.
        #[arg(long)]
        params: String,
    },
    /// Puts the question off; it stays open.
    Defer {
        #[command(flatten)]
        decide: DecideApproval,
    },
    /// Hands the question up; it stays open.
    Escalate {
        #[command(flatten)]
        decide: DecideApproval,
    },
    /// Prints what is open, then every change.
    Watch {
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Args)]
pub struct Panic {
    /// The configuration of the node.
    #[arg(long, env = "HALTGATE_CONFIG")]
    pub config: PathBuf,
    /// Lets the node go on.
    #[arg(long)]
    pub lift: bool,
    /// Only says how it stands.
    #[arg(long, conflicts_with = "lift")]
    pub show: bool,
}

#[derive(Debug, Args)]
pub struct DecideApproval {
    #[command(flatten)]
    pub remote: Remote,
    pub approval: String,
    /// Recorded with the decision.
    #[arg(long, default_value = "")]
    pub note: String,
    /// The digest that `show` printed: decide only about what was seen then. Without it, about what stands now.
    #[arg(long)]
    pub info_digest: Option<String>,
    /// Approve although no node has the call's arguments, by their digest alone.
    #[arg(long)]
    pub unseen: bool,
}

#[derive(Debug, Subcommand)]
pub enum Kill {
    /// Stops everything at and below a scope: `global`, `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD`,
    /// `session/SESSION`.
    Engage {
        #[command(flatten)]
        remote: Remote,
        /// `global`, `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`.
        scope: String,
        /// Why; agents and the audit log are told.
        #[arg(long)]
        reason: String,
        /// An incident's number, for the record.
        #[arg(long, default_value = "")]
        ticket: String,
        /// How hard; a stronger mode that is in force stays.
        #[arg(long, value_enum, default_value = "halt")]
        mode: KillMode,
        /// How long a drain lasts, such as `10m`; without it until it is released.
        #[arg(long, value_parser = duration)]
        ttl: Option<Duration>,
        /// Its release shall need two people.
        #[arg(long)]
        two_person: bool,
    },
    /// Runs the real path on a probe session, and shows how long each node took to deny.
    Drill {
        #[command(flatten)]
        remote: Remote,
    },
    /// Lifts it, by an admin. Ends with 3 where another person has to release it, too.
    Release {
        #[command(flatten)]
        remote: Remote,
        /// `global`, `org/ORG`, `org/ORG/agent/AGENT`, `org/ORG/guard/GUARD` or `session/SESSION`.
        scope: String,
        /// Why; it stands in the audit log.
        #[arg(long)]
        justification: String,
        /// An incident's number, for the record.
        #[arg(long, default_value = "")]
        ticket: String,
    },
    /// Lists what is stopped, how, by whom, and how far each node has come.
    List {
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Prints entries as they are made.
    Tail {
        #[command(flatten)]
        remote: Remote,
        /// The first sequence; the newest ten when left out.
        #[arg(long)]
        from: Option<u64>,
        /// Ends at the newest entry instead of waiting for more.
        #[arg(long)]
        no_follow: bool,
    },
    /// Checks an export: every hash, link and signature. Ends with 1 and the sequence that broke.
    Verify {
        file: PathBuf,
        /// A checkpoint kept elsewhere: shows a cut or replaced tail.
        #[arg(long)]
        checkpoint: Option<PathBuf>,
        /// Accepts entries at the end that are not signed yet.
        #[arg(long)]
        allow_unsealed: bool,
    },
    /// Writes all entries, signatures and public keys as JSON lines; waits until all are signed.
    Export {
        #[command(flatten)]
        remote: Remote,
        #[arg(long)]
        to: PathBuf,
    },
    /// Prints a signed checkpoint of the chain: keep it elsewhere.
    Checkpoint {
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub enum Conformance {
    /// Runs a file of vectors: the published format or JSON lines, plain or `.gz`.
    Run { file: PathBuf },
}

#[derive(Debug, Args)]
pub struct Bench {
    #[arg(long, default_value_t = 64)]
    pub connections: u32,
    #[arg(long, default_value_t = 8)]
    pub seconds: u64,
    /// Calls before the clock starts.
    #[arg(long, default_value_t = 2)]
    pub warmup_seconds: u64,
    /// 1, 2, 3 … : the repeat, which changes the requests and their nonces.
    #[arg(long, default_value_t = 1)]
    pub repeat: u64,
}

/// Reads `KEY=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("{text:?} is not like env=production")),
    }
}

/// Reads `250ms`, `10s`, `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not like 250ms, 10s or 5m"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(format!("{text:?} is not like 250ms, 10s or 5m")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, duration};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("3", Some(3_000)),
            ("2m", Some(120_000)),
            ("x", None),
            ("5h", None),
            ("", None),
        ] {
            assert_eq!(duration(text).ok().map(|d| d.as_millis()), millis, "{text}");
        }
    }
}
