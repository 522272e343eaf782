//! One node of the cluster: commands in, replies out, wherever the leader is.
//!
//! ```text
//!   propose(command) ─┬─ leader here ──► proposer: queues ──► batch, stamp ──► Raft ──► apply ──► reply
//!                     └─ elsewhere ───► one hop ──────────► its queues
//!   read() ──► the leader's index and time ──► this node has applied it ──► a view
//!   watch: clocks and states of the others, and whether this node still leads anyone ──► standing
//!   chores: due work · seals · snapshots · heartbeats · this node's key · changes of members left half-way
//!   found, member: founded · taken in again · learner → voter → removed · leader transfer
//!   held: arguments of calls that wait for people, beside the log
//!   probe: one question to every node, for drills
//!   peer ◄── the other nodes (connect: whatever bytes the connector brings)
//! ```
//!
//! Each file uses only those above it in this list. Clock, randomness and network are given to it, so that a whole
//! cluster runs in one thread, by a seed. Every openraft type stays inside this crate and `store`.

mod clock;
mod error;
mod heard;
mod log_time;
mod status;

mod connect;
mod raft;
mod standing;
mod whoami;

mod clocks;
mod network;

mod proposer;

mod node;

mod hello;
mod propose;
mod read;

mod member;
mod probe;

mod found;
mod held;
mod snapshots;
mod watch;

mod chores;
mod peer;

mod start;

pub use clock::{Clock, Entropy, SystemClock, SystemEntropy};
pub use connect::{Connecting, Connector, Io, PEER_MESSAGE_MAX};
pub use error::{MemberError, OutOfService, StartError, Unavailable};
pub use found::{Founding, Rejoined};
pub use member::Force;
pub use node::Node;
pub use peer::{PeerDoor, PeerIdentity};
pub use probe::{NodeProbe, PROBE_ORGANIZATION};
pub use proposer::Urgency;
pub use raft::Options;
pub use standing::Standing;
pub use start::Setup;
pub use status::{MemberStatus, NodeHaltEpoch, Role, Status};
