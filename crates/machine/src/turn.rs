//! What a command may do: read and save rows, arm due work, record, remember its answer for a retry.

use std::fmt;

use audit::{Entry, Kind, Linked, link};
use decision::{DenyReason, Digest, OrganizationId, RequestId, SessionId, Timestamp};

use crate::command::{Batch, Principal, Request};
use crate::event::Event;
use crate::row::reply::{Place, Refusal, Reply};
use crate::row::{
    Answer, Chain, Cluster, DueWork, Fault, Key, REQUEST_KEPT, Read, Record, Recorded, Requester, Row, Rows,
    SESSION_KEPT, Session, Table,
};
use crate::working::Rewrite;

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

/// Audit entries that were made before.
pub trait Entries {
    /// Those from one sequence up to another, both included, in order.
    fn entries(&self, from: u64, to: u64) -> Result<Vec<Entry>, Fault>;
}

impl Entries for [Entry] {
    fn entries(&self, from: u64, to: u64) -> Result<Vec<Entry>, Fault> {
        let range = from..=to;
        let within = self.iter().filter(|entry| range.contains(&entry.sequence));
        Ok(within.cloned().collect())
    }
}

/// What a batch is applied with, besides the rows.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    pub at: Position,
    /// The Raft ids of the voters and learners there, in ascending order.
    pub members: &'c [u64],
    /// The entries of all batches before.
    pub entries: &'c dyn Entries,
}

impl From<Position> for Context<'_> {
    /// Where nobody is a member, and no entry can be read.
    fn from(at: Position) -> Self {
        const NONE: &[Entry] = &[];
        Self {
            at,
            members: &[],
            entries: &NONE,
        }
    }
}

