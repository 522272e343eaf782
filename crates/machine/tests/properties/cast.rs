//! What there is to be named, and the command that a step is among it.

use std::collections::BTreeMap;

use audit::Signer;
use decision::{
    AgentId, ApprovalId, Digest, DurationNs, NanoUsd, OrganizationId, SessionId, Timestamp, ToolName,
};
use machine::command::{
    Correct, EndSession, Engage, Fixture, GrantBudget, Init, Limit, Members, Params, PostExec, PreExec,
    PutGuard, Redeem, RefusedAtEdge, Register, RegisterKey, Release, Seen, SessionAct, SetBudget,
};
use machine::reply::Reply;
use machine::row::Approval;
use machine::row::{Key, Read as _, Row};
use machine::{AccountId, Applied, Batch, Command, GuardScope, Position, Scope, VERSION, apply};
use machine::{Change, Working};

use super::found::{approval_at, facts, fixture, hold_at, person_about, seal, stopped, used};
use super::names::{
    ACCOUNTS, AGENTS, GUARD_SCOPES, SCOPES, agent_of, digest, guard_at, guards, operators, person, request,
    root,
};
use super::step::{Call, Report, SESSIONS, Step};

pub type Rows = BTreeMap<Key, Row>;

/// The sessions that steps may name, and the commands that may come again.
#[derive(Default)]
pub struct Cast {
    sessions: Vec<(SessionId, usize)>,
    sent: Vec<Command>,
}

/// Commands that may come again.
const SENT_MAX: usize = 64;

impl Cast {
    /// The commands that form a cluster with money for two organizations and a tree of guards, under one guard.
    pub fn form(guard: usize) -> Vec<Command> {
        let fund = |account: &str, limit| {
            Command::SetBudget(SetBudget {
                by: root(),
                account: account.parse().unwrap(),
                limit,
                request: request(&format!("formed-{account}"), ""),
                justification: String::new(),
            })
        };
        let put = |scope: &str, place| {
            let scope: GuardScope = scope.parse().unwrap();
            Command::PutGuard(PutGuard {
                by: root(),
                guard: guard_at(&scope, place),
                request: request(&format!("formed-{scope}"), ""),
                scope,
                justification: String::new(),
            })
        };
        let open = |agent: usize, guard: Option<&str>| {
            let (organization, name) = AGENTS[agent];
            Command::Register(Register {
                by: agent_of(agent),
                organization: OrganizationId::parse(organization).unwrap(),
                agent: AgentId::parse(name).unwrap(),
                resume: None,
                request: None,
                metadata: BTreeMap::new(),
                guard: guard.map(|id| decision::GuardId::parse(id).unwrap()),
            })
        };
        vec![
            Command::Init(Init {
                chain_id: "chain".into(),
                by: root(),
                default_guard: guards(guard),
                unfunded_organizations: false,
                fixtures: true,
            }),
            fund("org/acme", Limit::Amount(NanoUsd::new(400))),
            fund("org/globex", Limit::Unlimited),
            put("org/acme/guard/team", 10),
            put("org/acme/guard/left", 10),
            open(0, Some("left")),
            open(1, None),
            open(2, None),
        ]
    }

    /// Takes in what was sent, and the sessions that were opened.
    pub fn learn(&mut self, rows: &Rows, command: &Command, reply: &Reply) {
        // A session's id comes to nobody again, but for the benchmark's.
        if !matches!(command, Command::Fixture(_)) {
            self.sent.push(command.clone());
        }
        if self.sent.len() > SENT_MAX {
            self.sent.remove(0);
        }
        let opened: Vec<SessionId> = match (command, reply) {
            (_, Reply::Registered(registered)) => vec![registered.session.clone()],
            (Command::Fixture(fixture), Reply::Done(_)) => {
                fixture.sessions.iter().map(|load| load.session.clone()).collect()
            }
            _ => Vec::new(),
        };
        for id in opened {
            self.learn_session(rows, id);
        }
    }

    fn learn_session(&mut self, rows: &Rows, id: SessionId) {
        if self.sessions.iter().any(|(known, _)| *known == id) {
            return;
        }
        let Some(session) = rows.session(&id).unwrap() else {
            return;
        };
        let owner = (session.organization.as_str(), session.agent.as_str());
        let agent = AGENTS.iter().position(|agent| *agent == owner).unwrap();
        match self.free_place(rows) {
            Some(place) if place < self.sessions.len() => self.sessions[place] = (id, agent),
            Some(_) => self.sessions.push((id, agent)),
            None => {}
        }
    }

