//! One node of the cluster: commands in, replies out, wherever the leader is.
//!
//! ```text
//!   propose(command) ─┬─ leader here ──► queues ──► batch, stamp ──► Raft ──► apply ──► reply
//!                     └─ elsewhere ───► forward (one hop) ─────────► its queues
//!   read() ──► read index of the leader ──► this node has applied it ──► a view
//!   chores: due work · seals · snapshots · heartbeats · this node's key
//!   clocks: what the voters' show ──► log_time: how far the leader may move it
//!   member: found · rejoin · learner → voter → removed · leader transfer
//!   probe: one question to every node, for drills
//!   peer_service ◄── the other nodes (connect: whatever bytes the connector brings)
//! ```
//!
//! Clock, randomness and network are given to it, so that a whole cluster runs in one thread, by a seed.
//! Every openraft type stays inside this crate and `store`.

mod chores;
mod clock;
mod clocks;
mod connect;
mod error;
mod forward;
mod log_time;
mod member;
mod network;
mod node;
mod peer;
mod probe;
mod propose;
mod read;
mod status;

pub use clock::{Clock, Entropy, SystemClock, SystemEntropy};
pub use connect::{Connecting, Connector, Io, PEER_MESSAGE_MAX};
pub use error::{MemberError, StartError, Unavailable};
pub use member::{Founding, Rejoined};
pub use node::{Node, Options, Setup};
pub use peer::{PeerDoor, PeerIdentity};
pub use probe::{NodeProbe, PROBE_ORGANIZATION};
pub use propose::Urgency;
pub use status::{MemberStatus, NodeHaltEpoch, Role, Status};
