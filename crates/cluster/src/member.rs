//! Membership: one change at a time, and none left half-way.

use std::collections::BTreeSet;
use std::time::Duration;

use machine::command::{ActivateVersion, Members, Principal};
use machine::{Command, Reply};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use store::{Member, StoreError};
use tokio::time::Instant;

use crate::error::{MemberError, Unavailable};
use crate::hello::{AGAIN, HELLO};
use crate::node::Node;
use crate::proposer::Urgency;
use crate::status::NodeHaltEpoch;

/// How long a new leader may take to be elected, the state's first entry to be applied, and a change of membership
/// that is under way to be committed.
pub(crate) const FOUNDING: Duration = Duration::from_secs(30);
/// How long a new node may take to catch up, a snapshot included; it is asked to come again after that.
const CATCH_UP: Duration = Duration::from_secs(300);

/// Whether a member is removed even where the others cannot go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    Yes,
    No,
}

impl Node {
    /// Adds a node that replicates but does not vote, and waits until it has caught up.
    ///
    /// # Errors
    /// This node does not lead, or the change did not commit.
    pub async fn add_learner(&self, by: &Principal, raft_id: u64, member: Member) -> Result<(), MemberError> {
        let _turn = self.membership_turn().lock_owned().await;
        self.learn(by, raft_id, member).await
    }

    /// As `add_learner`, with the turn taken.
    pub(crate) async fn learn(
        &self,
        by: &Principal,
        raft_id: u64,
        member: Member,
    ) -> Result<(), MemberError> {
        let name = member.name.clone();
        // The node takes the cluster's id before it takes the log, and is the one that was meant.
        let hello = self.hello_until(&member, true, Instant::now() + FOUNDING).await?;
        if hello.raft_id != raft_id {
            return Err(MemberError::Refused(format!(
                "{member} has the Raft id {}, not {raft_id}",
                hello.raft_id
            )));
        }
        self.once_committed(|| self.raft().add_learner(raft_id, member.clone(), false))
            .await?;
        self.caught_up(raft_id).await?;
        self.record(by, format!("add learner {name} as {raft_id}")).await
    }

    /// Waits until a node has what this leader's log holds now: a voter that lacks it counts for nothing.
    async fn caught_up(&self, raft_id: u64) -> Result<(), MemberError> {
        let mut metrics = self.raft().metrics();
        let wanted = metrics.borrow_watched().last_log_index;
        let waiting = async {
            loop {
                {
                    let metrics = metrics.borrow_watched();
                    let matched = metrics.replication.as_ref().and_then(|all| all.get(&raft_id));
                    if matched.is_some_and(|matched| matched.as_ref().map(|log_id| log_id.index) >= wanted) {
                        return Ok(());
                    }
                    if metrics.state != openraft::ServerState::Leader {
                        return Err(Unavailable::NoLeader);
                    }
                }
                let ended = |_closed| Unavailable::Stopped("Raft ended".to_owned());
                metrics.changed().await.map_err(ended)?;
            }
        };
        let waited = tokio::time::timeout(CATCH_UP, waiting).await;
        waited
            .unwrap_or(Err(Unavailable::Deadline))
            .map_err(MemberError::Unavailable)
    }

    /// Makes a learner vote; does nothing where it votes already.
    ///
    /// # Errors
    /// As `add_learner`.
    pub async fn promote(&self, by: &Principal, raft_id: u64) -> Result<(), MemberError> {
        let _turn = self.membership_turn().lock_owned().await;
        if self.voters().contains(&raft_id) && !self.status().changing {
            return Ok(());
        }
        let change = ChangeMembers::AddVoterIds(BTreeSet::from([raft_id]));
        self.change(by, change, &format!("promote {raft_id}")).await
    }

    /// Removes a member, voter or not. Refused where those that would be left could not decide anything now, unless
    /// it is forced.
    ///
    /// # Errors
    /// As `add_learner`; the remaining voters do not reach a quorum.
    pub async fn remove(&self, by: &Principal, raft_id: u64, force: Force) -> Result<(), MemberError> {
        let _turn = self.membership_turn().lock_owned().await;
        let one = BTreeSet::from([raft_id]);
        let change = if self.voters().contains(&raft_id) {
            if force == Force::No {
                self.would_remain(raft_id).await?;
            }
            ChangeMembers::RemoveVoters(one)
        } else {
            ChangeMembers::RemoveNodes(one)
        };
        self.change(by, change, &format!("remove {raft_id}")).await
    }