impl Entries for &[Entry] {
    fn entries(&self, from: u64, to: u64) -> Result<Vec<Entry>, Fault> {
        (**self).entries(from, to)
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("at", &self.at)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// Why a command came to no answer of its own.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is not carried out, and every replica says so.
    Refused(Refusal),
    /// The node ends.
    Fault(Fault),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

pub(crate) type Done<T = Reply> = Result<T, Stop>;

/// The commands of one batch at work on the rows, one after the other.
///
/// INVARIANT: a command saves nothing before its last refusal; entries of refusals apart, a refused one leaves no
/// trace.
pub(crate) struct Turn<'t> {
    pub rows: &'t mut dyn Rewrite,
    /// The cluster was initialised.
    pub begun: bool,
    pub cluster: Cluster,
    pub chain: Chain,
    context: Context<'t>,
    /// Of the command that is carried out.
    seed: Digest,
    vouched_by: Option<&'t String>,
    minted: u32,
    entries: Vec<Entry>,
    events: Vec<Event>,
}

impl<'t> Turn<'t> {
    pub fn open(rows: &'t mut dyn Rewrite, context: Context<'t>) -> Result<Self, Fault> {
        let found = rows.cluster()?;
        let begun = found.is_some();
        let cluster = found.unwrap_or_default();
        let chain = match rows.chain()? {
            Some(chain) => chain,
            None if begun => return Err(Fault::Missing(Key::Chain)),
            None => Chain::empty(&cluster.chain_id),
        };
        Ok(Self {
            rows,
            begun,
            cluster,
            chain,
            context,
            seed: Digest::of(&[]),
            vouched_by: None,
            minted: 0,
            entries: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Begins the next command of the batch.
    pub fn begin(&mut self, batch: &'t Batch, ordinal: u64) {
        // INVARIANT: log time never runs backwards, whatever the proposers' clocks do.
        self.cluster.now = self.cluster.now.max(batch.proposed);
        let mut seed = batch.seed.to_vec();
        seed.extend_from_slice(&ordinal.to_be_bytes());
        self.seed = Digest::of(&seed);
        self.minted = 0;
        let place = usize::try_from(ordinal).unwrap_or(usize::MAX);
        self.vouched_by = batch.vouched_by.get(place).and_then(Option::as_ref);
    }

    /// Saves what all commands share, once, with the digest of all changes; gives the entries and events they made.
    pub fn close(self) -> (Vec<Entry>, Vec<Event>) {
        let Self {
            rows,
            cluster,
            mut chain,
            ..
        } = self;
        if self.begun {
            rows.put(Key::Cluster, Row::Cluster(cluster));
            chain.state = rows.fold_changes(chain.state);
            rows.put(Key::Chain, Row::Chain(chain));
        }
        (self.entries, self.events)
    }

    /// Log time at this command.
    pub fn now(&self) -> Timestamp {
        self.cluster.now
    }

    /// The version of the rules that is active.
    pub fn version(&self) -> u32 {
        self.cluster.version
    }

    /// The Raft ids of the voters and learners, in ascending order.
    pub fn members(&self) -> &[u64] {
        self.context.members
    }

    // Rows.

    pub fn find<T: Table>(&self, id: &T::Id) -> Result<Option<Record<T>>, Fault> {
        Ok(self.rows.get(id)?.map(|row| Record::new(id.clone(), row)))
    }

    /// A row that another row says is there.
    pub fn need<T: Table>(&self, id: &T::Id) -> Result<Record<T>, Fault> {
        self.find(id)?.ok_or_else(|| Fault::Missing(T::key(id)))
    }

    /// A row, or what it is where nothing was written yet.
    pub fn find_or_default<T: Table + Default>(&self, id: &T::Id) -> Result<Record<T>, Fault> {
        Ok(Record::new(id.clone(), self.rows.get(id)?.unwrap_or_default()))
    }

    pub fn save<T: Table>(&mut self, record: Record<T>) {
        self.rows.put(T::key(&record.id), record.row.into_row());
    }

    pub fn remove<T: Table>(&mut self, id: &T::Id) {
        self.rows.delete(T::key(id));
    }

    /// Writes a key that says it all.
    pub fn mark(&mut self, key: Key) {
        self.rows.put(key, Row::Mark);
    }

    pub fn unmark(&mut self, key: Key) {
        self.rows.delete(key);
    }

    pub fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        Rows::scan(&*self.rows, from, until, limit)
    }

    pub fn arm(&mut self, at: Timestamp, work: DueWork) {
        self.mark(Key::Due(at, work));
    }

    pub fn disarm(&mut self, at: Timestamp, work: DueWork) {
        self.unmark(Key::Due(at, work));
    }

    // Reach.

    /// A session as it may still be named: an hour after its end it is gone, however far its removal is.
    pub fn session(&self, id: &SessionId) -> Done<Record<Session>> {
        let there = |session: &Record<Session>| {
            let ended = session.ended_at;
            ended.is_none_or(|ended| self.now() < ended.plus(SESSION_KEPT))
        };
        Ok(self.find(id)?.filter(there).ok_or(Refusal::SessionNotFound)?)
    }

    /// The same, for whoever speaks for its agent.
    pub fn session_of_agent(&mut self, by: &Principal, id: &SessionId) -> Done<Record<Session>> {
        let session = self.session(id)?;
        if by.speaks_for(&session.organization, &session.agent) {
            return Ok(session);
        }
        Err(self.not_yours(by, format!("session/{id}")))
    }

    /// The same, for whoever's reach includes its organization.
    pub fn session_in_reach(&mut self, by: &Principal, id: &SessionId) -> Done<Record<Session>> {
        let session = self.session(id)?;
        self.reaches(by, Some(&session.organization), || format!("session/{id}"))?;
        Ok(session)
    }

    /// Without an organization, what is meant is the whole cluster's.
    pub fn reaches(
        &mut self,
        by: &Principal,
        organization: Option<&OrganizationId>,
        what: impl FnOnce() -> String,
    ) -> Done<()> {
        let within = match organization {
            None => by.organization.is_none(),
            Some(organization) => by.reaches(organization),
        };
        if within {
            return Ok(());
        }
        Err(self.not_yours(by, what()))
    }

    /// Records a refusal of an identity: the victim's rows stay as they are.
    pub fn not_yours(&mut self, by: &Principal, what: String) -> Stop {
        let mut entry = self.entry(Kind::Refused);
        entry.operator_id.clone_from(&by.name);
        entry.detail.clone_from(&what);
        entry.deny_reason = DenyReason::AuthFailed;
        self.record(entry);
        Refusal::NotYours(what).into()
    }

    // Retries.

    /// Carries a request out once: one that comes again gets its answer again, or the conflict with what came first.
    /// An identity's answers are kept for a day, a session's as long as the call they are about.
    pub fn once<'r>(
        &mut self,
        by: Requester,
        request: impl Into<Option<&'r Request>>,
        act: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let Some(request) = request.into() else {
            return act(self);
        };
        let id = (by, request.id.clone());
        if let Some(recorded) = self.find::<Recorded>(&id)? {
            let Answer::Reply(earlier) = recorded.row.answer_to(request)? else {
                return Err(used_for_another(request).into());
            };
            self.tell(Event::Replayed);
            return Ok(earlier.again());
        }
        let before = self.chain.head.sequence;
        let reply = act(self)?;
        // What made no entry changed nothing: it needs no memory to come to the same answer.
        if self.chain.head.sequence == before {
            return Ok(reply);
        }
        if let (by @ Requester::Identity(_), request) = &id {
            let until = self.now().plus(REQUEST_KEPT);
            self.arm(until, DueWork::RequestExpiry(by.clone(), request.clone()));
        }
        let answer = Answer::Reply(Box::new(reply.clone()));
        self.remember(id, request, answer);
        Ok(reply)
    }

    pub fn remember(&mut self, id: (Requester, RequestId), request: &Request, answer: Answer) {
        let payload = request.payload;
        self.save(Record::new(id, Recorded { payload, answer }));
    }

    // The audit chain, and what is told.

    /// An entry to be filled in and recorded.
    pub fn entry(&self, kind: Kind) -> Entry {
        Entry::blank(kind, self.now())
    }

    /// The same about a session, its owner filled in.
    pub fn entry_of(&self, kind: Kind, session: &Record<Session>) -> Entry {
        Entry {
            session_id: session.id.as_str().to_owned(),
            agent_id: session.agent.as_str().to_owned(),
            organization_id: session.organization.as_str().to_owned(),
            ..self.entry(kind)
        }
    }

    /// Links an entry to the chain; gives its sequence.
    pub fn record(&mut self, mut entry: Entry) -> u64 {
        entry.log_term = self.context.at.term;
        entry.log_index = self.context.at.index;
        self.vouched_by
            .map_or(&String::new(), |name| name)
            .clone_into(&mut entry.vouched_by);
        let Linked { entry, head } = link(&self.chain.head, entry);
        self.chain.frontier.push(&head.hash);
        self.chain.head = head;
        self.entries.push(entry);
        self.chain.head.sequence
    }

    /// Entries that stand, those of this batch included.
    pub fn entries(&self, from: u64, to: u64) -> Result<Vec<Entry>, Fault> {
        let mut found = self.context.entries.entries(from, to)?;
        found.extend(self.entries.as_slice().entries(from, to)?);
        Ok(found)
    }

    /// The sequence that the next recorded entry gets.
    pub fn next_sequence(&self) -> u64 {
        self.chain.head.sequence.saturating_add(1)
    }

    pub fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Where an answer is made; with sequence 0 where the command makes no entry.
    pub fn place(&self, sequence: u64) -> Place {
        Place {
            log_index: self.context.at.index,
            sequence,
            halt_epoch: self.cluster.halt_epoch,
            time: self.now(),
        }
    }

    // Chance, alike on every replica: from the leader's seed, the command's place, a counter.

    pub fn random(&mut self) -> [u8; 32] {
        self.minted = self.minted.saturating_add(1);
        let mut source = self.seed.as_bytes().to_vec();
        source.extend_from_slice(&self.minted.to_be_bytes());
        *Digest::of(&source).as_bytes()
    }

    /// A new id: the prefix, and 16 bytes in hexadecimal.
    pub fn mint(&mut self, prefix: &str) -> String {
        let mut id = prefix.to_owned();
        for byte in self.random().iter().take(16) {
            id.push_str(&format!("{byte:02x}"));
        }
        id
    }
}

impl Recorded {
    /// The answer, where the request is the one it was given to.
    pub(crate) fn answer_to(self, request: &Request) -> Result<Answer, Refusal> {
        if self.payload == request.payload {
            Ok(self.answer)
        } else {
            Err(used_for_another(request))
        }
    }
}

pub(crate) fn used_for_another(request: &Request) -> Refusal {
    Refusal::Conflict(format!("request_id {} was used with another payload", request.id))
}