    /// Where another session finds room: steps name few, and one that has ended makes room.
    fn free_place(&self, rows: &Rows) -> Option<usize> {
        let ended = |(id, _): &(SessionId, usize)| {
            rows.session(id)
                .unwrap()
                .is_none_or(|session| session.ended_at.is_some())
        };
        let room = (self.sessions.len() < SESSIONS).then_some(self.sessions.len());
        self.sessions.iter().position(ended).or(room)
    }

    /// The commands of some steps, which travel together; waiting moves the clock.
    pub fn commands(&self, rows: &Rows, now: &mut u64, steps: &[Step]) -> Vec<Command> {
        let mut commands = Vec::new();
        for step in steps {
            if let Step::Wait(seconds) = step {
                *now += seconds * 1_000_000_000;
            } else {
                commands.extend(self.command(rows, step));
            }
        }
        commands
    }

    /// Places count round and round.
    fn session_at(&self, place: usize) -> Option<&(SessionId, usize)> {
        self.sessions.get(place.checked_rem(self.sessions.len())?)
    }

    /// The command that a step is now; none where what it names is not there.
    fn command(&self, rows: &Rows, step: &Step) -> Option<Command> {
        Some(match step {
            Step::Wait(_) => return None,
            Step::Due => Command::Due,
            Step::Again(back) => {
                let place = self.sent.len().checked_sub(back + 1)?;
                self.sent.get(place)?.clone()
            }
            Step::Register { .. } => Command::Register(self.register(rows, step)?),
            Step::Call(call) => Command::PreExec(self.pre_exec(rows, call)?),
            Step::Follow {
                approval,
                successor,
                changed,
                request,
            } => {
                let (id, approval) = approval_at(rows, *approval)?;
                Command::PreExec(self.follow(rows, id, &approval, *successor, *changed, *request)?)
            }
            Step::Report(report) => Command::PostExec(self.post_exec(rows, report)?),
            Step::Seen(place) => Command::Seen(Seen {
                sessions: vec![self.session_at(*place)?.0.clone()],
            }),
            Step::End(place) => {
                let (session, agent) = self.session_at(*place)?.clone();
                Command::EndSession(EndSession {
                    by: agent_of(agent),
                    session,
                })
            }
            Step::Budget { .. } | Step::Grant { .. } | Step::Correct { .. } => self.money(rows, step)?,
            Step::Guard {
                scope,
                guard,
                stale,
                request,
            } => {
                let scope: GuardScope = GUARD_SCOPES[*scope].parse().unwrap();
                let request = operators(*request, &format!("{scope} {guard}"));
                let mut guard = guard_at(&scope, *guard);
                guard.version = if *stale { 1 } else { 0 };
                Command::PutGuard(PutGuard {
                    by: root(),
                    scope,
                    guard,
                    request,
                    justification: String::new(),
                })
            }
            Step::Engage { .. } | Step::Release { .. } => self.halt(rows, step)?,
            Step::Act {
                session,
                act,
                request,
            } => Command::Session(SessionAct {
                by: root(),
                session: self.session_at(*session)?.0.clone(),
                act: *act,
                justification: "so".into(),
                request: operators(*request, &format!("{act:?} {session}")),
            }),
            Step::Decide { .. } => person_about(rows, step)?,
            Step::Redeem {
                session,
                call,
                wrong,
                request,
            } => Command::Redeem(self.redeem(rows, *session, *call, *wrong, *request)?),
            Step::Key(seed) => Command::RegisterKey(RegisterKey {
                node: format!("node-{seed}"),
                public: Signer::from_seed(&[*seed; 32]).public(),
            }),
            Step::Seal { entries, wrong } => Command::Seal(seal(rows, *entries, *wrong)?),
            Step::Members => Command::Members(Members {
                by: root(),
                change: "add-learner 5".into(),
            }),
            Step::Refused => Command::Refused(RefusedAtEdge {
                by: agent_of(0),
                rpc: "Engage".into(),
                why: "an agent engages nothing".into(),
            }),
            Step::Fixture(number) => Command::Fixture(Fixture {
                sessions: vec![fixture(rows, *number)?],
            }),
            Step::Init => Self::form(0).remove(0),
        })
    }

