//! One pure function: commands in; replies, audit entries and events out; changes in the rows it works on.

use audit::{ChainHead, Entry, Frontier, KeyChange, Kind, Linked, Seal, link};
use decision::{DenyReason, Digest, Timestamp};

use crate::approval;
use crate::budget;
use crate::command::{Batch, Command, Init, Members, Principal, RefusedAtEdge, RegisterKey};
use crate::due;
use crate::event::Event;
use crate::fixture;
use crate::guard_put;
use crate::halt;
use crate::post_exec;
use crate::pre_exec;
use crate::reply::{Place, Refusal, Reply};
use crate::scope::GuardScope;
use crate::session;
use crate::table::{Chain, Cluster, Fault, Key, Read, Row, Rows, Working};
use crate::ticket;

/// The version of the rules; raised by every change that changes an answer.
pub const VERSION: u32 = 2;

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

/// What a batch did, besides the rows it changed.
#[derive(Debug, Default)]
pub struct Applied {
    /// One a command, in order.
    pub replies: Vec<Reply>,
    /// The audit entries it made, linked to the chain.
    pub entries: Vec<Entry>,
    pub events: Vec<Event>,
}

/// Applies the commands of one log entry, one after the other, each seeing what the last one did.
///
/// Pure: the same rows, position and batch give the same answer, entries and rows on every replica.
///
/// # Errors
/// A `Fault` is never about the commands: the rows are broken or unreadable, and the node must stop.
pub fn apply<R: Rows>(rows: &mut Working<'_, R>, at: Position, batch: &Batch) -> Result<Applied, Fault> {
    if batch.version > VERSION {
        return Err(Fault::Version {
            needs: batch.version,
            has: VERSION,
        });
    }
    let mut applied = Applied::default();
    for (ordinal, command) in batch.commands.iter().enumerate() {
        let ordinal = u64::try_from(ordinal).unwrap_or(u64::MAX);
        let reply = match Turn::open(rows, at, batch, ordinal)? {
            Some(mut turn) => {
                let reply = turn.carry_out(command)?;
                turn.close(&mut applied);
                reply
            }
            None => init(rows, at, batch, command, &mut applied)?,
        };
        applied.replies.push(reply);
    }
    Ok(applied)
}

/// One command's turn on the rows.
pub(crate) struct Turn<'w, 'b, R> {
    pub rows: &'w mut Working<'b, R>,
    pub cluster: Cluster,
    chain: Chain,
    at: Position,
    seed: Digest,
    minted: u32,
    entries: Vec<Entry>,
    pub events: Vec<Event>,
}

impl<'w, 'b, R: Rows> Turn<'w, 'b, R> {
    fn open(
        rows: &'w mut Working<'b, R>,
        at: Position,
        batch: &Batch,
        ordinal: u64,
    ) -> Result<Option<Self>, Fault> {
        let Some(mut cluster) = rows.cluster()? else {
            return Ok(None);
        };
        let chain = rows.chain()?.ok_or(Fault::Missing(Key::Chain))?;
        // INVARIANT: log time never runs backwards, whatever the proposers' clocks do.
        cluster.now = cluster.now.max(batch.proposed);
        let mut seed = batch.seed.to_vec();
        seed.extend_from_slice(&ordinal.to_be_bytes());
        let seed = Digest::of(&seed);
        Ok(Some(Self {
            rows,
            cluster,
            chain,
            at,
            seed,
            minted: 0,
            entries: Vec::new(),
            events: Vec::new(),
        }))
    }

    /// One match: every write there is, and who carries it out.
    fn carry_out(&mut self, command: &Command) -> Result<Reply, Fault> {
        match command {
            Command::Init(_) => Ok(Reply::Refused(Refusal::AlreadyInitialized)),
            Command::Register(register) => session::register(self, register),
            Command::PreExec(call) => pre_exec::pre_exec(self, call),
            Command::PostExec(report) => post_exec::post_exec(self, report),
            Command::Seen(seen) => session::seen(self, seen),
            Command::EndSession(end) => session::end(self, end),
            Command::Due => due::due(self),
            Command::SetBudget(set) => budget::set(self, set),
            Command::GrantBudget(grant) => budget::grant(self, grant),
            Command::PutGuard(put) => guard_put::put(self, put),
            Command::Engage(engage) => halt::engage(self, engage),
            Command::Release(release) => halt::release(self, release),
            Command::Session(act) => session::act(self, act),
            Command::RegisterKey(key) => register_key(self, key),
            Command::Seal(seal) => self.seal(seal),
            Command::Members(members) => self.members(members),
            Command::Refused(refused) => self.refused_at_edge(refused),
            Command::Fixture(fixture) => fixture::load(self, fixture),
            Command::AttachShown(shown) => approval::attach(self, shown),
            Command::Correct(correct) => budget::correct(self, correct),
            Command::Redeem(redeem) => ticket::redeem(self, redeem),
            Command::Decide(decide) => approval::decide(self, decide),
        }
    }

    fn close(self, applied: &mut Applied) {
        self.rows.put(Key::Cluster, Row::Cluster(self.cluster));
        self.rows.put(Key::Chain, Row::Chain(self.chain));
        applied.entries.extend(self.entries);
        applied.events.extend(self.events);
    }

    /// Log time at this command.
    pub fn now(&self) -> Timestamp {
        self.cluster.now
    }

    /// An entry to be filled in and recorded.
    pub fn entry(&self, kind: Kind) -> Entry {
        Entry::blank(kind, self.now())
    }

    /// Links an entry to the chain; gives its sequence.
    pub fn record(&mut self, mut entry: Entry) -> u64 {
        entry.log_term = self.at.term;
        entry.log_index = self.at.index;
        let Linked { entry, head } = link(&self.chain.head, entry);
        self.chain.frontier.push(&head.hash);
        self.chain.head = head;
        self.entries.push(entry);
        self.chain.head.sequence
    }

