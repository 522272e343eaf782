//! A machine that is told steps, and what it promised: checked after every batch.

use std::collections::{BTreeMap, BTreeSet};

use audit::chain::follows;
use audit::{ChainHead, Entry, Kind};
use decision::{AgentId, Digest, NanoUsd, OrganizationId, SessionId, Timestamp, ToolName, Verdict};
use machine::command::{
    EndSession, Engage, GrantBudget, Init, Limit, Params, PostExec, PreExec, PutGuard, Register, Release,
    Seen, SessionAct, SetBudget,
};
use machine::reply::{Refusal, Reply};
use machine::table::{Account, Change, Key, Row, Session, Working};
use machine::{AccountId, Applied, Batch, Command, GuardScope, Position, Scope, VERSION, apply, check};

use crate::names::{AGENTS, agent_of, guards, operators, request, root};
use crate::step::{Call, Report, Step};

const SCOPES: [&str; 4] = ["global", "org/acme", "org/globex", "org/acme/agent/bot-1"];
/// Sessions that steps may name; more are not opened.
const SESSIONS_MAX: usize = 3;

type Rows = BTreeMap<Key, Row>;
type Checked = Result<(), String>;

#[derive(Default)]
pub struct World {
    pub rows: Rows,
    pub entries: Vec<Entry>,
    log: Vec<Batch>,
    now: u64,
    sessions: Vec<(SessionId, usize)>,
    head: Option<ChainHead>,
    /// Scopes that stand halted, as the chain says.
    halted: BTreeSet<String>,
    /// Nonces that were allowed.
    allowed: BTreeSet<(String, u64)>,
    /// What each call was charged by the chain, and which accounts its hold was taken from.
    charged: BTreeMap<(String, u64), NanoUsd>,
    paths: BTreeMap<(String, u64), Vec<AccountId>>,
}

impl World {
    /// A formed cluster with money for two organizations, under one of the guards.
    pub fn formed(guard: usize) -> Self {
        let mut world = Self {
            now: 1_000_000_000,
            ..Self::default()
        };
        let commands = vec![
            Command::Init(Init {
                chain_id: "chain".into(),
                by: root(),
                default_guard: guards(guard),
                unfunded_organizations: false,
                fixtures: false,
            }),
            Command::SetBudget(SetBudget {
                by: root(),
                account: "org/acme".parse().unwrap(),
                limit: Limit::Amount(NanoUsd::new(400)),
                request: request("formed-acme", ""),
                justification: String::new(),
            }),
            Command::SetBudget(SetBudget {
                by: root(),
                account: "org/globex".parse().unwrap(),
                limit: Limit::Unlimited,
                request: request("formed-globex", ""),
                justification: String::new(),
            }),
        ];
        world.commit(commands).unwrap();
        world
    }

    /// Applies steps as one batch, and checks everything.
    pub fn take(&mut self, steps: &[Step]) -> Checked {
        let mut commands = Vec::new();
        for step in steps {
            if let Step::Wait(seconds) = step {
                self.now += seconds * 1_000_000_000;
            } else if let Some(command) = self.command(step) {
                commands.push(command);
            }
        }
        self.commit(commands)
    }

    /// After everything, all that is due is done in the end: money is free of holds, and no session is left.
    pub fn wind_up(&mut self) -> Checked {
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
                | (Key::Nonces(..) | Key::Request(..) | Key::Due(..), _) => {
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
            entries.extend(run(&mut rows, place, batch).entries);
        }
        (rows, entries)
    }

    fn commit(&mut self, commands: Vec<Command>) -> Checked {
        let place = self.log.len();
        let batch = Batch {
            proposed: Timestamp::from_nanos(self.now),
            seed: u128::try_from(place).unwrap().to_be_bytes(),
            version: VERSION,
            commands,
        };
        let before = self.rows.clone();
        let applied = run(&mut self.rows, place, &batch);
        let checked = self.check(&before, &batch, &applied);
        self.log.push(batch);
        checked
    }

