//! The arguments of calls that wait for people: on every node that could be told, in no log. Whoever shows them compares
//! them with the digest that the log has.

use std::collections::BTreeSet;
use std::time::Duration;

use decision::{ApprovalId, OrganizationId};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use machine::Event;
use machine::row::Read as _;
use store::{HeldPart, Member};
use tokio::sync::broadcast::error::RecvError;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::node::Node;

/// How long a HITL answer waits until one other node has the arguments, too.
const SECOND_COPY: Duration = Duration::from_millis(100);
/// How long another node may take to keep them, or to give them.
const ASK: Duration = Duration::from_secs(2);
/// How often what is no open approval's is looked for: arguments may come before the entry that opens it.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// Keeps arguments here and at the other members. Returns once one of them has them, or soon after; they are told
    /// all the same. Says whether there was room for them here.
    pub async fn hold_arguments(
        &self,
        organization: OrganizationId,
        approval: ApprovalId,
        part: HeldPart,
        params: Vec<u8>,
    ) -> bool {
        let kept = self.held().put(&organization, &approval, part, &params);
        if let Err(error) = &kept {
            tracing::warn!(%error, %approval, "approvers at this node may not see a held call's arguments");
        }
        let request = peer::HoldArgumentsRequest {
            sender: None,
            organization_id: organization.as_str().to_owned(),
            approval_id: approval.as_str().to_owned(),
            successor: part == HeldPart::Successor,
            params: params.into(),
        };
        let mut telling: FuturesUnordered<_> = self
            .other_members()
            .into_iter()
            .map(|(raft_id, member)| {
                let (node, request) = (self.clone(), request.clone());
                tokio::spawn(async move { node.tell_to_hold(raft_id, &member, request).await })
            })
            .collect();
        let one_has_them = async {
            while let Some(told) = telling.next().await {
                if told.unwrap_or(false) {
                    return;
                }
            }
        };
        // Who was not told in time is told behind this answer.
        let _late = tokio::time::timeout(SECOND_COPY, one_has_them).await;
        kept.is_ok()
    }

    /// Whether this node has a held call's arguments itself.
    pub fn holds_arguments(&self, approval: &ApprovalId) -> bool {
        self.held().get(approval, HeldPart::Call).is_some()
    }

    async fn tell_to_hold(&self, raft_id: u64, member: &Member, request: peer::HoldArgumentsRequest) -> bool {
        let request = peer::HoldArgumentsRequest {
            sender: Some(self.whoami().sender(raft_id)),
            ..request
        };
        let mut client = self.peers().client(member, Lane::Calls);
        let told = tokio::time::timeout(ASK, client.hold_arguments(request)).await;
        told.is_ok_and(|told| told.is_ok_and(|told| told.into_inner().held))
    }

    /// The arguments of a held call: this node's, or the first that another has. None where nobody has them.
    pub async fn held_arguments(
        &self,
        organization: &OrganizationId,
        approval: &ApprovalId,
        part: HeldPart,
    ) -> Option<Vec<u8>> {
        if let Some(params) = self.held().get(approval, part) {
            return Some(params);
        }
        let mut asking: FuturesUnordered<_> = self
            .other_members()
            .into_iter()
            .map(async |(raft_id, member)| self.ask_for_held(raft_id, &member, approval, part).await)
            .collect();
        while let Some(answer) = asking.next().await {
            if let Some(params) = answer {
                // The next one who asks here need not wait for another node.
                let _no_room = self.held().put(organization, approval, part, &params);
                return Some(params);
            }
        }
        None
    }

    async fn ask_for_held(
        &self,
        raft_id: u64,
        member: &Member,
        approval: &ApprovalId,
        part: HeldPart,
    ) -> Option<Vec<u8>> {
        let request = peer::GetArgumentsRequest {
            sender: Some(self.whoami().sender(raft_id)),
            approval_id: approval.as_str().to_owned(),
            successor: part == HeldPart::Successor,
        };
        let mut client = self.peers().client(member, Lane::Calls);
        let answer = tokio::time::timeout(ASK, client.get_arguments(request))
            .await
            .ok()?;
        let answer = answer.ok()?.into_inner();
        answer.held.then(|| answer.params.to_vec())
    }

    fn other_members(&self) -> Vec<(u64, Member)> {
        let status = self.status();
        let others = status.members.into_iter();
        others
            .filter(|known| known.raft_id != status.raft_id)
            .map(|known| (known.raft_id, known.member))
            .collect()
    }

    /// Whether an approval's arguments are still of use; none where this node does not know the approval.
    fn is_of_use(&self, approval: &ApprovalId, part: HeldPart) -> Option<bool> {
        let found = self.reader().at(|view| view.approval(approval)).ok()?.ok()?;
        found.map(|found| match part {
            HeldPart::Call => found.status.is_open(),
            // It is kept before the decision that names it.
            HeldPart::Successor => {
                found.status.is_open() || found.status == machine::row::ApprovalStatus::Modified
            }
        })
    }
}

/// Lets go of arguments as soon as they are of no more use.
pub(crate) async fn forget(node: Node) {
    let mut events = node.reader().events();
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    let mut unknown = BTreeSet::new();
    while node.runs() {
        tokio::select! {
            _ = sweep.tick() => sweep_all(&node, &mut unknown),
            happened = events.recv() => match happened {
                Ok(happened) => for event in happened.iter() {
                    if let Event::Approval { id, .. } = event {
                        forget_one(&node, id);
                    }
                },
                Err(RecvError::Lagged(_)) => sweep_all(&node, &mut unknown),
                Err(RecvError::Closed) => return,
            },
        }
    }
}

fn forget_one(node: &Node, approval: &ApprovalId) {
    for part in [HeldPart::Call, HeldPart::Successor] {
        if node.is_of_use(approval, part) == Some(false) {
            node.held().remove(approval, part);
        }
    }
}

/// What belongs to no approval at two looks in a row does so for good: its entry was never made, or is long over.
fn sweep_all(node: &Node, unknown: &mut BTreeSet<(ApprovalId, HeldPart)>) {
    let mut now_unknown = BTreeSet::new();
    node.held()
        .retain(|approval, part| match node.is_of_use(approval, part) {
            Some(of_use) => of_use,
            None => {
                let key = (approval.clone(), part);
                let again = unknown.contains(&key);
                now_unknown.insert(key);
                !again
            }
        });
    *unknown = now_unknown;
}
