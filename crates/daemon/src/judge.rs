//! What the rules of a session's guards say of a call, found where its arguments are; and calls that are only thought
//! of.

use std::collections::BTreeMap;

use cluster::{Entropy as _, SystemEntropy};
use decision::policy::{Asked, evaluate};
use decision::{Reason, ToolName, Verdict};
use machine::Working;
use machine::command::{PreExec, RuleFacts};
use machine::reply::VerdictReply;
use machine::row::{Fault, Read as _, Rows};
use machine::{Batch, GuardPath, Position};
use wire::guard::{LookedAt, Question};
use wire::{Code, Failure};

use crate::admit::Ask;
use crate::door::{Door, log_index};
use crate::order::{Judged, Order, answer_to};

/// Decides over the state as it is and keeps nothing of it. Whatever comes out is answered as a DENY.
pub async fn dry_run(door: &Door, ask: &Ask, question: &Question<'_>) -> Result<VerdictReply, Failure> {
    let supposed = door.read(ask, |view| {
        let call = PreExec {
            // The retry table answers what was asked, and this only wonders.
            request: None,
            rules: found(view, question)?,
            ..question.call.clone()
        };
        suppose(&mut Working::over(view), log_index(view), call)
    });
    let mut answer = verdict(supposed.await??)?;
    answer.verdict = Verdict::Deny;
    answer.reason = Reason::DryRun(Box::new(answer.reason));
    answer.approval_id = None;
    answer.authorization = None;
    // Nothing was recorded.
    answer.place.sequence = 0;
    Ok(answer)
}

/// What was judged by the rules that were read with it is answered at once.
pub fn verdict(judged: Judged) -> Result<VerdictReply, Failure> {
    judged.map_err(|_| {
        let why = "a call was judged by other rules than were read with it";
        Failure::new(Code::Internal, why)
    })
}

/// What the rules above the call's session say; none where there are none.
pub fn found<R: Rows>(rows: &R, question: &Question<'_>) -> Result<Option<RuleFacts>, Fault> {
    let Question { call, looked_at, .. } = question;
    match rows.session(&call.session)? {
        Some(session) => Ok(under(&GuardPath::of(rows, &session)?, &call.tool, looked_at)),
        None => Ok(None),
    }
}

/// What the rules of these guards say; none where there are none.
pub fn under(leash: &GuardPath, tool: &ToolName, looked_at: &LookedAt<'_>) -> Option<RuleFacts> {
    if leash.guards().iter().all(|(_, guard)| guard.rules.is_empty()) {
        return None;
    }
    let tags: BTreeMap<String, String> = looked_at
        .tags
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let asked = Asked {
        tool,
        tags: &tags,
        params: looked_at.params.as_ref(),
    };
    let judged = |(_, guard): &(_, machine::Guard)| evaluate(&guard.rules, &asked);
    Some(RuleFacts {
        policy_digest: leash.digest(),
        matched: leash.guards().iter().map(judged).collect(),
    })
}

/// A nonce that no call has had.
pub fn drawn() -> u64 {
    SystemEntropy.number().max(1)
}

/// Carries an order out over the rows as they are. Whoever drops `working` keeps nothing of it.
pub fn suppose<R: Rows, O: Order>(
    working: &mut Working<'_, R>,
    index: u64,
    order: O,
) -> Result<Result<O::Answer, Failure>, Fault> {
    let mut seed = [0; 16];
    SystemEntropy.fill(&mut seed);
    let batch = Batch {
        proposed: working.cluster()?.map(|cluster| cluster.now).unwrap_or_default(),
        seed,
        version: machine::VERSION,
        vouched_by: Vec::new(),
        commands: vec![order.command()],
    };
    let applied = machine::apply(working, Position { term: 0, index }, &batch)?;
    Ok(answer_to::<O>(applied.replies.into_iter().next()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use decision::json::Value;
    use decision::policy::{Denied, Effect, Matched, Rule};
    use decision::{AgentId, GuardId, OrganizationId, RuleId, Timestamp, ToolName};
    use machine::row::{Key, Row, Session};
    use machine::{Guard, GuardPath, GuardScope};
    use wire::guard::LookedAt;

    use super::under;

    fn denying(rule: &str) -> Guard {
        Guard {
            rules: vec![Rule {
                id: RuleId::parse(rule).unwrap(),
                tools: Vec::new(),
                tags: Vec::new(),
                when: Vec::new(),
                effect: Effect::Deny { trips: false },
            }],
            ..Guard::default()
        }
    }

    /// The leash of a session that named the guard `leaf`.
    fn leash(default: Guard, leaf: Guard) -> GuardPath {
        let acme = OrganizationId::parse("acme").unwrap();
        let named = GuardId::parse("leaf").unwrap();
        let rows = BTreeMap::from([
            (Key::Guard(GuardScope::Default), Row::Guard(Box::new(default))),
            (
                Key::Guard(GuardScope::Named(acme.clone(), named.clone())),
                Row::Guard(Box::new(leaf)),
            ),
        ]);
        let bot = AgentId::parse("bot-1").unwrap();
        let mut session = Session::opened(acme, bot, BTreeMap::new(), Timestamp::ZERO);
        session.guard = Some(named);
        GuardPath::of(&rows, &session).unwrap()
    }

    #[test]
    fn each_guard_is_judged_at_its_own_place_and_none_where_none_has_rules() {
        let tool = ToolName::parse("tool").unwrap();
        let tags = HashMap::new();
        let looked_at = LookedAt {
            tags: &tags,
            params: Some(Value::Object(Vec::new())),
        };
        let plain = leash(Guard::default(), Guard::default());
        assert_eq!(under(&plain, &tool, &looked_at), None);

        let denied = |rule: &str| Matched {
            denied: Some(Denied {
                rule: RuleId::parse(rule).unwrap(),
                trips: false,
            }),
            ..Matched::default()
        };
        let rows = [
            (
                leash(denying("a"), Guard::default()),
                [denied("a"), Matched::default()],
            ),
            (
                leash(Guard::default(), denying("b")),
                [Matched::default(), denied("b")],
            ),
            (leash(denying("a"), denying("b")), [denied("a"), denied("b")]),
        ];
        for (leash, matched) in rows {
            let facts = under(&leash, &tool, &looked_at).unwrap();
            assert_eq!(facts.policy_digest, leash.digest());
            assert_eq!(facts.matched, matched);
        }
    }
}