    fn check(&mut self, before: &Rows, batch: &Batch, applied: &Applied) -> Checked {
        let broken = check::broken(&self.rows);
        ensure(broken.is_empty(), || broken.join("; "))?;
        ensure(applied.replies.len() == batch.commands.len(), || {
            "an answer is missing".into()
        })?;
        for reply in &applied.replies {
            self.learn(reply);
        }
        self.check_chain(applied)?;
        self.check_money()?;
        // Of one command alone it is known what was before it.
        if let ([command], [reply]) = (batch.commands.as_slice(), applied.replies.as_slice()) {
            self.check_alone(before, command, reply)?;
        }
        self.entries.extend(applied.entries.iter().cloned());
        Ok(())
    }

    fn learn(&mut self, reply: &Reply) {
        let Reply::Registered(registered) = reply else {
            return;
        };
        if self.sessions.iter().any(|(id, _)| *id == registered.session) {
            return;
        }
        let Some(session) = session(&self.rows, &registered.session) else {
            return;
        };
        let owner = (session.organization.as_str(), session.agent.as_str());
        let agent = AGENTS.iter().position(|agent| *agent == owner).unwrap();
        let opened = (registered.session.clone(), agent);
        match self.free_place() {
            Some(place) if place < self.sessions.len() => self.sessions[place] = opened,
            Some(_) => self.sessions.push(opened),
            None => {}
        }
    }

    /// Where another session finds room: steps name few, and one that has ended makes room.
    fn free_place(&self) -> Option<usize> {
        let ended = |(id, _): &(SessionId, usize)| {
            session(&self.rows, id).is_none_or(|session| session.ended_at.is_some())
        };
        let room = (self.sessions.len() < SESSIONS_MAX).then_some(self.sessions.len());
        room.or_else(|| self.sessions.iter().position(ended))
    }

    /// Entries follow each other; a nonce is allowed once; what is halted is not allowed.
    fn check_chain(&mut self, applied: &Applied) -> Checked {
        let mut head = self.head.take().unwrap_or_else(|| ChainHead::empty("chain"));
        for entry in &applied.entries {
            ensure(follows(&head, entry), || {
                format!("entry {} does not follow", entry.sequence)
            })?;
            head = audit::link(&head, entry.clone()).head;
            let scope = entry.detail.split(' ').next().unwrap_or_default().to_owned();
            let call = (entry.session_id.clone(), entry.call_number);
            match entry.kind {
                Kind::HaltEngaged => drop(self.halted.insert(scope)),
                Kind::HaltReleased => drop(self.halted.remove(&scope)),
                Kind::Settlement | Kind::HoldExpired => {
                    let (_, after) = entry.detail.split_once("charged ").unwrap();
                    let amount = after.split(' ').next().unwrap();
                    self.charged.insert(call, amount.parse().unwrap());
                }
                Kind::Verdict if entry.verdict == Some(Verdict::Allow) => {
                    ensure(!self.is_halted(entry), || {
                        format!("entry {} is halted", entry.sequence)
                    })?;
                    let nonce = (entry.session_id.clone(), entry.nonce.unwrap());
                    ensure(self.allowed.insert(nonce), || {
                        format!("the nonce of entry {} was allowed before", entry.sequence)
                    })?;
                }
                _ => {}
            }
        }
        self.head = Some(head);
        Ok(())
    }

    fn is_halted(&self, entry: &Entry) -> bool {
        let (organization, agent) = (&entry.organization_id, &entry.agent_id);
        [
            "global".to_owned(),
            format!("org/{organization}"),
            format!("org/{organization}/agent/{agent}"),
            format!("session/{}", entry.session_id),
        ]
        .iter()
        .any(|scope| self.halted.contains(scope))
    }

