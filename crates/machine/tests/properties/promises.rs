//! What was promised, as the chain and the answers say it: nothing of it is read from what is checked.

use std::collections::{BTreeMap, BTreeSet};

use audit::chain::follows;
use audit::{ChainHead, Detail, Entry, Kind};
use decision::{HaltMode, NanoUsd, Reason, SessionId, Verdict};
use machine::command::PreExec;
use machine::reply::{Reply, VerdictReply};
use machine::row::{Account, Approval, Key, Row};
use machine::{AccountId, Applied, Batch, BudgetScope, Command, GuardPath};

use super::cast::Rows;
use super::world::session;

pub type Checked = Result<(), String>;

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// A call of a session, by its number.
type Called = (String, u64);

#[derive(Default)]
pub struct Promises {
    head: Option<ChainHead>,
    /// Scopes that stand stopped, and how hard.
    stopped: BTreeMap<String, HaltMode>,
    /// Nonces of each session that were allowed.
    allowed: BTreeSet<(String, u64)>,
    /// Nonces of calls that never run.
    dead: BTreeSet<(String, u64)>,
    asked: BTreeMap<String, Asked>,
    redeemed: BTreeSet<Called>,
    /// What each call was charged, and which accounts its hold was taken from.
    charged: BTreeMap<Called, NanoUsd>,
    paths: BTreeMap<Called, Vec<AccountId>>,
    /// What else was booked: corrections, and what a session of the benchmark was loaded with.
    booked: BTreeMap<AccountId, i128>,
}

/// A question to people.
struct Asked {
    session: String,
    nonce: u64,
    arguments: Vec<u8>,
    tool: String,
    said: Said,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Approve,
    Modify,
    /// Nothing can become of it any more.
    Over,
}

impl Promises {
    /// Follows the chain through one batch, and checks what was told.
    pub fn check(&mut self, before: &Rows, rows: &Rows, batch: &Batch, applied: &Applied) -> Checked {
        let stopped = self.stopped.clone();
        self.book(before, batch, applied);
        let guards_stay = applied.entries.iter().all(|entry| entry.kind != Kind::GuardPut);
        for entry in &applied.entries {
            self.follow(entry)?;
            let scopes = scopes(rows, entry, guards_stay);
            self.check_entry(rows, entry, &scopes)
                .map_err(|what| format!("entry {} ({}): {what}", entry.sequence, entry.kind))?;
        }
        for reply in &applied.replies {
            if let Reply::Verdict(answer) = reply
                && answer.verdict == Verdict::Allow
            {
                self.check_told(before, &stopped, applied, answer)?;
            }
        }
        self.check_money(rows)
    }

    fn follow(&mut self, entry: &Entry) -> Checked {
        let head = self.head.take().unwrap_or_else(|| ChainHead::empty("chain"));
        let follows = follows(&head, entry);
        self.head = Some(audit::link(&head, entry.clone()).head);
        ensure(follows, || format!("entry {} does not follow", entry.sequence))
    }

    fn check_entry(&mut self, rows: &Rows, entry: &Entry, scopes: &[String]) -> Checked {
        let said = Detail::of(entry).unwrap();
        let called = (entry.session_id.clone(), entry.call_number);
        match entry.kind {
            Kind::HaltEngaged | Kind::HaltReleased | Kind::HaltExpired => match said {
                Detail::Engaged { scope, mode, .. } => {
                    let stands = self.stopped.entry(scope).or_insert(mode);
                    *stands = mode.max(*stands);
                }
                Detail::Lifted { scope, .. } => drop(self.stopped.remove(&scope)),
                other => return Err(format!("{other:?}")),
            },
            Kind::Settlement | Kind::HoldExpired => match said {
                Detail::Settled { charged, .. } | Detail::Expired { charged, .. } => {
                    self.charged.insert(called, charged);
                }
                other => return Err(format!("{other:?}")),
            },
            Kind::SessionRegistered => {
                let drained = self.stops(scopes, HaltMode::Drain);
                ensure(drained != Some(HaltMode::Drain), || {
                    "opened though drained".into()
                })?;
            }
            Kind::SessionUnpaused | Kind::SessionEnded => self.cancel(&entry.session_id),
            Kind::ApprovalExpired => self.finish(&entry.approval_id),
            Kind::ApprovalDecided => match entry.reason.as_str() {
                "approve" => self.decide(&entry.approval_id, Said::Approve),
                "modify" => self.decide(&entry.approval_id, Said::Modify),
                "reject" => self.finish(&entry.approval_id),
                _ => {}
            },
            Kind::TicketRedeemed if entry.reason == "redeemed" => {
                let stopped = self.stops(scopes, HaltMode::Pause);
                ensure(stopped.is_none(), || "redeemed though stopped".into())?;
                ensure(self.redeemed.insert(called), || "redeemed twice".into())?;
            }
            Kind::Verdict => self.check_verdict(rows, entry, scopes)?,
            _ => {}
        }
        Ok(())
    }

