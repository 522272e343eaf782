//! PreExec: facts are looked up, `decide` decides, and the verdict, the money it holds, the counters it moves and
//! its audit entry are one change.

use decision::policy::Denied;
use decision::{ApprovalId, Decision, Reason, Rule, Verdict};

use crate::command::PreExec;
use crate::guard_path::GuardPath;
use crate::row::reply::{Reply, VerdictReply};
use crate::row::{Approval, Authorization, Call, Fault, Nonces, Phase, Record, Session, Ticket, TripPolicy};
use crate::step::again::answer_again;
use crate::step::approval;
use crate::step::counters::{count, heard_from, identical, retry_after, trip, warnings};
use crate::step::facts::{CallApproval, CallFacts, first_denied, found_by, price, rules_of};
use crate::step::memory::{
    Arrival, arrival, forget_request, move_window, nonces, number_in_window, remember,
};
use crate::step::money::{self, Accounts};
use crate::step::verdict::{self, Recorded, blocked_by};
use crate::stops::Stops;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, call: &PreExec) -> Done {
    let session = turn.session_of_agent(&call.by, &call.session)?;
    money::not_negative("estimated_cost", call.estimate)?;
    let (held, earlier) = match arrival(turn, call)? {
        // The first arrival after a person's decision is decided like a new call.
        Arrival::Again(earlier) if is_decided(turn, &earlier)? => (Some(earlier), None),
        Arrival::Again(earlier) => return answer_again(turn, &session, call, earlier),
        Arrival::New(earlier) => {
            number_in_window(&session, call.call_number)?;
            (None, earlier)
        }
    };
    let path = GuardPath::of(&*turn.rows, &session)?;
    let Some(matched) = rules_of(&path, call) else {
        return Ok(Reply::Reevaluate(turn.place(0)));
    };
    let hold = price(&path, call, matched);
    let accounts = Accounts::of(turn, call, &session, &path, hold)?;
    let approval = CallApproval::of(turn, &session, call, held, earlier.as_ref())?;
    let nonces = nonces(turn, &call.session, call.nonce)?;
    let [a, b, c, d, ..] = turn.random();
    let decision = CallFacts {
        call,
        session: &session,
        path: &path,
        accounts: &accounts,
        approval: &approval,
        matched,
        stops: Stops::on(&*turn.rows, &session, Some(&call.session), &path)?,
        nonces: &nonces,
        now: turn.now(),
        drawn: u32::from_be_bytes([a, b, c, d]),
    }
    .decide();
    let decided = Decided {
        call,
        path: &path,
        before: accounts.own_available(),
        decision,
        number_taken: earlier.is_some_and(|earlier| earlier.phase != Phase::Denied),
    };
    decided.carry_out(turn, session, accounts, approval, nonces)
}

/// Says whether the call waited for people, and they have decided.
fn is_decided(turn: &Turn<'_>, earlier: &Call) -> Result<bool, Fault> {
    let (Phase::Waiting, Some(id)) = (earlier.phase, &earlier.approval) else {
        return Ok(false);
    };
    let approval = turn.find::<Approval>(id)?;
    Ok(approval.is_some_and(|approval| !approval.status.is_open()))
}

/// A decision that is still to be made true: rows, money, entry, answer.
struct Decided<'d> {
    call: &'d PreExec,
    path: &'d GuardPath,
    before: Option<decision::NanoUsd>,
    decision: Decision,
    /// A plain client's repeated number must not hide the call that ran under it.
    number_taken: bool,
}

/// What a decision came to.
struct Outcome {
    phase: Phase,
    approval: Option<ApprovalId>,
    ticket: Option<Ticket>,
    /// The held call that waited until now, or waits on: what is known of it stays.
    held: Option<Record<Call>>,
    waits_on: bool,
}