    fn register(&self, rows: &Rows, step: &Step) -> Option<Register> {
        let Step::Register {
            agent,
            resume,
            request: id,
            guard,
        } = step
        else {
            return None;
        };
        if resume.is_none() {
            self.free_place(rows)?;
        }
        let resume = match resume {
            Some(place) => Some(self.session_at(*place)?.0.clone()),
            None => None,
        };
        let (organization, name) = AGENTS[*agent];
        let guard = guard.map(|guard| decision::GuardId::parse(["team", "left", "none"][guard]).unwrap());
        Some(Register {
            by: agent_of(*agent),
            organization: OrganizationId::parse(organization).unwrap(),
            agent: AgentId::parse(name).unwrap(),
            request: id.map(|id| request(&format!("r{id}"), &format!("register {resume:?} {guard:?}"))),
            resume,
            metadata: BTreeMap::new(),
            guard,
        })
    }

    fn pre_exec(&self, rows: &Rows, call: &Call) -> Option<PreExec> {
        let (session, agent) = self.session_at(call.session)?.clone();
        let agent = if call.stranger {
            (agent + 1) % AGENTS.len()
        } else {
            agent
        };
        let highest = rows
            .session(&session)
            .unwrap()
            .map_or(0, |session| session.highest_call);
        let number = if call.number == 0 {
            highest + 1
        } else {
            call.number
        };
        let params = match call.params {
            0 => Params::Malformed,
            1 => Params::Opaque,
            2 | 3 => Params::HashOnly,
            _ => Params::Clear,
        };
        let mut asked = PreExec {
            by: agent_of(agent),
            session,
            call_number: number,
            tool: ToolName::parse(&format!("tool-{}", call.tool)).unwrap(),
            digest: (params != Params::Malformed).then(|| digest(call.digest)),
            params,
            estimate: call.cost.map(NanoUsd::new),
            nonce: if call.nonce == 0 { 100 + number } else { call.nonce },
            request: None,
            parent_guard: call.parent.then(|| "left".to_owned()),
            approval: match call.approval {
                Some(place) => Some(approval_at(rows, place)?.0),
                None => None,
            },
            numbers: Vec::new(),
            rules: None,
        };
        asked.rules = facts(rows, &asked, call.digest, call.stale);
        asked.request = call.request.map(|id| called(&asked, id));
        Some(asked)
    }

    /// The held call as it was, or its successor; now and then with other arguments.
    fn follow(
        &self,
        rows: &Rows,
        id: ApprovalId,
        approval: &Approval,
        successor: bool,
        changed: bool,
        request: Option<u8>,
    ) -> Option<PreExec> {
        let owner = (approval.organization.as_str(), approval.agent.as_str());
        let agent = AGENTS.iter().position(|agent| *agent == owner)?;
        let mut call = PreExec {
            by: agent_of(agent),
            session: approval.session.clone(),
            call_number: approval.call_number,
            tool: approval.tool.clone(),
            digest: approval.digest,
            params: Params::Clear,
            estimate: Some(approval.estimate),
            nonce: approval.nonce,
            request: None,
            parent_guard: None,
            approval: Some(id),
            numbers: Vec::new(),
            rules: None,
        };
        if let (true, Some(next)) = (successor, &approval.successor) {
            call.call_number = next.call_number;
            call.nonce = next.nonce;
            call.digest = Some(next.digest);
        }
        if changed {
            call.digest = Some(digest(7));
        }
        let arguments = (0..3).find(|number| call.digest == Some(digest(*number)));
        call.rules = facts(rows, &call, arguments.unwrap_or(7), false);
        call.request = request.map(|id| called(&call, id));
        Some(call)
    }

    fn post_exec(&self, rows: &Rows, report: &Report) -> Option<PostExec> {
        let (session, agent) = self.session_at(report.session)?.clone();
        let number = match report.hold {
            Some(place) => hold_at(rows, &session, place)?,
            None => report.number,
        };
        let Report {
            cost,
            success,
            partial,
            tokens,
            ..
        } = report;
        Some(PostExec {
            by: agent_of(agent),
            session,
            call_number: number,
            actual: cost.map(NanoUsd::new),
            success: *success,
            error_signal: false,
            partial: *partial,
            request: report.request.map(|id| {
                let said = format!("report {number} {cost:?} {success} {partial} {tokens}");
                request(&format!("p{id}"), &said)
            }),
            tokens_in: *tokens,
            tokens_out: 0,
            model: (*tokens > 9).then(|| "model-1".to_owned()),
            result: (*tokens > 0).then(|| Digest::of(&tokens.to_be_bytes())),
        })
    }