    fn check_verdict(&mut self, rows: &Rows, entry: &Entry, scopes: &[String]) -> Checked {
        let nonce = (entry.session_id.clone(), entry.nonce.unwrap());
        match entry.verdict {
            Some(Verdict::Allow) => {}
            Some(Verdict::Hitl) => {
                self.asked.entry(entry.approval_id.clone()).or_insert(Asked {
                    session: entry.session_id.clone(),
                    nonce: nonce.1,
                    arguments: entry.tool_params_hash.clone(),
                    tool: entry.tool_name.clone(),
                    said: Said::Nothing,
                });
                return Ok(());
            }
            Some(Verdict::Deny) | None => return Ok(()),
        }
        ensure(self.stops(scopes, HaltMode::Pause).is_none(), || {
            "allowed though stopped".into()
        })?;
        ensure(!self.dead.contains(&nonce), || "its nonce never runs".into())?;
        ensure(self.allowed.insert(nonce), || {
            "its nonce was allowed before".into()
        })?;
        if entry.approval_id.is_empty() {
            return Ok(());
        }
        self.check_release(rows, entry)
    }

    /// An approval releases what was decided, once, in its time.
    fn check_release(&mut self, rows: &Rows, entry: &Entry) -> Checked {
        let id = &entry.approval_id;
        let asked = self.asked.get(id).ok_or("released by what nobody was asked")?;
        let key = Key::Approval(decision::ApprovalId::parse(id).unwrap());
        let Some(Row::Approval(approval)) = rows.get(&key) else {
            return Err("released by an approval that is not there".into());
        };
        let approval: &Approval = approval;
        ensure(entry.timestamp < approval.expires_at, || {
            "released after its time".into()
        })?;
        ensure(
            entry.tool_name == asked.tool && entry.session_id == asked.session,
            || "released another tool, or in another session".into(),
        )?;
        let same = entry.nonce == Some(asked.nonce) && entry.tool_params_hash == asked.arguments;
        match (asked.said, &approval.successor) {
            (Said::Approve, None) => ensure(same, || "released what was not asked about".into())?,
            (Said::Modify, Some(next)) => {
                ensure(entry.nonce != Some(asked.nonce), || {
                    "the modified original runs".into()
                })?;
                let is_next = entry.nonce == Some(next.nonce)
                    && entry.tool_params_hash == next.digest.as_bytes().as_slice();
                ensure(is_next, || "released another successor".into())?;
            }
            (said, _) => return Err(format!("released, and what was said is {said:?}")),
        }
        // The successor ran: the original never does.
        self.finish(id);
        Ok(())
    }

    fn decide(&mut self, id: &str, said: Said) {
        if let Some(asked) = self.asked.get_mut(id).filter(|asked| asked.said == Said::Nothing) {
            asked.said = said;
        }
    }

    /// It is over: its call never runs, unless it just did.
    fn finish(&mut self, id: &str) {
        if let Some(asked) = self.asked.get_mut(id) {
            asked.said = Said::Over;
            self.dead.insert((asked.session.clone(), asked.nonce));
        }
    }