    /// Makes sure that the voters but this one reach a quorum of theirs now.
    async fn would_remain(&self, raft_id: u64) -> Result<(), MemberError> {
        let mut left = self.status().members;
        left.retain(|member| member.voter && member.raft_id != raft_id);
        let asking = left.iter().map(async |known| {
            if known.raft_id == self.raft_id() {
                return true;
            }
            let hello = tokio::time::timeout(HELLO, self.hello(&known.member, false)).await;
            hello.is_ok_and(|hello| hello.is_ok_and(|hello| hello.raft_id == known.raft_id))
        });
        let answers = futures::future::join_all(asking).await;
        let alive = answers.iter().filter(|alive| **alive).count();
        if alive > left.len() / 2 {
            return Ok(());
        }
        let silent: Vec<&str> = left
            .iter()
            .zip(&answers)
            .filter(|(_, alive)| !**alive)
            .map(|(known, _)| known.member.name.as_str())
            .collect();
        Err(MemberError::Refused(format!(
            "{alive} of the {} voters that would be left answer, which is no quorum (no answer from {}): start them              first, or force it",
            left.len(),
            silent.join(", ")
        )))
    }

    /// Finishes a change of the voters that whoever began it did not: both sets of a change under way are needed for
    /// every decision, so a cluster must not stay there.
    pub(crate) async fn finish_change(&self) -> Result<(), MemberError> {
        let Ok(_turn) = self.membership_turn().try_lock_owned() else {
            return Ok(());
        };
        let wanted = {
            let metrics = self.raft().metrics();
            let metrics = metrics.borrow_watched();
            let sets = metrics.membership_config.membership().get_joint_config();
            match sets.as_slice() {
                [_, .., wanted] => wanted.clone(),
                [] | [_] => return Ok(()),
            }
        };
        let by = Principal {
            name: format!("node/{}", self.member().name),
            organization: None,
            agents: Vec::new(),
        };
        let words = format!("finish change to {wanted:?}");
        tracing::warn!(?wanted, "finishing a change of members that was left half-way");
        self.change(&by, ChangeMembers::ReplaceAllVoters(wanted), &words)
            .await
    }

    /// Hands leadership to another voter, the one named or any, and waits until it leads.
    ///
    /// # Errors
    /// This node does not lead, or nobody took over in time.
    pub async fn transfer_leader(&self, to: Option<u64>, within: Duration) -> Result<u64, MemberError> {
        let status = self.status();
        if !status.leads() {
            return Err(Unavailable::NoLeader.into());
        }
        let to = match to {
            Some(to) => to,
            None => self.successor().ok_or_else(|| {
                MemberError::Refused("there is no other voter that answers and is near".to_owned())
            })?,
        };
        if status.member(to).is_none() {
            return Err(MemberError::Unknown(to.to_string()));
        }
        self.raft()
            .trigger()
            .transfer_leader(to)
            .await
            .map_err(|fatal| Unavailable::Stopped(fatal.to_string()))?;
        let mut changed = self.changed();
        let moved = changed.wait_for(|status| {
            status
                .leader
                .as_ref()
                .is_some_and(|(leader, _)| *leader != status.raft_id)
        });
        match tokio::time::timeout(within, moved).await {
            Ok(Ok(status)) => Ok(status.leader.as_ref().map_or(0, |(leader, _)| *leader)),
            Ok(Err(_closed)) => Err(Unavailable::Stopped("the status watcher ended".to_owned()).into()),
            Err(_elapsed) => Err(Unavailable::Deadline.into()),
        }
    }

