//! Raft's messages, as openraft asks for them, over the peers' gRPC.

use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{RaftNetworkFactory, RaftNetworkV2};
use prost::bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{Member, Raft, Snapshot, SnapshotData, Vote};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::{Lane, Peers};
use crate::whoami::Whoami;

/// What a snapshot begins with.
#[derive(Serialize, Deserialize)]
pub(crate) struct SnapshotHeader {
    pub vote: Vote,
    /// A `SnapshotInfo`, encoded.
    pub info: Vec<u8>,
}

/// Opens a network to each peer that Raft names.
pub(crate) struct Network {
    pub whoami: Whoami,
    pub peers: Peers,
}

/// One peer, as Raft sees it.
pub(crate) struct Target {
    whoami: Whoami,
    peers: Peers,
    raft_id: u64,
    member: Member,
}

/// Whether a vote is asked for, or only whether it would be granted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreVote {
    Yes,
    No,
}

impl RaftNetworkFactory<Raft> for Network {
    type Network = Target;

    async fn new_client(&mut self, target: u64, node: &Member) -> Target {
        Target {
            whoami: self.whoami.clone(),
            peers: self.peers.clone(),
            raft_id: target,
            member: node.clone(),
        }
    }
}

impl RaftNetworkV2<Raft> for Target {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Raft>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Raft>, RPCError<Raft>> {
        let request = peer::AppendEntriesRequest {
            sender: self.sender(),
            payload: encode(&rpc)?,
        };
        let mut client = self.peers.client(&self.member, Lane::Raft);
        let answer = self
            .within(RPCTypes::AppendEntries, option, client.append_entries(request))
            .await?;
        decode(&answer.payload)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Raft>,
        option: RPCOption,
    ) -> Result<VoteResponse<Raft>, RPCError<Raft>> {
        self.ask_vote(rpc, PreVote::No, option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Raft>,
        option: RPCOption,
    ) -> Result<VoteResponse<Raft>, RPCError<Raft>> {
        self.ask_vote(rpc, PreVote::Yes, option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Raft>, StreamingError<Raft>> {
        let header = SnapshotHeader {
            vote,
            info: snapshot.snapshot.info().encode(),
        };
        let header = encode(&header).map_err(streaming)?;
        // A few chunks in flight: memory stays bounded on both sides.
        let (chunks, receiver) = mpsc::channel(4);
        let sender = self.sender();
        let sending = async move {
            let first = peer::InstallSnapshotRequest {
                sender,
                part: Some(peer::install_snapshot_request::Part::Header(header)),
            };
            if chunks.send(first).await.is_err() {
                return Ok(());
            }
            for number in 0..snapshot.snapshot.info().chunks {
                let chunk = snapshot.snapshot.chunk(number)?;
                let part = peer::install_snapshot_request::Part::Chunk(peer::SnapshotChunk {
                    number,
                    data: chunk.bytes.into(),
                    sha256: chunk.sha256.to_vec().into(),
                });
                if chunks
                    .send(peer::InstallSnapshotRequest {
                        sender: None,
                        part: Some(part),
                    })
                    .await
                    .is_err()
                {
                    return Ok(());
                }
            }
            Ok::<(), store::StoreError>(())
        };
        let mut client = self.peers.client(&self.member, Lane::Raft);
        let installing = async {
            let (sent, answer) =
                tokio::join!(sending, client.install_snapshot(ReceiverStream::new(receiver)));
            sent.map_err(|error| StreamingError::Unreachable(Unreachable::new(&error)))?;
            let answer = answer.map_err(|status| StreamingError::Unreachable(Unreachable::new(&status)))?;
            decode(&answer.into_inner().payload).map_err(streaming)
        };
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            answer = tokio::time::timeout(option.hard_ttl(), installing) => match answer {
                Ok(answer) => answer,
                Err(_elapsed) => Err(StreamingError::Timeout(self.timeout(RPCTypes::InstallSnapshot, option.hard_ttl()))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Raft>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Raft>, RPCError<Raft>> {
        let request = peer::TransferLeaderRequest {
            sender: self.sender(),
            payload: encode(&rpc)?,
        };
        let mut client = self.peers.client(&self.member, Lane::Raft);
        let answer = self
            .within(RPCTypes::TransferLeader, option, client.transfer_leader(request))
            .await?;
        decode(&answer.payload)
    }
}

impl Target {
    async fn ask_vote(
        &mut self,
        rpc: VoteRequest<Raft>,
        pre_vote: PreVote,
        option: RPCOption,
    ) -> Result<VoteResponse<Raft>, RPCError<Raft>> {
        let request = peer::VoteRequest {
            sender: self.sender(),
            payload: encode(&rpc)?,
            pre_vote: pre_vote == PreVote::Yes,
        };
        let mut client = self.peers.client(&self.member, Lane::Raft);
        let answer = self.within(RPCTypes::Vote, option, client.vote(request)).await?;
        decode(&answer.payload)
    }

    fn sender(&self) -> Option<peer::Sender> {
        Some(self.whoami.sender(self.raft_id))
    }

    /// Waits for an answer no longer than Raft wants to.
    async fn within<T>(
        &self,
        action: RPCTypes,
        option: RPCOption,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RPCError<Raft>> {
        match tokio::time::timeout(option.hard_ttl(), call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // A refused connection or a wrong peer: no use in asking again at once.
            Ok(Err(status)) => Err(RPCError::Unreachable(Unreachable::new(&status))),
            Err(_elapsed) => {
                self.peers.give_up(&self.member, Lane::Raft);
                Err(RPCError::Timeout(self.timeout(action, option.hard_ttl())))
            }
        }
    }

    fn timeout(&self, action: RPCTypes, timeout: Duration) -> Timeout<Raft> {
        Timeout {
            action,
            id: self.whoami.raft_id,
            target: self.raft_id,
            timeout,
        }
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, RPCError<Raft>> {
    match minicbor_serde::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(RPCError::Network(NetworkError::new(&error))),
    }
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RPCError<Raft>> {
    minicbor_serde::from_slice(bytes).map_err(|error| RPCError::Network(NetworkError::new(&error)))
}

fn streaming(error: RPCError<Raft>) -> StreamingError<Raft> {
    match error {
        RPCError::Timeout(timeout) => StreamingError::Timeout(timeout),
        RPCError::Unreachable(unreachable) => StreamingError::Unreachable(unreachable),
        RPCError::Network(network) => StreamingError::Network(network),
        RPCError::RemoteError(remote) => match remote.source {},
    }
}