    /// What each account has spent is the sum of what its calls were charged, as the chain says.
    fn check_money(&mut self) -> Checked {
        for (key, row) in &self.rows {
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
        for (key, row) in &self.rows {
            let (Key::Account(id), Row::Account(account)) = (key, row) else {
                continue;
            };
            // What parts have charged of a hold that is still open is in the chain as well.
            let sum = spent.get(id).copied().unwrap_or_default();
            ensure(sum == i128::from(account.spent.nanos()), || {
                format!(
                    "{id} has spent {}, its calls were charged {sum} nano",
                    account.spent
                )
            })?;
        }
        Ok(())
    }

    fn check_alone(&self, before: &Rows, command: &Command, reply: &Reply) -> Checked {
        match (command, reply) {
            (Command::Seen(_) | Command::Init(_), _) => Ok(()),
            (_, Reply::Refused(Refusal::NotInitialized)) => Ok(()),
            (_, Reply::Refused(_)) => self.check_untouched(before, command),
            (Command::PreExec(call), Reply::Verdict(answer)) => {
                if answer.replayed {
                    self.check_untouched(before, command)?;
                }
                if answer.verdict != Verdict::Allow {
                    return Ok(());
                }
                let session = session(before, &call.session).ok_or("allowed in no session")?;
                ensure(session.trip.is_none(), || "allowed though tripped".into())?;
                let entry = Entry {
                    session_id: call.session.to_string(),
                    organization_id: session.organization.to_string(),
                    agent_id: session.agent.to_string(),
                    ..Entry::blank(Kind::Verdict, Timestamp::ZERO)
                };
                ensure(!self.is_halted(&entry), || {
                    "an ALLOW was told though halted".into()
                })?;
                if answer.replayed {
                    Ok(())
                } else {
                    self.check_borne(before, call)
                }
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

    /// At an ALLOW every account of the path had room for the hold.
    fn check_borne(&self, before: &Rows, call: &PreExec) -> Checked {
        let Some(Row::Hold(hold)) = self.rows.get(&Key::Hold(call.session.clone(), call.call_number)) else {
            return Err("allowed without a hold".into());
        };
        for id in &hold.accounts {
            let Some(Row::Account(account)) = before.get(&Key::Account(id.clone())) else {
                return Err(format!("{id} is held from, and does not exist"));
            };
            let room =
                Account::available(account).is_none_or(|left| left >= hold.amount && left > NanoUsd::ZERO);
            ensure(room, || format!("{id} could not bear {}", hold.amount))?;
        }
        Ok(())
    }

    fn command(&self, step: &Step) -> Option<Command> {
        Some(match step {
            Step::Wait(_) => return None,
            Step::Due => Command::Due,
            Step::Again(back) => {
                let sent = || self.log.iter().skip(1).flat_map(|batch| &batch.commands);
                let place = sent().count().checked_sub(back + 1)?;
                sent().nth(place)?.clone()
            }
            Step::Register {
                agent,
                resume,
                request: id,
            } => {
                if resume.is_none() && self.free_place().is_none() {
                    return None;
                }
                let resume = match resume {
                    Some(place) => Some(self.sessions.get(*place)?.0.clone()),
                    None => None,
                };
                let (organization, name) = AGENTS[*agent];
                Command::Register(Register {
                    by: agent_of(*agent),
                    organization: OrganizationId::parse(organization).unwrap(),
                    agent: AgentId::parse(name).unwrap(),
                    request: id.map(|id| request(&format!("r{id}"), &format!("register {resume:?}"))),
                    resume,
                    metadata: BTreeMap::new(),
                    guard: None,
                })
            }
            Step::Call(call) => Command::PreExec(self.pre_exec(call)?),
            Step::Report(report) => Command::PostExec(self.post_exec(report)?),
            Step::Seen(place) => Command::Seen(Seen {
                sessions: vec![self.sessions.get(*place)?.0.clone()],
            }),
            Step::End(place) => {
                let (session, agent) = self.sessions.get(*place)?.clone();
                Command::EndSession(EndSession {
                    by: agent_of(agent),
                    session,
                })
            }
            Step::Budget {
                account,
                limit,
                request: id,
            } => {
                let limit = match limit {
                    0 => Limit::Suspended,
                    1 => Limit::Unlimited,
                    amount => Limit::Amount(NanoUsd::new(i64::from(*amount) * 3)),
                };
                let account = self.account(*account)?;
                let request = operators(*id, &format!("{account} {limit:?}"));
                Command::SetBudget(SetBudget {
                    by: root(),
                    account,
                    limit,
                    request,
                    justification: String::new(),
                })
            }
            Step::Grant {
                account,
                amount,
                request: id,
            } => {
                let account = self.account(*account)?;
                let request = operators(*id, &format!("grant {account} {amount}"));
                let amount = NanoUsd::new(*amount);
                Command::GrantBudget(GrantBudget {
                    by: root(),
                    account,
                    amount,
                    request,
                    justification: String::new(),
                })
            }
            Step::Guard {
                scope,
                guard,
                request: id,
            } => {
                let scope: GuardScope = ["default", "org/acme", "org/acme/agent/bot-1"][*scope]
                    .parse()
                    .unwrap();
                let request = operators(*id, &format!("{scope} {guard}"));
                Command::PutGuard(PutGuard {
                    by: root(),
                    scope,
                    guard: guards(*guard),
                    request,
                    justification: String::new(),
                })
            }
            Step::Engage { scope, request: id } => {
                let scope = self.scope(*scope)?;
                Command::Engage(Engage {
                    by: root(),
                    request: operators(*id, &format!("engage {scope}")),
                    scope,
                    reason: "stop".into(),
                    ticket: String::new(),
                    mode: machine::table::HaltMode::Halt,
                    ttl: None,
                    two_person: false,
                })
            }
            Step::Release { scope, request: id } => {
                let scope = self.scope(*scope)?;
                Command::Release(Release {
                    by: root(),
                    request: operators(*id, &format!("release {scope}")),
                    scope,
                    justification: "go".into(),
                    ticket: String::new(),
                })
            }
            Step::Act {
                session,
                act,
                request: id,
            } => Command::Session(SessionAct {
                by: root(),
                session: self.sessions.get(*session)?.0.clone(),
                act: *act,
                justification: "so".into(),
                request: operators(*id, &format!("{act:?} {session}")),
            }),
        })
    }

    fn pre_exec(&self, call: &Call) -> Option<PreExec> {
        let (session, agent) = self.sessions.get(call.session)?.clone();
        let agent = if call.stranger {
            (agent + 1) % AGENTS.len()
        } else {
            agent
        };
        let digest = (!call.malformed).then(|| Digest::of(&[call.digest]));
        Some(PreExec {
            by: agent_of(agent),
            session,
            call_number: call.number,
            tool: ToolName::parse(&format!("tool-{}", call.tool)).unwrap(),
            digest,
            params: if call.malformed {
                Params::Malformed
            } else {
                Params::Clear
            },
            estimate: call.cost.map(NanoUsd::new),
            nonce: call.nonce,
            request: call.request.map(|id| {
                let Call {
                    number,
                    nonce,
                    tool,
                    cost,
                    ..
                } = call;
                request(
                    &format!("r{id}"),
                    &format!("call {number} {nonce} {tool} {digest:?} {cost:?}"),
                )
            }),
            parent_guard: None,
            approval: None,
            numbers: Vec::new(),
            rules: None,
        })
    }

    fn post_exec(&self, report: &Report) -> Option<PostExec> {
        let (session, agent) = self.sessions.get(report.session)?.clone();
        Some(PostExec {
            by: agent_of(agent),
            session,
            call_number: report.number,
            actual: report.cost.map(NanoUsd::new),
            success: report.success,
            error_signal: false,
            partial: report.partial,
            request: report.request.map(|id| {
                let Report {
                    number,
                    cost,
                    success,
                    partial,
                    ..
                } = report;
                request(
                    &format!("p{id}"),
                    &format!("report {number} {cost:?} {success} {partial}"),
                )
            }),
            tokens_in: 0,
            tokens_out: 0,
            model: None,
            result: None,
        })
    }

    /// Two organizations, an agent, and the sessions there are.
    fn account(&self, place: usize) -> Option<AccountId> {
        match ["org/acme", "org/globex", "org/acme/agent/bot-1"].get(place) {
            Some(account) => Some(account.parse().unwrap()),
            None => Some(AccountId::Session(self.sessions.get(place - 3)?.0.clone())),
        }
    }

    fn scope(&self, place: usize) -> Option<Scope> {
        match SCOPES.get(place) {
            Some(scope) => Some(scope.parse().unwrap()),
            None => Some(Scope::Session(self.sessions.get(place - SCOPES.len())?.0.clone())),
        }
    }
}

fn run(rows: &mut Rows, place: usize, batch: &Batch) -> Applied {
    let at = Position {
        term: 1,
        index: u64::try_from(place).unwrap() + 1,
    };
    let mut working = Working::over(rows);
    let applied = apply(&mut working, at, batch).unwrap();
    for change in working.into_changes() {
        match change {
            Change::Put(key, row) => rows.insert(key, row),
            Change::Delete(key) => rows.remove(&key),
        };
    }
    applied
}

fn session<'a>(rows: &'a Rows, id: &SessionId) -> Option<&'a Session> {
    match rows.get(&Key::Session(id.clone())) {
        Some(Row::Session(session)) => Some(session),
        _ => None,
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}