    /// Goes on with a newer version of the machine's rules, once every member has said that it has it; the newest of
    /// this binary where none is named. Gives the version and where it is active from.
    ///
    /// # Errors
    /// A member does not answer or lacks the version, or the membership changed meanwhile.
    pub async fn activate_version(
        &self,
        by: &Principal,
        version: Option<u32>,
    ) -> Result<(u32, u64), MemberError> {
        let _turn = self.membership_turn().lock_owned().await;
        let version = version.unwrap_or(machine::VERSION);
        let known = self.status().members;
        let asking = known.iter().map(async |known| {
            if known.raft_id == self.raft_id() {
                return Some(machine::VERSION);
            }
            let hello = tokio::time::timeout(HELLO, self.hello(&known.member, false)).await;
            let hello = hello.ok()?.ok()?;
            (hello.raft_id == known.raft_id).then_some(hello.machine_version)
        });
        let answers = futures::future::join_all(asking).await;
        for (known, newest) in known.iter().zip(answers) {
            match newest {
                Some(newest) if newest >= version => {}
                Some(newest) => {
                    return Err(MemberError::Refused(format!(
                        "{} has no version above {newest}: start a release there that has version {version}",
                        known.member
                    )));
                }
                None => {
                    return Err(MemberError::Unreachable {
                        member: known.member.clone(),
                        why: format!("whether it has version {version} is not known"),
                    });
                }
            }
        }
        let mut members: Vec<u64> = known.iter().map(|known| known.raft_id).collect();
        members.sort_unstable();
        let activate = Command::ActivateVersion(ActivateVersion {
            by: by.clone(),
            version,
            members,
        });
        match self.propose(activate, Urgency::Urgent, FOUNDING).await? {
            Reply::Done(place) => Ok((version, place.log_index)),
            Reply::Refused(refusal) => Err(MemberError::Refused(refusal.to_string())),
            other => Err(MemberError::Refused(format!("{other:?}"))),
        }
    }

    /// Asks every member what halt epoch it has applied; one that does not answer is listed without.
    pub async fn halt_epochs(&self, within: Duration) -> Vec<NodeHaltEpoch> {
        let asking = self.status().members.into_iter().map(|known| async move {
            let applied = if known.raft_id == self.raft_id() {
                Some(self.progress().halt_epoch)
            } else {
                let hello = tokio::time::timeout(within, self.hello(&known.member, false)).await;
                hello
                    .ok()
                    .and_then(Result::ok)
                    .filter(|hello| hello.raft_id == known.raft_id)
                    .map(|hello| hello.halt_epoch)
            };
            NodeHaltEpoch {
                raft_id: known.raft_id,
                member: known.member,
                applied,
            }
        });
        futures::future::join_all(asking).await
    }

    /// Takes a cluster's id; refuses where the node belongs to another.
    pub(crate) fn adopt(&self, cluster_id: &str) -> Result<(), StoreError> {
        self.owner().set_cluster_id(cluster_id)
    }

    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.status()
            .members
            .iter()
            .filter(|member| member.voter)
            .map(|member| member.raft_id)
            .collect()
    }

    pub(crate) async fn change(
        &self,
        by: &Principal,
        change: ChangeMembers<u64, Member>,
        words: &str,
    ) -> Result<(), MemberError> {
        self.once_committed(|| self.raft().change_membership(change.clone(), false))
            .await?;
        self.record(by, words.to_owned()).await
    }

    /// Makes a change once the one before it is committed: Raft takes one at a time.
    async fn once_committed<T, F>(&self, change: impl Fn() -> F) -> Result<T, MemberError>
    where
        F: Future<Output = Result<T, RaftError<store::Raft, ClientWriteError<store::Raft>>>>,
    {
        let deadline = Instant::now() + FOUNDING;
        loop {
            match change().await {
                Ok(changed) => return Ok(changed),
                Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                    ChangeMembershipError::InProgress(_),
                ))) if Instant::now() < deadline => tokio::time::sleep(AGAIN).await,
                Err(error) => return Err(MemberError::Refused(error.to_string())),
            }
        }
    }

    /// Puts a change that Raft has made into the audit log.
    async fn record(&self, by: &Principal, change: String) -> Result<(), MemberError> {
        let command = Command::Members(Members {
            by: by.clone(),
            change,
        });
        self.propose_until(&command, Instant::now() + FOUNDING).await?;
        Ok(())
    }

    /// Proposes again where there was no leader or no quorum: right after a change of membership, a leader has not
    /// heard from a quorum of the new one yet.
    pub(crate) async fn propose_until(
        &self,
        command: &Command,
        deadline: Instant,
    ) -> Result<Reply, Unavailable> {
        loop {
            match self.propose(command.clone(), Urgency::Urgent, FOUNDING).await {
                Ok(reply) => return Ok(reply),
                Err(unavailable) if Instant::now() > deadline => return Err(unavailable),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
