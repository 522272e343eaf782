//! `Audit`: the chain, its seals and its keys.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Checkpoint, Entry, Seal, canonical};
use decision::OrganizationId;
use machine::row::Read as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::audit::Range;
use wire::proto::haltgate::audit::v1 as proto;
use wire::proto::haltgate::audit::v1::audit_stream_response::Item;
use wire::{Code, Failure};

use crate::admit::Ask;
use crate::door::Door;
use crate::service::Streamed;

/// Entries that are read at once: some hundred kilobytes.
const CHUNK: u64 = 256;
/// Seals that are read at once.
const SEALS: usize = 64;
/// Messages that wait for a slow reader.
const WAITING: usize = 64;
/// How long the end of a stream waits for its seal: the leader makes one every 50 ms.
const SEAL: Duration = Duration::from_secs(5);
/// How often the chain is looked at again while a seal is missing.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOK_LATER: Duration = Duration::from_secs(60);

pub async fn stream(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::AuditStreamRequest,
) -> Result<Streamed<proto::AuditStreamResponse>, Failure> {
    let range = wire::audit::range(&message)?;
    // Where a quorum answers, the stream holds all that was ever acknowledged; otherwise what is here.
    let head = match door.read(ask, |view| view.chain()).await {
        Ok(chain) => chain.map_or(0, |chain| chain.head.sequence),
        Err(_unavailable) => door.node.progress().head_sequence,
    };
    let (sender, receiver) = mpsc::channel(WAITING);
    let reading = Reading {
        door: Arc::clone(door),
        only: ask.identity.organization().cloned(),
        next: range.from,
        end: match range {
            Range { follow: true, .. } => End::Never,
            Range { to: Some(to), .. } if to <= head => End::At(to),
            Range { .. } => End::Head(head),
        },
        sealed: range.from.saturating_sub(1),
        sender,
    };
    tokio::spawn(reading.run());
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

pub async fn get_entry(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::AuditGetEntryRequest,
) -> Result<proto::AuditGetEntryResponse, Failure> {
    let sequence = message.sequence;
    let read = door.read(ask, |view| {
        let read = || Ok((view.entry(sequence)?, view.seals_from(sequence, 1)?));
        Ok(read())
    });
    let found: Result<(Option<Entry>, Vec<Seal>), store::StoreError> = read.await?;
    let (entry, seals) = found.map_err(|error| Failure::new(Code::DaemonUnavailable, error.to_string()))?;
    let entry =
        entry.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no audit entry {sequence}")))?;
    if !is_theirs(&entry, ask.identity.organization()) {
        let why = format!("audit entry {sequence} is not of this identity's organization");
        return Err(door.admission.refuse(ask, "organization", why));
    }
    let seal = seals.first().filter(|seal| seal.signature(sequence).is_some());
    Ok(proto::AuditGetEntryResponse {
        hash: canonical::hash(&entry).to_vec(),
        sealed: seal.is_some(),
        entry: Some(wire::audit::entry_message(&entry, seal)),
    })
}

/// States how long the chain is and what is in it, signed with this node's key.
pub async fn get_checkpoint(
    door: &Arc<Door>,
    ask: &Ask,
    _: proto::AuditGetCheckpointRequest,
) -> Result<proto::AuditGetCheckpointResponse, Failure> {
    let (chain, keys) = door.read(ask, |view| Ok((view.chain()?, view.keys()?))).await?;
    let chain = chain.ok_or(machine::Refusal::NotInitialized)?;
    let size = chain.head.sequence;
    let known = keys.unwrap_or_default();
    known.signing(door.signer.key_id(), size).map_err(|error| {
        Failure::new(
            Code::DaemonUnavailable,
            format!("this node cannot sign for the chain yet: {error}"),
        )
    })?;
    let internal = |error: audit::Error| Failure::new(Code::Internal, error.to_string());
    let mut checkpoint = Checkpoint::new(&chain.head.chain_id, size, chain.frontier.root(), chain.head.hash)
        .map_err(internal)?;
    checkpoint.sign(&door.signer);
    let key_ids = checkpoint.verify(&known).map_err(internal)?;
    Ok(proto::AuditGetCheckpointResponse {
        checkpoint: Some(wire::audit::checkpoint_message(&checkpoint, key_ids)),
    })
}

pub async fn list_keys(
    door: &Arc<Door>,
    ask: &Ask,
    _: proto::AuditListKeysRequest,
) -> Result<proto::AuditListKeysResponse, Failure> {
    let (keys, cluster) = door.read(ask, |view| Ok((view.keys()?, view.cluster()?))).await?;
    Ok(proto::AuditListKeysResponse {
        keys: keys
            .unwrap_or_default()
            .iter()
            .map(wire::audit::key_message)
            .collect(),
        chain_id: cluster.map(|cluster| cluster.chain_id).unwrap_or_default(),
    })
}

/// An organization's auditor sees what is of that organization.
fn is_theirs(entry: &Entry, only: Option<&OrganizationId>) -> bool {
    only.is_none_or(|own| entry.organization_id == own.as_str())
}

/// One reader's way along the chain.
struct Reading {
    door: Arc<Door>,
    only: Option<OrganizationId>,
    /// The next entry to send.
    next: u64,
    end: End,
    /// Entries up to here are covered by seals that were sent, or that go on behind the end.
    sealed: u64,
    sender: mpsc::Sender<Result<proto::AuditStreamResponse, Status>>,
}

/// Where a stream ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// At this entry.
    At(u64),
    /// At this entry, which was the head, or at the end of the seal that covers it: an export is sealed whole.
    Head(u64),
    Never,
}