impl Decided<'_> {
    fn carry_out(
        self,
        turn: &mut Turn<'_>,
        mut session: Record<Session>,
        mut accounts: Accounts,
        approval: CallApproval,
        nonces: Record<Nonces>,
    ) -> Done {
        let (call, verdict) = (self.call, self.decision.verdict);
        heard_from(&mut session, turn.now());
        let outcome = match verdict {
            Verdict::Allow => self.allow(turn, &mut session, &mut accounts, approval, nonces)?,
            Verdict::Deny => self.deny(turn, &mut session, approval)?,
            Verdict::Hitl => self.ask(turn, &mut session, &accounts, approval),
        };
        let with = Recorded {
            path: self.path,
            before: self.before,
            after: accounts.own_available(),
            approval: outcome.approval.as_ref(),
        };
        let sequence = verdict::record(turn, &session, call, &self.decision, &with);
        let answer = self.answer(turn, &session, &accounts, &outcome, sequence);
        if !outcome.waits_on {
            // What releases a held call is its newest request; an older one is forgotten.
            if let Some(older) = outcome.held.and_then(|held| held.row.request) {
                forget_request(turn, &call.session, older);
            }
            let row = Call {
                request: call.request.as_ref().map(|request| request.id.clone()),
                nonce: call.nonce,
                phase: outcome.phase,
                answer: answer.clone(),
                tool: call.tool.clone(),
                digest: call.digest,
                reports: Vec::new(),
                approval: outcome.approval,
                ticket: outcome.ticket,
            };
            if !self.number_taken {
                remember(turn, call, row);
            }
            move_window(turn, &mut session, call.call_number)?;
        }
        turn.save(session);
        Ok(Reply::Verdict(answer))
    }

    fn allow(
        &self,
        turn: &mut Turn<'_>,
        session: &mut Record<Session>,
        accounts: &mut Accounts,
        approval: CallApproval,
        mut nonces: Record<Nonces>,
    ) -> Result<Outcome, Fault> {
        let guard = self.path.effective();
        accounts.hold(turn, self.call, guard);
        nonces.add(self.call.nonce);
        turn.save(nonces);
        count(session, self.call, guard, turn.now());
        let released_by = approval.approval.filter(|_| self.decision.released);
        let id = released_by.as_ref().map(|approval| approval.id.clone());
        if let Some(approval) = released_by {
            approval::consume(turn, session, self.call, approval)?;
        }
        Ok(Outcome {
            phase: Phase::Held,
            approval: id,
            ticket: issue(turn, self.path),
            held: approval.held,
            waits_on: false,
        })
    }

    fn deny(
        &self,
        turn: &mut Turn<'_>,
        session: &mut Record<Session>,
        approval: CallApproval,
    ) -> Result<Outcome, Fault> {
        session.denials = session.denials.saturating_add(1);
        let number = self.call.call_number;
        if self.trips() {
            trip(turn, session, self.decision.reason.clone(), number)?;
        } else if self.path.tripping().breakers.denials_exceeded(session.denials) {
            trip(turn, session, Reason::ConsecutiveDenials, number)?;
        }
        Ok(Outcome {
            phase: Phase::Denied,
            approval: None,
            ticket: None,
            // A held call that was stopped still waits, for what stopped it.
            waits_on: approval.held.is_some(),
            held: approval.held,
        })
    }

    fn ask(
        &self,
        turn: &mut Turn<'_>,
        session: &mut Record<Session>,
        accounts: &Accounts,
        approval: CallApproval,
    ) -> Outcome {
        // A call that waits already goes on waiting for the same decision; what was approved waits for what stopped it.
        let given = approval.given();
        let waits_on = approval.held.is_some() || given.is_some();
        let id = match approval.waits_for(session, self.call).or(given) {
            Some(id) => Some(id.clone()),
            None => approval::open(
                turn,
                session,
                self.call,
                self.path,
                accounts.hold,
                &self.decision.reason,
            ),
        };
        Outcome {
            phase: Phase::Waiting,
            approval: id,
            ticket: None,
            held: approval.held,
            waits_on,
        }
    }

    fn answer(
        &self,
        turn: &Turn<'_>,
        session: &Record<Session>,
        accounts: &Accounts,
        outcome: &Outcome,
        sequence: u64,
    ) -> VerdictReply {
        let (call, decision, now) = (self.call, &self.decision, turn.now());
        let guard = self.path.effective();
        let repeats = identical(session, call).map_or(0, |last| last.repeats);
        VerdictReply {
            session: call.session.clone(),
            call_number: call.call_number,
            verdict: decision.verdict,
            blocked_by: blocked_by(&decision.reason, session),
            reason: decision.reason.clone(),
            also: decision.also.clone(),
            remaining: accounts.own_available(),
            repeats,
            warnings: match decision.verdict {
                Verdict::Allow => warnings(guard, session, accounts.own(), repeats, now),
                Verdict::Deny | Verdict::Hitl => Vec::new(),
            },
            retry_after: retry_after(guard, session, call, &decision.reason, now),
            authorization: outcome.ticket.clone().map(|ticket| {
                Box::new(Authorization {
                    ticket,
                    session: call.session.clone(),
                    call_number: call.call_number,
                    tool: call.tool.clone(),
                    digest: call.digest,
                })
            }),
            approval_id: outcome.approval.clone(),
            replayed: false,
            place: turn.place(sequence),
        }
    }

    /// Says whether the denial trips the session's circuit.
    fn trips(&self) -> bool {
        let decision = &self.decision;
        match self.path.tripping().trip_policy {
            // A policy rule says it itself, of a guard that enforces.
            TripPolicy::Behaviour if decision.rule == Rule::P3 => {
                let matched = self.call.rules.as_ref().map(|facts| facts.matched.as_slice());
                let found = found_by(self.path, matched.unwrap_or_default(), true);
                let said =
                    |denied: &Denied| decision.reason == Reason::Policy(denied.rule.as_str().to_owned());
                first_denied(found).is_some_and(|denied| denied.trips && said(denied))
            }
            TripPolicy::Behaviour => decision.rule.trips_by_default(),
            // A latch cannot latch again, a stopped session needs none, and chance is no misbehaviour.
            TripPolicy::Seed => !matches!(decision.rule, Rule::K1 | Rule::K2 | Rule::R2 | Rule::X),
            TripPolicy::Never => false,
        }
    }
}

/// The ticket of a call that is allowed now, where its guard hands out tickets.
fn issue(turn: &mut Turn<'_>, path: &GuardPath) -> Option<Ticket> {
    let ttl = path.effective().ticket_ttl?;
    Some(Ticket {
        id: turn.mint("tkt_"),
        issued_at: turn.now(),
        expires_at: turn.now().plus(ttl),
        policy_digest: path.digest(),
        redeemed_by: None,
        halt_epoch: turn.cluster.halt_epoch,
        sequence: turn.next_sequence(),
    })
}
