//! What the leader sees to by itself: due work, seals, snapshots; and what every node sees to: its signing
//! key, and the heartbeats it collects.

use std::sync::Arc;
use std::time::Duration;

use audit::Signer;
use machine::command::{RegisterKey, Seen};
use machine::{Command, Refusal, Reply};

use crate::node::Node;
use crate::proposer::Urgency;

/// How often the leader looks for due work: a tenth of the shortest span that it serves.
const DUE_EVERY: Duration = Duration::from_millis(250);
/// How often heartbeats that came in are written down, of the 30 s between an agent's.
const SEEN_EVERY: Duration = Duration::from_secs(15);
/// Sessions in one such command.
const SEEN_MAX: usize = 2_048;
/// The pause between two seals, so that one signature of the chain covers many entries.
const SEAL_EVERY: Duration = Duration::from_millis(50);
/// Entries that one seal covers: some 12 ms of signing.
const SEAL_MAX: usize = 512;
/// How long a chore waits for its command.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn due(node: Node) {
    while node.runs() {
        tokio::time::sleep(DUE_EVERY).await;
        while node.leads() && is_due(&node) {
            // What fails now is due still at the next look.
            match node.propose_here(Command::Due, Urgency::Urgent).await {
                Ok(Reply::Due(true)) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
}

fn is_due(node: &Node) -> bool {
    node.log_time()
        .is_some_and(|now| node.reader().is_due(now).unwrap_or(false))
}

/// Signs what is unsigned, in bulk, off the path of any call.
pub(crate) async fn seal(node: Node, signer: Arc<Signer>) {
    let mut progress = node.reader().progress();
    while node.runs() {
        if !node.leads() || !seal_once(&node, &signer).await {
            // Nothing to seal until something is applied, or until this node leads.
            tokio::select! {
                changed = progress.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(DUE_EVERY) => {}
            }
        }
        tokio::time::sleep(SEAL_EVERY).await;
    }
}

/// Seals the next range; says whether there was one.
async fn seal_once(node: &Node, signer: &Signer) -> bool {
    let Some(seal) = next_seal(node, signer) else {
        return false;
    };
    // A refusal says that another seal came first: the next look finds where it ended.
    node.propose_here(Command::Seal(seal), Urgency::Urgent)
        .await
        .is_ok()
}

fn next_seal(node: &Node, signer: &Signer) -> Option<audit::Seal> {
    let reader = node.reader();
    let chain = reader.chain().ok()??;
    if chain.sealed_to >= chain.head.sequence
        || reader
            .keys()
            .ok()?
            .signing(signer.key_id(), chain.head.sequence)
            .is_err()
    {
        return None;
    }
    let entries = reader.entries(chain.sealed_to.saturating_add(1), SEAL_MAX).ok()?;
    audit::seal(signer, &entries).ok()
}

/// Makes this node's public key known, once.
pub(crate) async fn register_key(node: Node, signer: Arc<Signer>) {
    while node.runs() {
        if node
            .reader()
            .keys()
            .is_ok_and(|keys| keys.signing(signer.key_id(), u64::MAX).is_ok())
        {
            return;
        }
        if node.reader().chain().is_ok_and(|chain| chain.is_some()) {
            let command = RegisterKey {
                node: node.member().name.clone(),
                public: signer.public(),
            };
            match node
                .propose(Command::RegisterKey(command), Urgency::Urgent, PATIENCE)
                .await
            {
                Ok(Reply::Done(_)) => return,
                Ok(Reply::Refused(refusal)) if refusal != Refusal::NotInitialized => {
                    tracing::error!(%refusal, "this node's signing key is refused: it seals nothing");
                    return;
                }
                Ok(_) | Err(_) => {}
            }
        }
        tokio::time::sleep(DUE_EVERY).await;
    }
}

pub(crate) async fn write_seen(node: Node) {
    while node.runs() {
        tokio::time::sleep(SEEN_EVERY).await;
        loop {
            let sessions = node.heard().take(SEEN_MAX);
            if sessions.is_empty() {
                break;
            }
            // Lost ones are heard again at their next heartbeat, well before they go stale.
            let command = Command::Seen(Seen { sessions });
            if node.propose(command, Urgency::Call, PATIENCE).await.is_err() {
                break;
            }
        }
    }
}

/// Finishes changes of members that were left half-way, by whoever leads.
pub(crate) async fn finish_changes(node: Node) {
    while node.runs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if node.leads()
            && node.status().changing
            && let Err(error) = node.finish_change().await
        {
            tracing::warn!(%error, "a change of members could not be finished yet");
        }
    }
}
