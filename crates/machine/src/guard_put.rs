//! Guards: written by operators, read live at every call's place in the log.

use audit::Kind;
use decision::{AgentId, NanoUsd, OrganizationId};

use crate::apply::Turn;
use crate::command::PutGuard;
use crate::guard::Guard;
use crate::replay;
use crate::reply::{Refusal, Reply};
use crate::scope::GuardScope;
use crate::table::{Fault, Key, Read, Row, Rows};

/// The guard an agent's calls run under: the agent's, else the organization's, else the default.
///
/// The most specific one applies whole, so that an operator reads one guard and knows the limits.
pub fn effective<R: Rows>(rows: &R, organization: &OrganizationId, agent: &AgentId) -> Result<Guard, Fault> {
    let scopes = [
        GuardScope::Agent(organization.clone(), agent.clone()),
        GuardScope::Organization(organization.clone()),
        GuardScope::Default,
    ];
    for scope in &scopes {
        if let Some(guard) = rows.guard(scope)? {
            return Ok(guard);
        }
    }
    Err(Fault::Missing(Key::Guard(GuardScope::Default)))
}

/// Amounts that would lift limits instead of setting them. The edge refuses them; so does this.
pub(crate) fn check(guard: &Guard) -> Result<(), Refusal> {
    if guard.default_cost.is_negative() {
        return Err(Refusal::Invalid("default_cost must not be below zero".to_owned()));
    }
    if guard.budget.is_some_and(|budget| budget <= NanoUsd::ZERO) {
        return Err(Refusal::Invalid("a budget is above zero, or unset".to_owned()));
    }
    Ok(())
}

pub(crate) fn put<R: Rows>(turn: &mut Turn<'_, '_, R>, put: &PutGuard) -> Result<Reply, Fault> {
    let within = match &put.scope {
        GuardScope::Default => put.by.organization.is_none(),
        GuardScope::Organization(organization) | GuardScope::Agent(organization, _) => {
            put.by.reaches(organization)
        }
    };
    if !within {
        return Ok(turn.refuse(&put.by, format!("guard {}", put.scope)));
    }
    let requester = replay::identity(&put.by);
    if let Some(earlier) = replay::recall(turn, &requester, &put.request)? {
        return Ok(earlier);
    }
    if let Err(refusal) = check(&put.guard) {
        return Ok(Reply::Refused(refusal));
    }
    let mut guard = put.guard.clone();
    guard.version = turn
        .rows
        .guard(&put.scope)?
        .map_or(0, |earlier| earlier.version)
        .saturating_add(1);

    let mut entry = turn.entry(Kind::GuardPut);
    entry.operator_id.clone_from(&put.by.name);
    entry.request_id = put.request.id.as_str().to_owned();
    entry.policy_digest = guard.digest().as_bytes().to_vec();
    entry.detail = format!("{} version {}", put.scope, guard.version);
    let sequence = turn.record(entry);
    turn.rows
        .put(Key::Guard(put.scope.clone()), Row::Guard(guard.clone()));
    let reply = Reply::Guard(guard, turn.place(sequence));
    replay::remember(turn, requester, &put.request, &reply);
    Ok(reply)
}
