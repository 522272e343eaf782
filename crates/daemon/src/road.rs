//! The road of a call, from whoever was admitted to the answer that leaves. Single calls, each question of a stream,
//! and whatever asks in other ways later take it.

use std::sync::Arc;

use decision::{SessionId, Verdict};
use machine::command::{PreExec, RuleFacts};
use machine::query;
use machine::reply::VerdictReply;
use machine::row::Read as _;
use prost::Message as _;
use store::{HeldPart, StateView};
use wire::guard::Question;
use wire::proto::shackle::v1 as proto;
use wire::{Code, Failure};

use crate::admit::Ask;
use crate::door::Door;
use crate::judge;
use crate::metrics::Metrics;

/// How often one call is judged anew because its rules changed meanwhile: a guard is written by people, seldom.
const JUDGED_MAX: usize = 4;

/// Answers whether one call may run. An [`Ask`] is only had by being admitted; whatever fails is no verdict.
pub async fn pre_exec(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::PreExecRequest,
) -> Result<proto::PreExecResponse, Failure> {
    door.emergency.check()?;
    let question = parse(door, ask, &message)?;
    limit(door, ask, &question.call)?;
    let answer = if question.dry_run {
        judge::dry_run(door, ask, &question).await?
    } else {
        let answer = decide(door, ask, &question).await?;
        let answer = last_look(door, ask, &question, answer).await?;
        hold(door, ask, &answer, &message.params_json).await;
        answer
    };
    let signed = sign(door, &answer)?;
    count(&door.metrics, &answer);
    Ok(signed)
}

/// Reads the message, once. Parameters stay here; the call has what the log may know of them.
fn parse<'m>(door: &Door, ask: &Ask, message: &'m proto::PreExecRequest) -> Result<Question<'m>, Failure> {
    let most = door.config.limits.pre_exec_bytes;
    if message.encoded_len() > most {
        let why = format!("a question may have {most} bytes: send the digest of larger parameters");
        return Err(Failure::new(Code::MessageTooLarge, why));
    }
    Ok(wire::guard::pre_exec(message, ask.principal())?)
}

/// Refuses what comes too often, or is another's by what this node knows.
fn limit(door: &Door, ask: &Ask, call: &PreExec) -> Result<(), Failure> {
    let bucket = (call.by.name.clone(), call.session.clone());
    door.take("calls", &door.calls, bucket)?;
    door.own_session(ask, &call.session)
}

/// Judges the call by the rules above its session and has it decided, by those that are current at its place in the log.
///
/// INVARIANT: rules that are no longer current decide nothing. The facts name what they were derived from, and the state
/// machine sends back what is not current.
async fn decide(door: &Door, ask: &Ask, question: &Question<'_>) -> Result<VerdictReply, Failure> {
    let mut rules = if door.rules_are_used() {
        first_found(door, ask, question).await?
    } else {
        None
    };
    for _ in 0..=JUDGED_MAX {
        let call = PreExec {
            rules,
            ..question.call.clone()
        };
        match door.propose(ask, call).await? {
            Ok(answer) => return Ok(answer),
            Err(place) => {
                door.use_rules();
                if !door.applied_here(ask, place.log_index).await {
                    break;
                }
                rules = door.local(|view| judge::found(view, question))?;
            }
        }
    }
    Err(Failure::new(
        Code::DaemonUnavailable,
        "the rules above this session change faster than the call can be judged",
    ))
}

/// What this node knows. A session that was opened elsewhere a moment ago may not be here yet.
async fn first_found(door: &Door, ask: &Ask, question: &Question<'_>) -> Result<Option<RuleFacts>, Failure> {
    let read = |view: &StateView<'_>| match view.session(&question.call.session)? {
        Some(_) => judge::found(view, question).map(Some),
        None => Ok(None),
    };
    match door.local(read)? {
        Some(found) => Ok(found),
        None => Ok(door.read(ask, read).await?.flatten()),
    }
}