    /// The sequence that the next recorded entry gets.
    pub fn next_sequence(&self) -> u64 {
        self.chain.head.sequence.saturating_add(1)
    }

    /// Records a refusal of an identity: the victim's rows stay as they are.
    pub fn refuse(&mut self, by: &Principal, what: String) -> Reply {
        let mut entry = self.entry(Kind::Refused);
        entry.operator_id.clone_from(&by.name);
        entry.detail.clone_from(&what);
        entry.deny_reason = DenyReason::AuthFailed;
        self.record(entry);
        Reply::Refused(Refusal::NotYours(what))
    }

    pub fn place(&self, sequence: u64) -> Place {
        Place {
            log_index: self.at.index,
            sequence,
            halt_epoch: self.cluster.halt_epoch,
            time: self.now(),
        }
    }

    /// Random bytes that every replica draws alike: the leader's seed, the command's place, a counter.
    pub fn random(&mut self) -> Digest {
        self.minted = self.minted.saturating_add(1);
        let mut source = self.seed.as_bytes().to_vec();
        source.extend_from_slice(&self.minted.to_be_bytes());
        Digest::of(&source)
    }

    /// Takes signatures over the next unsealed range. The range's last hash is the chain's own, so a seal
    /// over anything else does not verify.
    fn seal(&mut self, seal: &Seal) -> Result<Reply, Fault> {
        let next = self.chain.sealed_to.saturating_add(1);
        if seal.from != next || seal.to > self.chain.head.sequence {
            return Ok(Reply::Refused(Refusal::Conflict(format!(
                "a seal over {} to {} does not continue a chain sealed to {} of {}",
                seal.from, seal.to, self.chain.sealed_to, self.chain.head.sequence
            ))));
        }
        let keys = self.rows.keys()?.unwrap_or_default();
        if let Err(broken) = seal
            .check_shape()
            .and_then(|()| keys.signing(&seal.key_id, seal.to).map(|_| ()))
        {
            return Ok(Reply::Refused(Refusal::Invalid(broken.to_string())));
        }
        self.chain.sealed_to = seal.to;
        self.rows.put(Key::Seal(seal.to), Row::Seal(seal.clone()));
        Ok(Reply::Done(self.place(0)))
    }

    fn members(&mut self, members: &Members) -> Result<Reply, Fault> {
        let mut entry = self.entry(Kind::MembershipChanged);
        entry.operator_id.clone_from(&members.by.name);
        entry.detail.clone_from(&members.change);
        let sequence = self.record(entry);
        Ok(Reply::Done(self.place(sequence)))
    }

    fn refused_at_edge(&mut self, refused: &RefusedAtEdge) -> Result<Reply, Fault> {
        Ok(self.refuse(&refused.by, format!("{}: {}", refused.rpc, refused.why)))
    }
}

/// The first command of a cluster's life; nothing is accepted before it.
fn init<R: Rows>(
    rows: &mut Working<'_, R>,
    at: Position,
    batch: &Batch,
    command: &Command,
    applied: &mut Applied,
) -> Result<Reply, Fault> {
    let Command::Init(init) = command else {
        return Ok(Reply::Refused(Refusal::NotInitialized));
    };
    let Init {
        chain_id,
        by,
        default_guard,
        unfunded_organizations,
        fixtures,
    } = init;
    if let Err(refusal) = guard_put::check(default_guard) {
        return Ok(Reply::Refused(refusal));
    }
    if default_guard.parent.is_some() {
        return Ok(Reply::Refused(Refusal::Invalid(
            "the default guard is of no organization: it has no parent".to_owned(),
        )));
    }
    rows.put(
        Key::Cluster,
        Row::Cluster(Cluster {
            chain_id: chain_id.clone(),
            now: batch.proposed,
            halt_epoch: 0,
            unfunded_organizations: *unfunded_organizations,
            fixtures: *fixtures,
        }),
    );
    rows.put(
        Key::Chain,
        Row::Chain(Chain {
            head: ChainHead::empty(chain_id.as_str()),
            frontier: Frontier::default(),
            sealed_to: 0,
        }),
    );
    let mut guard = default_guard.clone();
    guard.version = 1;
    let mut entry = Entry::blank(Kind::Genesis, batch.proposed);
    entry.operator_id.clone_from(&by.name);
    entry.policy_digest = guard.digest().as_bytes().to_vec();
    rows.put(Key::Guard(GuardScope::Default), Row::Guard(Box::new(guard)));
    let mut turn = Turn::open(rows, at, batch, 0)?.ok_or(Fault::Missing(Key::Cluster))?;
    let sequence = turn.record(entry);
    let place = turn.place(sequence);
    turn.close(applied);
    Ok(Reply::Done(place))
}

fn register_key<R: Rows>(turn: &mut Turn<'_, '_, R>, key: &RegisterKey) -> Result<Reply, Fault> {
    let mut keys = turn.rows.keys()?.unwrap_or_default();
    if keys.iter().any(|known| known.public == key.public) {
        return Ok(Reply::Done(turn.place(0)));
    }
    let change = KeyChange::register(key.public, key.node.as_str());
    let sequence = turn.next_sequence();
    if let Err(broken) = keys.change(&change, &turn.cluster.chain_id, sequence) {
        return Ok(Reply::Refused(Refusal::Invalid(broken.to_string())));
    }
    let mut entry = turn.entry(Kind::KeyRegistered);
    entry.operator_id = format!("node/{}", key.node);
    entry.detail = change.to_string();
    turn.record(entry);
    turn.rows.put(Key::Keys, Row::Keys(keys));
    Ok(Reply::Done(turn.place(sequence)))
}
