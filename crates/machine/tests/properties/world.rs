//! A machine that is told steps; what it promised is checked after every batch.

use audit::Entry;
use decision::{NanoUsd, SessionId};
use machine::command::{Act, SessionAct};
use machine::reply::{Refusal, Reply};
use machine::row::{Key, Row, Session};
use machine::{AccountId, Applied, Batch, Command, Scope, check};

use super::cast::{Cast, Rows, batch, run};
use super::names::{request, root};
use super::promises::{Checked, Promises, ensure};
use super::step::Step;

#[derive(Default)]
pub struct World {
    pub rows: Rows,
    pub entries: Vec<Entry>,
    log: Vec<Batch>,
    now: u64,
    cast: Cast,
    promises: Promises,
}

impl World {
    /// A formed cluster, under one of the guards.
    pub fn formed(guard: usize) -> Self {
        let mut world = Self {
            now: 1_000_000_000,
            ..Self::default()
        };
        world.commit(Cast::form(guard)).unwrap();
        world
    }

    /// Applies steps as one batch, and checks everything.
    pub fn take(&mut self, steps: &[Step]) -> Checked {
        let commands = self
            .cast
            .commands(&self.rows, &self.entries, &mut self.now, steps);
        self.commit(commands)
    }

    /// After everything, all that is due is done in the end: money is free of holds, and no session is left.
    pub fn wind_up(&mut self) -> Checked {
        // The benchmark's sessions do not end by themselves.
        let going_on = |(key, row): (&Key, &Row)| match (key, row) {
            (Key::Session(id), Row::Session(session)) if session.ended_at.is_none() => Some(id.clone()),
            _ => None,
        };
        let sessions: Vec<_> = self.rows.iter().filter_map(going_on).collect();
        for session in sessions {
            let request = request(&format!("end-{session}"), "");
            self.commit(vec![Command::Session(SessionAct {
                by: root(),
                session,
                act: Act::Terminate,
                justification: String::new(),
                request,
            })])?;
        }
        for _ in 0..12 {
            self.now += 25 * 3_600 * 1_000_000_000;
            self.commit(vec![Command::Due])?;
        }
        for (key, row) in &self.rows {
            match (key, row) {
                (Key::Account(id), Row::Account(account)) if account.held != NanoUsd::ZERO => {
                    return Err(format!("{id} still holds {}", account.held));
                }
                (Key::Account(AccountId::Session(_)) | Key::Halt(Scope::Session(_)), _)
                | (Key::Session(_) | Key::SessionOf(..) | Key::Call(..) | Key::Hold(..), _)
                | (Key::Nonces(..) | Key::Request(..) | Key::Due(..) | Key::Tally(_), _)
                | (Key::Approval(_) | Key::ApprovalOf(..), _) => {
                    return Err(format!("{key:?} is left"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The log applied again from nothing.
    pub fn replayed(&self) -> (Rows, Vec<Entry>) {
        let (mut rows, mut entries) = (Rows::new(), Vec::new());
        for (place, batch) in self.log.iter().enumerate() {
            let made = run(&mut rows, &entries, place, batch).entries;
            entries.extend(made);
        }
        (rows, entries)
    }

    fn commit(&mut self, commands: Vec<Command>) -> Checked {
        let batch = batch(self.log.len(), self.now, commands);
        let before = self.rows.clone();
        let applied = run(&mut self.rows, &self.entries, self.log.len(), &batch);
        let checked = self.check(&before, &batch, &applied);
        for (command, reply) in batch.commands.iter().zip(&applied.replies) {
            self.cast.learn(&self.rows, command, reply);
        }
        self.entries.extend(applied.entries);
        self.log.push(batch);
        checked
    }

    fn check(&mut self, before: &Rows, batch: &Batch, applied: &Applied) -> Checked {
        let broken = check::broken(&self.rows);
        ensure(broken.is_empty(), || broken.join("; "))?;
        ensure(applied.replies.len() == batch.commands.len(), || {
            "an answer is missing".into()
        })?;
        self.promises.check(before, &self.rows, batch, applied)?;
        // Of one command alone it is known what was before it.
        if let ([command], [reply]) = (batch.commands.as_slice(), applied.replies.as_slice()) {
            self.check_alone(before, command, reply)?;
        }
        Ok(())
    }

    fn check_alone(&self, before: &Rows, command: &Command, reply: &Reply) -> Checked {
        match (command, reply) {
            (_, Reply::Refused(Refusal::NotInitialized)) => Ok(()),
            (_, Reply::Refused(_) | Reply::Reevaluate(_)) => self.check_untouched(before, command),
            (Command::PreExec(_), Reply::Verdict(answer)) if answer.replayed => {
                self.check_untouched(before, command)
            }
            (Command::PreExec(call), Reply::Verdict(answer)) => {
                self.promises.check_borne(before, &self.rows, call, answer)
            }
            _ => Ok(()),
        }
    }

    /// An answer that was given before, or a refusal, leaves everything but time and chain as it was.
    fn check_untouched(&self, before: &Rows, command: &Command) -> Checked {
        let still = |rows: &Rows| -> Rows {
            let own = |key: &Key| !matches!(key, Key::Cluster | Key::Chain);
            rows.iter()
                .filter(|(key, _)| own(key))
                .map(|(key, row)| (key.clone(), row.clone()))
                .collect()
        };
        ensure(still(before) == still(&self.rows), || {
            format!("{command:?} changed something")
        })
    }
}

pub fn session<'a>(rows: &'a Rows, id: &SessionId) -> Option<&'a Session> {
    match rows.get(&Key::Session(id.clone())) {
        Some(Row::Session(session)) => Some(session),
        _ => None,
    }
}