/// The last look before an ALLOW leaves: a halt that this node has applied since must not be overtaken.
///
/// INVARIANT: no ALLOW is sent for a scope that this node knows as halted.
async fn last_look(
    door: &Door,
    ask: &Ask,
    question: &Question<'_>,
    mut answer: VerdictReply,
) -> Result<VerdictReply, Failure> {
    // Asked again with its request id, the call gets the DENY that now holds, recorded as such.
    for may_ask_again in [question.call.request.is_some(), false] {
        if answer.verdict != Verdict::Allow {
            return Ok(answer);
        }
        door.emergency.check()?;
        if !is_overtaken(door, &answer.session, answer.place.halt_epoch)? {
            return Ok(answer);
        }
        door.metrics.withheld_allows_total.inc();
        if !may_ask_again {
            break;
        }
        answer = decide(door, ask, question).await?;
    }
    Err(overtaken())
}

/// Says whether a halt that this node has applied since an epoch stops a session.
pub fn is_overtaken(door: &Door, id: &SessionId, epoch: u64) -> Result<bool, Failure> {
    if door.node.progress().halt_epoch <= epoch {
        return Ok(false);
    }
    door.local(|view| match view.session(id)? {
        Some(session) => Ok(query::halted(view, id, &session)?.is_some()),
        // Gone already: whatever runs now runs unseen.
        None => Ok(true),
    })
}

pub fn overtaken() -> Failure {
    Failure::new(
        Code::DaemonUnavailable,
        "a halt was engaged while the answer was on its way: nothing may run",
    )
}

/// Keeps the arguments of a call that now waits, beside the log, for its approvers to see. A call that is sent again
/// brings them again where they were lost.
async fn hold(door: &Door, ask: &Ask, answer: &VerdictReply, params: &[u8]) {
    let (Some(approval), Some(organization)) = (answer.approval_id.clone(), ask.principal().organization)
    else {
        return;
    };
    if answer.verdict != Verdict::Hitl
        || params.is_empty()
        || answer.replayed && door.node.holds_arguments(&approval)
    {
        return;
    }
    door.node
        .hold_arguments(organization, approval, HeldPart::Call, params.to_vec())
        .await;
}

/// Writes the answer, with a signed ticket where an ALLOW has one.
fn sign(door: &Door, answer: &VerdictReply) -> Result<proto::PreExecResponse, Failure> {
    let mut response = wire::guard::pre_exec_response(answer);
    if let Some(allowed) = &answer.authorization {
        let cluster = door.local(|view| view.cluster())?;
        let chain_id = cluster.map(|cluster| cluster.chain_id).unwrap_or_default();
        response.authorization = wire::ticket::authorization(allowed, &chain_id, &door.signer);
    }
    Ok(response)
}

fn count(metrics: &Metrics, answer: &VerdictReply) {
    if answer.replayed {
        metrics.replays_total.inc();
    }
    let reason = answer.reason.word();
    metrics
        .verdicts_total
        .with_label_values(&[answer.verdict.word(), kind_of(&reason)])
        .inc();
}

/// A reason without the name that it may carry: a label is of a closed set.
fn kind_of(word: &str) -> &str {
    const NAMED: [&str; 6] = [
        "run_halted:",
        "delegation:",
        "policy:",
        "parent_guard_denied:",
        "observe:",
        "dry_run:",
    ];
    NAMED
        .into_iter()
        .find(|prefix| word.starts_with(prefix))
        .map_or(word, |prefix| prefix.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn a_label_carries_no_name() {
        let rows = [
            ("within_thresholds", "within_thresholds"),
            (
                "policy_violation:duplicate_nonce",
                "policy_violation:duplicate_nonce",
            ),
            ("run_halted:organization", "run_halted"),
            ("parent_guard_denied:org/acme/agent/bot-1", "parent_guard_denied"),
            ("policy:r1", "policy"),
            ("dry_run:parent_guard_denied:org/acme/agent/bot-1", "dry_run"),
        ];
        for (word, label) in rows {
            assert_eq!(kind_of(word), label);
        }
    }
}