impl End {
    const fn last(self) -> u64 {
        match self {
            Self::At(last) | Self::Head(last) => last,
            Self::Never => u64::MAX,
        }
    }
}

/// The reader has gone.
struct Gone;

impl Reading {
    async fn run(mut self) {
        let mut progress = self.door.node.reader().progress();
        let mut draining = self.door.draining.clone();
        let mut complete_since = None;
        loop {
            match self.send_what_is_there().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(Gone) => return,
            }
            let sent = self.next.saturating_sub(1);
            if sent >= self.end.last() {
                let since = *complete_since.get_or_insert_with(Instant::now);
                if self.sealed >= sent || since.elapsed() > SEAL {
                    return;
                }
            }
            // A seal changes rows and makes no entry: it is looked for while one is missing.
            let pause = if self.sealed < sent {
                LOOK_AGAIN
            } else {
                LOOK_LATER
            };
            tokio::select! {
                changed = progress.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
                () = self.sender.closed() => return,
                _ = draining.wait_for(|draining| *draining) => return,
            }
        }
    }

    /// Sends one chunk of entries, and the seals behind them; says whether there was anything.
    async fn send_what_is_there(&mut self) -> Result<bool, Gone> {
        let begun_at = (self.next, self.sealed);
        let left = self.end.last().saturating_sub(self.next.saturating_sub(1));
        let most = usize::try_from(left.min(CHUNK)).unwrap_or(usize::MAX);
        let (next, sealed) = begun_at;
        let reader = self.door.node.reader().clone();
        let read = tokio::task::spawn_blocking(move || {
            Ok::<_, store::StoreError>((
                reader.entries(next, most)?,
                reader.seals_from(sealed.saturating_add(1), SEALS)?,
            ))
        });
        let (entries, seals) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return self.fail(error.to_string()).await,
            Err(ended) => return self.fail(ended.to_string()).await,
        };
        let mut seals: VecDeque<Seal> = seals.into();
        for entry in entries {
            let covering = seals.iter().find(|seal| seal.signature(entry.sequence).is_some());
            if is_theirs(&entry, self.only.as_ref()) {
                let message = wire::audit::entry_message(&entry, covering);
                self.send(Item::Entry(message)).await?;
            }
            self.next = entry.sequence.saturating_add(1);
            self.send_seals(&mut seals).await?;
        }
        self.send_seals(&mut seals).await?;
        if let (Some(seal), sent) = (seals.front(), self.next.saturating_sub(1))
            && (seal.from..seal.to).contains(&sent)
        {
            match self.end {
                End::Head(last) if sent >= last => self.end = End::Head(seal.to),
                End::At(last) if sent >= last => self.sealed = sent,
                End::At(_) | End::Head(_) | End::Never => {}
            }
        }
        Ok(begun_at != (self.next, self.sealed))
    }

    /// Sends the seals whose last entry was sent.
    async fn send_seals(&mut self, seals: &mut VecDeque<Seal>) -> Result<(), Gone> {
        while let Some(seal) = seals.pop_front() {
            if seal.to >= self.next {
                seals.push_front(seal);
                return Ok(());
            }
            self.sealed = seal.to;
            self.send(Item::Seal(wire::audit::seal_message(&seal))).await?;
        }
        Ok(())
    }

    async fn send(&self, item: Item) -> Result<(), Gone> {
        let message = proto::AuditStreamResponse { item: Some(item) };
        self.sender.send(Ok(message)).await.map_err(|_closed| Gone)
    }

    async fn fail(&self, why: String) -> Result<bool, Gone> {
        let status = self.door.status(Failure::new(Code::DaemonUnavailable, why));
        // Whoever has gone needs no reason.
        let _gone = self.sender.send(Err(status)).await;
        Err(Gone)
    }
}
