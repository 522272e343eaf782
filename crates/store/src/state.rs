//! The replicated state: applies committed entries, a run of them as one write.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use machine::row::{Fault, Read as _};
use machine::{Context, Entries, Event, Position, Working};
use openraft::EntryPayload;
use openraft::base::OptionalSend;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};

use crate::config::{Answers, Entry, LogId, Payload, Raft, Snapshot, SnapshotMeta, StoredMembership};
use crate::disk::{Durability, Op, Space};
use crate::error::StoreError;
use crate::home::Home;
use crate::keys;
use crate::live::{Live, Progress, StateDisk, read_meta};
use crate::record;
use crate::rows::RowCache;
use crate::snapshot::{self, SnapshotBuilder, SnapshotData, Stage};
use crate::tail;
use crate::work::Work;

/// The state machine as openraft drives it.
pub struct StateMachine {
    // Dropped in this order: the database closes, the directory is unlocked.
    rows: RowCache,
    live: Arc<Live>,
    home: Arc<dyn Home>,
    rows_max: usize,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// The snapshot that openraft took last.
    taken: Option<LogId>,
    work: Work,
    stop_install_at: Option<Stage>,
}

/// Entries of one run, written as one: a long run answers late, a short one writes often.
const RUN_ENTRIES_MAX: usize = 64;
/// Bytes of entries after which a run ends: some 2,000 commands.
const RUN_BYTES_MAX: usize = 512 << 10;
/// How long a run may take: entries of due work are small and take long, and between runs others get their answers.
const RUN_TIME_MAX: Duration = Duration::from_millis(20);

impl StateMachine {
    /// # Errors
    /// The data cannot be read, or is of a version of the rules that this binary lacks.
    pub(crate) fn open(
        live: Arc<Live>,
        home: Arc<dyn Home>,
        work: Work,
        rows_max: usize,
        stop_install_at: Option<Stage>,
    ) -> Result<Self, StoreError> {
        let state = live.state();
        let (applied, membership) = read_meta(state.disk.view().as_ref())?;
        let taken = home.snapshot().and_then(|snapshot| snapshot.info().applied);
        let rows = RowCache::over(state, rows_max);
        check_version(&rows)?;
        Ok(Self {
            rows,
            rows_max,
            live,
            home,
            applied,
            membership,
            taken,
            work,
            stop_install_at,
        })
    }

    /// Applies entries from the front of the run until its time is over: one write, then all answers, then the news.
    fn apply_run(&mut self, run: &mut VecDeque<EntryResponder<Raft>>) -> Result<(), io::Error> {
        let took = self.work.stopwatch();
        let mut working = Working::over(&self.rows);
        let mut chain = RunEntries::over(self.live.state());
        let mut members = members_of(&self.membership);
        let mut applied = self.applied;
        let mut membership = None;
        let mut ops = Vec::new();
        let mut events: Vec<Event> = Vec::new();
        let mut answers: Vec<(ApplyResponder<Raft>, Answers)> = Vec::new();
        let mut passed = Vec::new();
        while took() < RUN_TIME_MAX
            && let Some((entry, responder)) = run.pop_front()
        {
            let Entry { log_id, payload } = entry;
            if applied.is_some_and(|applied| applied.index >= log_id.index) {
                return Err(io::Error::other(format!("log entry {log_id} was applied before")));
            }
            let mut answer = Answers::default();
            match payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(payload) => {
                    let context = Context {
                        at: position(&log_id),
                        members: &members,
                        entries: &chain,
                    };
                    let done = apply_payload(&mut working, context, &payload)?;
                    answer.replies = done.replies;
                    events.extend(done.events);
                    ops.extend(done.entries.iter().map(|entry| {
                        let key = keys::number(entry.sequence).to_vec();
                        Op::Put(Space::Audit, key, machine::row::bytes(entry))
                    }));
                    chain.made.extend(done.entries);
                }
                EntryPayload::Membership(changed) => {
                    let changed = StoredMembership::new(Some(log_id), changed);
                    members = members_of(&changed);
                    membership = Some(changed);
                }
            }
            applied = Some(log_id);
            let chain = working.chain().map_err(io::Error::other)?;
            passed.push((log_id.index, chain.map_or([0; 32], |chain| chain.fingerprint())));
            answers.extend(responder.map(|responder| (responder, answer)));
        }
        let changes = working.into_changes();
        ops.extend(RowCache::ops(&changes));
        if let Some(applied) = &applied {
            ops.push(Op::Put(
                Space::StateMeta,
                keys::APPLIED.to_vec(),
                record::encode_log_id(applied),
            ));
        }
        if let Some(membership) = &membership {
            let bytes = record::encode_membership(membership);
            ops.push(Op::Put(Space::StateMeta, keys::MEMBERSHIP.to_vec(), bytes));
        }
        // Unsynced: the synced log brings the state forward again, and is not purged beyond what is durable.
        self.live.state().disk.write(&ops, Durability::Unsynced)?;
        self.rows.take_in(changes);
        self.applied = applied;
        if let Some(membership) = membership {
            self.membership = membership;
        }
        // First the progress: whoever has an answer finds what it says applied here.
        let progress = Progress::of(&self.rows, applied).map_err(io::Error::other)?;
        self.live.publish(applied, progress, passed, events);
        for (responder, answer) in answers {
            responder.send(answer);
        }
        Ok(())
    }

    async fn install(&mut self, data: SnapshotData) -> Result<(), StoreError> {
        let (home, stop_at) = (Arc::clone(&self.home), self.stop_install_at);
        let info = data.info().clone();
        let installed = self
            .work
            .run(move || snapshot::install(home.as_ref(), &data, stop_at))
            .await
            .map_err(StoreError::file("installing a snapshot"))?;
        let state = StateDisk::new(installed?);
        self.rows = RowCache::over(Arc::clone(&state), self.rows_max);
        check_version(&self.rows)?;
        self.applied = info.applied;
        self.taken = info.applied.max(self.taken);
        self.membership = info.membership;
        let progress =
            Progress::of(&self.rows, info.applied).map_err(|fault| StoreError::Damaged(fault.to_string()))?;
        self.live.replace(state, info.applied, progress);
        Ok(())
    }
}

