//! Starts a node: everything is put together here, and nothing knows this file.

use std::fmt;
use std::sync::{Arc, Mutex};

use audit::Signer;
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use store::{Member, Store};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1::peer_server::PeerServer;

use crate::chores;
use crate::clock::{Clock, Entropy};
use crate::clocks::Clocks;
use crate::connect::{Connector, PEER_MESSAGE_MAX, Peers};
use crate::error::StartError;
use crate::heard::Heard;
use crate::held;
use crate::network::Network;
use crate::node::{Leading, Node, Parts};
use crate::peer::PeerDoor;
use crate::proposer::Proposer;
use crate::raft::{self, LeaderHeard, Options};
use crate::snapshots;
use crate::standing::Standing;
use crate::status::Status;
use crate::watch as minding;
use crate::whoami::{Vouched, Whoami};

/// Everything a node is made of.
pub struct Setup {
    /// This node's name and addresses.
    pub member: Member,
    /// The members that the configuration lists: besides those of the membership it knows, this node takes Raft's
    /// messages from them.
    pub listed: Vec<Member>,
    pub store: Store,
    pub options: Options,
    pub connector: Arc<dyn Connector>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Signs the audit chain when this node leads.
    pub signer: Signer,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("member", &self.member)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Starts Raft over the store. The node answers to peers once its `peer_service` is served.
    ///
    /// # Errors
    /// The store cannot be read, or the timings do not fit each other.
    pub async fn start(setup: Setup) -> Result<Self, StartError> {
        let Setup {
            member,
            listed,
            store,
            options,
            connector,
            clock,
            entropy,
            signer,
        } = setup;
        let Store {
            log,
            state,
            reader,
            snapshots: kept_snapshots,
            held: held_arguments,
            owner,
        } = store;
        let raft_id = owner.identity().raft_id;
        let known = reader.at(|view| view.membership().membership().get_node(&raft_id).cloned())?;
        if let Some(known) = known.filter(|known| known.name != member.name) {
            return Err(StartError::Options(format!(
                "this data directory is node {}'s, the configuration is node {}'s",
                known.name, member.name
            )));
        }
        let config = options.raft_config()?;
        let peers = Peers::new(connector);
        let network = Network {
            whoami: Whoami::new(&owner, &member),
            peers: peers.clone(),
        };
        // Elections draw from the injected source, so that a simulation repeats them.
        let starting = openraft::Raft::new(raft_id, Arc::new(config), network, log, state);
        let raft = DeterministicRng::<TokioRuntime>::scope(entropy.number(), starting)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;

        let leader_heard = LeaderHeard::default();
        let (status_out, status) = watch::channel(Status {
            raft_id,
            ..Status::default()
        });
        let clocks = Arc::new(Clocks::new(clock));
        let (queues, proposer) = Proposer::new(
            raft.clone(),
            clocks.clone(),
            entropy.clone(),
            reader.progress(),
            &options,
        );
        let watching = raft::watch_status(
            raft.clone(),
            owner.clone(),
            options.clone(),
            leader_heard.clone(),
            status_out,
        );
        let node = Self(Arc::new(Parts {
            raft,
            raft_id,
            member,
            owner,
            snapshots: kept_snapshots,
            held: held_arguments,
            reader,
            options,
            peers,
            names_listed: listed.iter().map(|member| member.name.clone()).collect(),
            listed,
            vouched: Vouched::default(),
            clocks,
            entropy,
            queues,
            heard: Heard::default(),
            leader_heard,
            standing: Standing::default(),
            status,
            leading: watch::Sender::new(Leading::No),
            ended: watch::Sender::new(None),
            leaderless: Mutex::new(Some(Instant::now())),
            membership_turn: Arc::default(),
            tasks: Mutex::default(),
        }));
        let signer = Arc::new(signer);
        node.keep_up("the status watcher", watching);
        node.keep_up("the proposer", proposer.run());
        node.keep_up("the watch over leadership", minding::leading(node.clone()));
        node.keep_up("the watch over the peers", minding::peers(node.clone()));
        node.keep_up("due work", chores::due(node.clone()));
        node.keep_up("sealing", chores::seal(node.clone(), signer.clone()));
        node.keep_up(
            "the registration of the key",
            chores::register_key(node.clone(), signer),
        );
        node.keep_up("heartbeats", chores::write_seen(node.clone()));
        node.keep_up("snapshots", snapshots::keep(node.clone()));
        node.keep_up("held arguments", held::forget(node.clone()));
        node.keep_up("changes of members", chores::finish_changes(node.clone()));
        Ok(node)
    }

    /// Runs a task that the node cannot do without: where it panics, the node ends. One that returns has nothing left
    /// to do.
    fn keep_up(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let running = tokio::spawn(task);
        let abort = running.abort_handle();
        let node = self.clone();
        let watching = tokio::spawn(async move {
            // The task ends with its watcher.
            let _ends = AbortOnDrop(abort);
            if let Err(error) = running.await
                && error.is_panic()
            {
                node.0.ended.send_replace(Some(format!("{name} panicked")));
            }
        });
        self.0
            .tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(watching);
    }

    /// The service that peers call; the TLS layer puts a `PeerIdentity` into every request.
    pub fn peer_service(&self) -> PeerServer<PeerDoor> {
        PeerServer::new(PeerDoor::new(self.clone()))
            .max_decoding_message_size(PEER_MESSAGE_MAX)
            .max_encoding_message_size(PEER_MESSAGE_MAX)
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
