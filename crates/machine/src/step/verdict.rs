//! A verdict on record, and in the agent's words.

use audit::{Entry, Kind};
use decision::{Decision, DenyReason, NanoUsd, Reason, Verdict};

use crate::command::PreExec;
use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::{Record, Session};
use crate::stops::scope_of;
use crate::turn::Turn;

/// What a verdict's entry says beside the decision.
pub(crate) struct Recorded<'r> {
    pub path: &'r GuardPath,
    pub before: Option<NanoUsd>,
    pub after: Option<NanoUsd>,
    pub approval: Option<&'r decision::ApprovalId>,
}

/// Records a verdict; gives its sequence.
pub(crate) fn record(
    turn: &mut Turn<'_>,
    session: &Record<Session>,
    call: &PreExec,
    decision: &Decision,
    with: &Recorded<'_>,
) -> u64 {
    let mut all_reasons = vec![decision.reason.word().into_owned()];
    all_reasons.extend(decision.also.iter().map(|reason| reason.word().into_owned()));
    let digest = call.digest.map(|digest| digest.as_bytes().to_vec());
    let request = call.request.as_ref();
    let entry = Entry {
        call_number: call.call_number,
        tool_name: call.tool.as_str().to_owned(),
        tool_params_hash: digest.unwrap_or_default(),
        verdict: Some(decision.verdict),
        deny_reason: match decision.verdict {
            Verdict::Deny => decision.reason.deny_reason(),
            Verdict::Allow | Verdict::Hitl => DenyReason::Unspecified,
        },
        reason: decision.reason.word().into_owned(),
        all_reasons,
        nonce: Some(call.nonce),
        request_id: request.map_or(String::new(), |request| request.id.as_str().to_owned()),
        budget_before: with.before.unwrap_or(NanoUsd::ZERO),
        budget_after: with.after.unwrap_or(NanoUsd::ZERO),
        policy_digest: with.path.digest().as_bytes().to_vec(),
        approval_id: with.approval.map_or(String::new(), |id| id.as_str().to_owned()),
        ..turn.entry_of(Kind::Verdict, session)
    };
    let sequence = turn.record(entry);
    turn.tell(Event::Decided {
        verdict: decision.verdict,
        reason: decision.reason.clone(),
    });
    sequence
}

/// The scope that stopped the call, written as operators write it.
pub(crate) fn blocked_by(reason: &Reason, session: &Record<Session>) -> Option<String> {
    let organization = &session.organization;
    match reason {
        Reason::RunHalted(kind) => Some(
            scope_of(kind, session, Some(&session.id))
                .map_or_else(|| kind.to_string(), |scope| scope.to_string()),
        ),
        Reason::OrganizationQuotaExceeded => Some(format!("org/{organization}")),
        // Guards go by their id, accounts by their scope.
        Reason::ParentGuardDenied(name) if name.contains('/') => Some(name.clone()),
        Reason::ParentGuardDenied(name) => Some(format!("org/{organization}/guard/{name}")),
        _ => None,
    }
}
