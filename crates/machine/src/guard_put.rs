//! Guards: written by operators, read live at every call's place in the log.

use audit::Kind;
use decision::{AgentId, OrganizationId};

use crate::apply::Turn;
use crate::command::PutGuard;
use crate::guard::Guard;
use crate::replay;
use crate::reply::Reply;
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