    fn money(&self, rows: &Rows, step: &Step) -> Option<Command> {
        let (by, justification) = (root(), String::new());
        Some(match step {
            Step::Budget {
                account,
                limit,
                request,
            } => {
                let account = self.account(*account)?;
                let used = used(rows, &account);
                let more = i64::from(*limit) * 3;
                let limit = match (limit, &account) {
                    (0, _) => Limit::Suspended,
                    (1, _) => Limit::Unlimited,
                    // As much as was used, and some more; an organization's has to last.
                    (_, AccountId::Organization(_)) => {
                        Limit::Amount(used.saturating_add(NanoUsd::new(more * 50)))
                    }
                    _ => Limit::Amount(used.saturating_add(NanoUsd::new(more - 6))),
                };
                let request = operators(*request, &format!("{account} {limit:?}"));
                Command::SetBudget(SetBudget {
                    by,
                    account,
                    limit,
                    request,
                    justification,
                })
            }
            Step::Grant {
                account,
                amount,
                request,
            } => {
                let account = self.account(*account)?;
                let request = operators(*request, &format!("grant {account} {amount}"));
                Command::GrantBudget(GrantBudget {
                    by,
                    account,
                    amount: NanoUsd::new(*amount),
                    request,
                    justification,
                })
            }
            Step::Correct {
                account,
                amount,
                request,
            } => {
                let account = self.account(*account)?;
                let all = rows
                    .account(&account)
                    .unwrap()
                    .map_or(NanoUsd::ZERO, |account| account.spent);
                let amount = amount.map_or(NanoUsd::ZERO.saturating_sub(all), NanoUsd::new);
                let request = operators(*request, &format!("correct {account} {amount}"));
                Command::Correct(Correct {
                    by,
                    account,
                    amount,
                    request,
                    justification,
                })
            }
            _ => return None,
        })
    }

    fn halt(&self, rows: &Rows, step: &Step) -> Option<Command> {
        Some(match step {
            Step::Engage {
                by,
                scope,
                mode,
                ttl,
                two_person,
                request,
            } => {
                let scope = self.scope(*scope)?;
                let said = format!("engage {scope} {mode:?} {ttl:?} {two_person}");
                Command::Engage(Engage {
                    by: person(*by),
                    request: operators(*request, &said),
                    scope,
                    reason: "stop".into(),
                    ticket: String::new(),
                    mode: *mode,
                    ttl: ttl.map(DurationNs::from_secs),
                    two_person: *two_person,
                })
            }
            Step::Release { by, scope, request } => {
                let scope = stopped(rows, *scope).or_else(|| self.scope(*scope))?;
                Command::Release(Release {
                    by: person(*by),
                    request: operators(*request, &format!("release {scope}")),
                    scope,
                    justification: "go".into(),
                    ticket: String::new(),
                })
            }
            _ => return None,
        })
    }

    fn redeem(&self, rows: &Rows, session: usize, call: usize, wrong: bool, id: u16) -> Option<Redeem> {
        let (session, agent) = self.session_at(session)?.clone();
        let call_number = hold_at(rows, &session, call)?;
        let ticket = rows.call(&session, call_number).unwrap()?.ticket?.id;
        let ticket = if wrong { "tkt_other".to_owned() } else { ticket };
        Some(Redeem {
            by: agent_of(agent),
            request: operators(id, &format!("redeem {session} {call_number} {ticket}")),
            session,
            call_number,
            ticket,
        })
    }

    fn account(&self, place: usize) -> Option<AccountId> {
        match ACCOUNTS.get(place) {
            Some(account) => Some(account.parse().unwrap()),
            None => Some(AccountId::Session(
                self.session_at(place - ACCOUNTS.len())?.0.clone(),
            )),
        }
    }

    fn scope(&self, place: usize) -> Option<Scope> {
        match SCOPES.get(place) {
            Some(scope) => Some(scope.parse().unwrap()),
            None => Some(Scope::Session(self.session_at(place - SCOPES.len())?.0.clone())),
        }
    }
}

/// The batch at a place of the log.
pub fn batch(place: usize, now: u64, commands: Vec<Command>) -> Batch {
    Batch {
        proposed: Timestamp::from_nanos(now),
        seed: u128::try_from(place).unwrap().to_be_bytes(),
        version: VERSION,
        vouched_by: Vec::new(),
        commands,
    }
}

/// Applies one batch to rows in memory.
pub fn run(rows: &mut Rows, place: usize, batch: &Batch) -> Applied {
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

/// The retry key of a call, with all that it must agree with.
fn called(call: &PreExec, id: u8) -> machine::command::Request {
    let PreExec {
        call_number,
        nonce,
        tool,
        digest,
        estimate,
        ..
    } = call;
    let said = format!("call {call_number} {nonce} {tool} {digest:?} {estimate:?}");
    request(&format!("r{id}"), &said)
}