    fn cancel(&mut self, session: &str) {
        let open = |(_, asked): &(&String, &Asked)| asked.session == session && asked.said != Said::Over;
        let ids: Vec<_> = self.asked.iter().filter(open).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.finish(&id);
        }
    }

    /// The mode of a stop above, of those that are at least so hard; a drain is asked for alone.
    fn stops(&self, scopes: &[String], least: HaltMode) -> Option<HaltMode> {
        let mut modes = scopes.iter().filter_map(|scope| self.stopped.get(scope));
        if least == HaltMode::Drain {
            return modes.find(|mode| **mode == HaltMode::Drain).copied();
        }
        modes.find(|mode| **mode >= least).copied()
    }

    /// Whatever the answer is made of, new or remembered: it is no ALLOW in a session that was tripped, or below
    /// what was stopped, all the time.
    fn check_told(
        &self,
        before: &Rows,
        stopped: &BTreeMap<String, HaltMode>,
        applied: &Applied,
        answer: &VerdictReply,
    ) -> Checked {
        let Some(old) = session(before, &answer.session) else {
            return Ok(());
        };
        let reset = applied
            .entries
            .iter()
            .any(|entry| entry.kind == Kind::CircuitReset && entry.session_id == answer.session.as_str());
        ensure(old.trip.is_none() || reset, || {
            "an ALLOW was told though tripped".into()
        })?;
        let entry = Entry {
            session_id: answer.session.to_string(),
            organization_id: old.organization.to_string(),
            agent_id: old.agent.to_string(),
            ..Entry::blank(Kind::Verdict, answer.place.time)
        };
        let guards_stay = applied.entries.iter().all(|entry| entry.kind != Kind::GuardPut);
        let still = |scope: &String| {
            let stood = stopped.get(scope).is_some_and(|mode| *mode > HaltMode::Drain);
            let lifted = |entry: &&Entry| matches!(entry.kind, Kind::HaltReleased | Kind::HaltExpired);
            let lifts = applied.entries.iter().filter(lifted);
            let mut lifted = lifts.map(|entry| Detail::of(entry).unwrap());
            stood && !lifted.any(|said| matches!(said, Detail::Lifted { scope: of, .. } if of == *scope))
        };
        let scope = scopes(before, &entry, guards_stay).into_iter().find(still);
        ensure(scope.is_none(), || {
            format!("an ALLOW was told though {scope:?} is stopped")
        })
    }

    /// Notes what is booked otherwise than by calls.
    fn book(&mut self, before: &Rows, batch: &Batch, applied: &Applied) {
        let head = self.head.as_ref().map_or(0, |head| head.sequence);
        for (command, reply) in batch.commands.iter().zip(&applied.replies) {
            match (command, reply) {
                // A remembered answer books nothing again; within a batch, one answer counts once.
                (Command::Correct(correct), Reply::Account(_, place)) if place.sequence > head => {
                    let entry = applied
                        .entries
                        .iter()
                        .find(|entry| entry.sequence == place.sequence);
                    if entry.is_some_and(|entry| entry.request_id == correct.request.id.as_str())
                        && self.corrected(place.sequence)
                    {
                        *self.booked.entry(correct.account.clone()).or_default() +=
                            i128::from(correct.amount.nanos());
                    }
                }
                (Command::Fixture(fixture), Reply::Done(_)) => {
                    for load in &fixture.sessions {
                        if session(before, &load.session).is_none() {
                            let account = AccountId::Session(load.session.clone());
                            // Of two in one batch the first is loaded.
                            let spent = i128::from(load.spent.nanos());
                            self.booked.entry(account).or_insert(spent);
                        }
                        for nonce in &load.nonces {
                            self.dead.insert((load.session.to_string(), *nonce));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Says whether the correction of this entry was not counted yet.
    fn corrected(&mut self, sequence: u64) -> bool {
        self.redeemed.insert((String::from("correction"), sequence))
    }

    /// What each account has spent is the sum of what its calls were charged, as the chain says.
    fn check_money(&mut self, rows: &Rows) -> Checked {
        for (key, row) in rows {
            if let (Key::Hold(id, number), Row::Hold(hold)) = (key, row) {
                let call = (id.as_str().to_owned(), *number);
                self.paths.insert(call, hold.accounts.clone());
            }
        }
        let mut spent = BTreeMap::<&AccountId, i128>::new();
        for (call, charged) in &self.charged {
            // A call that was allowed and settled in one batch was never seen with its hold.
            let Some(path) = self.paths.get(call) else {
                return Ok(());
            };
            for account in path {
                *spent.entry(account).or_default() += i128::from(charged.nanos());
            }
        }
        for (key, row) in rows {
            let (Key::Account(id), Row::Account(account)) = (key, row) else {
                continue;
            };
            // What parts have charged of a hold that is still open is in the chain as well.
            let sum =
                spent.get(id).copied().unwrap_or_default() + self.booked.get(id).copied().unwrap_or_default();
            ensure(sum == i128::from(account.spent.nanos()), || {
                format!(
                    "{id} has spent {}, its calls were charged {sum} nano",
                    account.spent
                )
            })?;
        }
        Ok(())
    }

    /// At an ALLOW every account of the path had room for the hold: but the session's own at a release, and those
    /// that are only observed.
    pub fn check_borne(&self, before: &Rows, rows: &Rows, call: &PreExec, answer: &VerdictReply) -> Checked {
        if answer.verdict != Verdict::Allow {
            return Ok(());
        }
        let Some(Row::Hold(hold)) = rows.get(&Key::Hold(call.session.clone(), call.call_number)) else {
            return Err("allowed without a hold".into());
        };
        let leash = GuardPath::of(
            before,
            session(before, &call.session).ok_or("allowed in no session")?,
        )
        .unwrap();
        let own = own_account(&leash, before, &call.session);
        let released = matches!(answer.reason, Reason::Approved | Reason::ModifiedSuccessor);
        let observed = leash.enforced().is_some();
        for id in &hold.accounts {
            let Some(Row::Account(account)) = before.get(&Key::Account(id.clone())) else {
                return Err(format!("{id} is held from, and does not exist"));
            };
            let is_own = Some(id) == own.as_ref();
            let excepted = is_own && (released || observed) || observed && matches!(id, AccountId::Guard(..));
            let room =
                Account::available(account).is_none_or(|left| left >= hold.amount && left > NanoUsd::ZERO);
            ensure(room || excepted, || {
                format!("{id} could not bear {}", hold.amount)
            })?;
        }
        Ok(())
    }
}

fn own_account(leash: &GuardPath, rows: &Rows, id: &SessionId) -> Option<AccountId> {
    let session = session(rows, id)?;
    let organization = session.organization.clone();
    Some(match leash.effective().budget_scope {
        BudgetScope::Session => AccountId::Session(id.clone()),
        BudgetScope::Agent => AccountId::Agent(organization, session.agent.clone()),
        BudgetScope::Organization => AccountId::Organization(organization),
    })
}

/// The scopes above the session of an entry; those of guards only where they did not change meanwhile.
fn scopes(rows: &Rows, entry: &Entry, guards_stay: bool) -> Vec<String> {
    let (organization, agent) = (&entry.organization_id, &entry.agent_id);
    let mut scopes = vec![
        "global".to_owned(),
        format!("org/{organization}"),
        format!("org/{organization}/agent/{agent}"),
        format!("session/{}", entry.session_id),
    ];
    let there = SessionId::parse(&entry.session_id)
        .ok()
        .and_then(|id| session(rows, &id));
    if let (Some(session), true) = (there, guards_stay) {
        let leash = GuardPath::of(rows, session).unwrap();
        scopes.extend(
            leash
                .named()
                .map(|(id, _)| format!("org/{organization}/guard/{id}")),
        );
    }
    scopes
}