impl RaftStateMachine<Raft> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Raft>, io::Error>> + Unpin + OptionalSend,
    {
        // The last run asks once more after the end, which not every stream bears.
        let mut entries = entries.fuse();
        let mut run: VecDeque<EntryResponder<Raft>> = VecDeque::new();
        loop {
            let mut bytes = run.iter().map(|(entry, _)| tail::size(entry)).sum();
            while run.len() < RUN_ENTRIES_MAX && bytes < RUN_BYTES_MAX {
                let Some(next) = entries.next().await else { break };
                let next = next?;
                bytes = tail::size(&next.0).saturating_add(bytes);
                run.push_back(next);
            }
            if run.is_empty() {
                return Ok(());
            }
            self.work.in_place(|| self.apply_run(&mut run))?;
            // Heartbeats are due while a long range is applied.
            tokio::task::yield_now().await;
        }
    }

    /// A snapshot that was built since openraft took one last; none otherwise, so that it never waits for a build nor
    /// ends with one. Forced is what a start asks for where the log was purged and the snapshot is gone.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        if force {
            return Some(self.get_snapshot_builder().await);
        }
        let current = self.home.snapshot()?;
        let newer = current.info().applied > self.taken;
        newer.then(|| {
            self.taken = current.info().applied;
            SnapshotBuilder::of(Ok(current))
        })
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let (live, home) = (Arc::clone(&self.live), Arc::clone(&self.home));
        let built = self.work.run(move || snapshot::build(&live, home.as_ref())).await;
        let built = built.map_err(StoreError::file("building a snapshot"));
        SnapshotBuilder::of(built.and_then(|built| built))
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        Ok(self.install(data).await?)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(self.home.snapshot().map(|data| Snapshot {
            meta: data.info().meta(),
            snapshot: data,
        }))
    }
}

fn position(log_id: &LogId) -> Position {
    Position {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

fn apply_payload(
    rows: &mut Working<'_, RowCache>,
    context: Context<'_>,
    payload: &Payload,
) -> Result<machine::Applied, io::Error> {
    let place = format!("log entry {}: ", context.at.index);
    let batch = payload
        .decode()
        .map_err(|error| io::Error::other(StoreError::Damaged(format!("{place}{error}"))))?;
    machine::apply(rows, context, &batch).map_err(|fault| io::Error::other(StoreError::of(fault, &place)))
}

/// Nothing is applied, or answered, under a version of the rules that this binary lacks.
fn check_version(rows: &RowCache) -> Result<(), StoreError> {
    let cluster = rows.cluster().map_err(|fault| StoreError::of(fault, ""))?;
    match cluster {
        Some(cluster) => machine::feature::check(cluster.version).map_err(|fault| StoreError::of(fault, "")),
        None => Ok(()),
    }
}

/// The Raft ids of the voters and learners, in ascending order.
fn members_of(membership: &StoredMembership) -> Vec<u64> {
    membership
        .nodes()
        .map(|(id, _)| *id)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The chain as a run finds it, and what the run has added.
struct RunEntries {
    state: Arc<StateDisk>,
    made: Vec<audit::Entry>,
}

impl RunEntries {
    fn over(state: Arc<StateDisk>) -> Self {
        Self {
            state,
            made: Vec::new(),
        }
    }
}

impl Entries for RunEntries {
    fn entries(&self, from: u64, to: u64) -> Result<Vec<audit::Entry>, Fault> {
        let fault = |error: &dyn fmt::Display| Fault::Storage(error.to_string());
        let (first, until) = (keys::number(from), keys::number(to.saturating_add(1)));
        let (mut found, mut broken) = (Vec::new(), None);
        let view = self.state.disk.view();
        let visit = view.visit(Space::Audit, &first, Some(&until), &mut |_, value| {
            match record::exact(value) {
                Ok(entry) => found.push(entry),
                Err(error) => broken = Some(fault(&error)),
            }
            broken.is_none()
        });
        visit.map_err(|error| fault(&error))?;
        found.extend(self.made.as_slice().entries(from, to)?);
        broken.map_or(Ok(found), Err)
    }
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine")
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}
