//! With every extension unset and the facts in the rows, PreExec answers as the certified core does (docs/SPEC.md 7): on
//! those of the reference's 10,000 cases that an edge lets in and rows can hold, and on the project's own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that breaks says where"
)]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use conformance::with_facts;
use decision::json::Value;
use decision::{
    AgentId, ApprovalId, BudgetFacts, Decision, Digest, Facts, HitlRule, HumanDecision, NanoUsd,
    OrganizationId, Reason, SessionId, Terminal, Timestamp, ToolName, Transition, decide,
};
use machine::command::{AgentPattern, Init, Limit, Params, PreExec, Principal, Successor};
use machine::reply::{Place, Reply, VerdictReply};
use machine::row::{Account, Call, Key, LastCall, Nonces, Phase, Row, Session, Trip, Waiting};
use machine::row::{Approval, ApprovalStatus};
use machine::{AccountId, Batch, Command, Guard, GuardScope, Position, VERSION, apply};
use machine::{Change, Working};

type Rows = BTreeMap<Key, Row>;

/// Why a case cannot be brought before the machine: what no edge lets in, or no row holds.
type Kind = &'static str;

/// The numbers that a fresh nonce and the asking call have; a fixture has no such nonces.
const FRESH: u64 = 1 << 40;
const ASKING: u64 = 2;

#[test]
#[ignore = "needs the published files: HALTGATE_CONFORMANCE names their folder"]
fn published_cases_are_answered_by_pre_exec_as_the_core_answers_them() {
    let text = published();
    let mut left_out = BTreeMap::<Kind, usize>::new();
    let mut answered = BTreeMap::<String, usize>::new();
    let cluster = cluster();
    for line in text.lines() {
        match ask(&cluster, line) {
            Ok(reason) => *answered.entry(reason).or_default() += 1,
            Err(kind) => *left_out.entry(kind).or_default() += 1,
        }
    }
    let through: usize = answered.values().sum();
    println!("{through} answered alike: {answered:#?}\nleft out: {left_out:#?}");
    assert_eq!(through, 7_523);
    assert_eq!(text.lines().count(), 10_000);
    assert_eq!(answered.len(), 20, "every reason but the unknown decision's");
    assert_eq!(left_out, BTreeMap::from(LEFT_OUT));
}

/// What is left out of the 10,000, and how often.
const LEFT_OUT: [(Kind, usize); 9] = [
    ("a call that waits though its nonce is spent", 12),
    ("a decision that binds less than nonce and digest", 378),
    ("a decision that is over, of a kind that no approval has", 2),
    ("a decision that is unknown", 519),
    ("a negative estimate", 711),
    ("a threshold of a budget that is off", 194),
    ("a threshold of a budget with more left than it had", 157),
    (
        "an attempt to resume what is over, which no call declares itself",
        185,
    ),
    (
        "parameters that the reference takes for {}, and the edge for malformed",
        319,
    ),
];

/// One case of the project's own for each answer.
#[test]
fn one_case_of_each_answer_is_answered_as_the_core_answers_it() {
    let cluster = cluster();
    let mut reasons = Vec::new();
    for line in OWN_CASES.lines().map(str::trim).filter(|line| !line.is_empty()) {
        reasons.push(ask(&cluster, line).expect(line));
    }
    assert_eq!(reasons.len(), 20, "{reasons:?}");
}

const OWN_CASES: &str = r#"
{"config":{},"state":{},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"ALLOW","expected_reason":"within_thresholds"}
{"config":{},"state":{},"call":{"tool_name":"t","params":[1],"nonce":1},"expected_verdict":"DENY","expected_reason":"policy_violation:malformed_input"}
{"config":{},"state":{"circuit_tripped":true},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"circuit_open"}
{"config":{},"state":{"seen_nonces":[1]},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"policy_violation:duplicate_nonce"}
{"config":{},"state":{"seen_nonces":[1],"pending_transition":{"decision":"approve","original_nonce":1,"terminal_status":"consumed"}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"policy_violation:duplicate_resume_no_effect"}
{"config":{},"state":{"pending_transition":{"decision":"reject","original_nonce":1}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:reject"}
{"config":{},"state":{"pending_transition":{"decision":"escalate","original_nonce":1}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"HITL","expected_reason":"hitl_transition:defer_escalate"}
{"config":{},"state":{"pending_transition":{"decision":"modify","original_nonce":1,"successor_nonce":2,"successor_args_digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:superseded_original"}
{"config":{},"state":{"pending_transition":{"decision":"modify","original_nonce":1,"successor_nonce":2,"successor_args_digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}},"call":{"tool_name":"t","params":{},"nonce":2},"expected_verdict":"ALLOW","expected_reason":"hitl_transition:modify_successor"}
{"config":{},"state":{"pending_transition":{"decision":"approve","original_nonce":1,"terminal_status":"expired"}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:terminal_no_effect"}
{"config":{},"state":{"pending_transition":{"decision":"approve"}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:unbound_authorization"}
{"config":{},"state":{"pending_transition":{"decision":"approve","original_nonce":2}},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:nonce_mismatch"}
{"config":{},"state":{"pending_transition":{"decision":"approve","original_nonce":1,"original_args_digest":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}},"call":{"tool_name":"t","params":{"a":1},"nonce":1},"expected_verdict":"DENY","expected_reason":"hitl_transition:digest_mismatch"}
{"config":{"budget_usd":1},"state":{"budget_initial_usd":1,"budget_remaining_usd":0,"pending_transition":{"decision":"approve","original_nonce":1}},"call":{"tool_name":"t","params":{},"nonce":1,"estimated_cost_usd":0.5},"expected_verdict":"ALLOW","expected_reason":"hitl_transition:approve"}
{"config":{"budget_usd":1},"state":{"budget_initial_usd":1,"budget_remaining_usd":0},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"budget_exhausted"}
{"config":{"budget_usd":1},"state":{"budget_initial_usd":1,"budget_remaining_usd":0.4},"call":{"tool_name":"t","params":{},"nonce":1,"estimated_cost_usd":0.5},"expected_verdict":"DENY","expected_reason":"budget_overrun"}
{"config":{"max_repeat_calls":2},"state":{"repeat_counts":{"t":2},"last_tool_name":"t"},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"DENY","expected_reason":"max_repeat_exceeded"}
{"config":{"hitl_mode":"always"},"state":{},"call":{"tool_name":"t","params":{},"nonce":1},"expected_verdict":"HITL","expected_reason":"hitl_all_calls"}
{"config":{"budget_usd":1,"hitl_mode":"on_threshold","hitl_budget_threshold":0.5},"state":{"budget_initial_usd":1,"budget_remaining_usd":0.5},"call":{"tool_name":"t","params":{},"nonce":1,"estimated_cost_usd":0.5},"expected_verdict":"HITL","expected_reason":"budget_threshold"}
{"config":{},"state":{},"call":{"tool_name":"t","params":{"context":"opaque"},"nonce":1},"expected_verdict":"HITL","expected_reason":"fail_closed:opaque_context"}
"#;

/// Brings one case before the machine; the answer's reason, or why it cannot be brought.
fn ask(cluster: &Rows, line: &str) -> Result<String, Kind> {
    let case = Value::parse(line.as_bytes(), 256).expect(line);
    let asked = case.field("call");
    let params = asked.and_then(|call| call.field("params"));
    if params.is_some_and(is_falsy) {
        return Err("parameters that the reference takes for {}, and the edge for malformed");
    }
    let tool = asked
        .and_then(|call| call.field("tool_name"))
        .and_then(Value::as_str);
    // The reference takes a call without a name; the edge does not. Which name it is decides nothing.
    let tool = ToolName::parse(tool.filter(|name| !name.is_empty()).unwrap_or("unnamed")).expect(line);
    let (rows, call, core) = with_facts(&case, |facts| -> Result<_, Kind> {
        let (rows, call) = inject(cluster, facts, &tool)?;
        // What is malformed is not looked into.
        let opaque = facts.opaque && !facts.malformed;
        let core = decide(&Facts {
            opaque,
            ..facts.clone()
        });
        Ok((rows, call, core))
    })?;
    let answer = pre_exec(&rows, call);
    let expected = ["expected_verdict", "expected_reason"].map(|key| case.field(key).and_then(Value::as_str));
    let reason = answer.reason.word().into_owned();
    assert_eq!([Some(answer.verdict.word()), Some(&reason)], expected, "{line}");
    assert_also(&answer, &core, line);
    Ok(reason)
}

/// A held call that is put off is asked about people only, not about its limits once more.
fn assert_also(answer: &VerdictReply, core: &Decision, line: &str) {
    if answer.call_number == ASKING {
        assert_eq!(answer.also, core.also, "{line}");
    }
}

fn is_falsy(params: &Value<'_>) -> bool {
    match params {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(text) => !text.contains(|digit| ('1'..='9').contains(&digit)),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// The facts as rows of one session, and the call that meets them.
fn inject(cluster: &Rows, facts: &Facts<'_>, tool: &ToolName) -> Result<(Rows, PreExec), Kind> {
    if facts.estimate.is_negative() {
        return Err("a negative estimate");
    }
    let mut rows = cluster.clone();
    // A missing nonce was seen by nobody and is bound by nothing: like a fresh one.
    let nonce = facts.nonce.unwrap_or(FRESH);
    if facts.nonce_seen {
        see(&mut rows, nonce);
    }
    if let Some(account) = account(facts)? {
        rows.insert(Key::Account(AccountId::Session(id())), Row::Account(account));
    }
    rows.insert(
        Key::Guard(GuardScope::Default),
        Row::Guard(Box::new(guard(facts))),
    );
    let mut session = session(facts, tool);
    let mut call = PreExec {
        by: bot(),
        session: id(),
        call_number: ASKING,
        tool: tool.clone(),
        digest: facts.digest,
        params: match (facts.malformed, facts.opaque) {
            (true, _) => Params::Malformed,
            (false, true) => Params::Opaque,
            (false, false) => Params::Clear,
        },
        estimate: Some(facts.estimate),
        nonce,
        request: None,
        parent_guard: None,
        approval: None,
        numbers: Vec::new(),
        rules: None,
    };
    if let Some(transition) = facts.transition {
        call.approval = ApprovalId::parse("apr_1").ok();
        let unbound = effect(&nothing_bound(), facts) == effect(transition, facts);
        // Of an approval that is not there nothing is bound.
        if !unbound {
            let approval = approval(transition, facts, &call)?;
            if approval.status.is_open() {
                call.call_number = 1;
                call.approval = None;
            }
            hold_for(&mut rows, &mut session, &call, approval);
        }
    }
    rows.insert(Key::Session(id()), Row::Session(Box::new(session)));
    Ok((rows, call))
}

fn guard(facts: &Facts<'_>) -> Guard {
    Guard {
        max_repeat_calls: facts.max_repeat,
        hitl: facts.hitl,
        ..Guard::unlimited()
    }
}

fn session(facts: &Facts<'_>, tool: &ToolName) -> Session {
    Session {
        trip: facts.circuit_tripped.then_some(Trip {
            reason: Reason::CircuitOpen,
            at: Timestamp::ZERO,
            call_number: 0,
        }),
        last_call: facts.same_tool.then(|| LastCall {
            call_number: 0,
            tool: tool.clone(),
            digest: facts.digest,
            repeats: facts.repeats,
            failed: false,
        }),
        highest_call: 1,
        ..Session::opened(organization(), agent(), BTreeMap::new(), Timestamp::ZERO)
    }
}

/// The account that has these facts; its first amount matters to a threshold only.
fn account(facts: &Facts<'_>) -> Result<Option<Account>, Kind> {
    let BudgetFacts { initial, available } = facts.budget.unwrap();
    let threshold = matches!(facts.hitl, HitlRule::OnThreshold(_));
    if !facts.budget_enforced {
        return match threshold && initial > NanoUsd::ZERO {
            true => Err("a threshold of a budget that is off"),
            false => Ok(None),
        };
    }
    let granted = if threshold {
        initial
    } else {
        initial.max(available)
    };
    let limit = match granted {
        amount if amount > NanoUsd::ZERO => Limit::Amount(amount),
        NanoUsd::ZERO => Limit::Suspended,
        _ if threshold => return Err("a threshold of a negative budget"),
        _ => Limit::Suspended,
    };
    let spent = granted.max(NanoUsd::ZERO).checked_sub(available).unwrap();
    if spent.is_negative() {
        return Err("a threshold of a budget with more left than it had");
    }
    Ok(Some(Account {
        spent,
        ..Account::opened(limit)
    }))
}

/// The approval that has this transition, as far as it has any effect.
fn approval(transition: &Transition, facts: &Facts<'_>, call: &PreExec) -> Result<Approval, Kind> {
    let status = match (transition.decision, transition.terminal) {
        (HumanDecision::Unknown, _) => return Err("a decision that is unknown"),
        (HumanDecision::Defer, _) if facts.nonce_seen => {
            return Err("a call that waits though its nonce is spent");
        }
        (HumanDecision::Escalate, _) if facts.nonce_seen => {
            return Err("a call that waits though its nonce is spent");
        }
        (HumanDecision::Defer, _) => ApprovalStatus::Deferred,
        (HumanDecision::Escalate, _) => ApprovalStatus::Escalated,
        (HumanDecision::Reject, _) => ApprovalStatus::Rejected,
        (HumanDecision::Modify, _) => ApprovalStatus::Modified,
        (HumanDecision::Approve, None) => ApprovalStatus::Approved,
        (HumanDecision::Approve, Some(Terminal::Expired)) => ApprovalStatus::Expired,
        (HumanDecision::Approve, Some(Terminal::Cancelled)) => ApprovalStatus::Cancelled,
        (HumanDecision::Approve, Some(_)) => ApprovalStatus::Consumed,
    };
    let is_held = status.is_open();
    let successor = match (transition.successor_nonce, transition.successor_digest) {
        (Some(nonce), Some(digest)) => Some(Successor {
            call_number: 0,
            nonce,
            digest,
            request: None,
        }),
        _ => None,
    };
    let approval = Approval {
        session: id(),
        organization: organization(),
        agent: agent(),
        requested_by: bot().name,
        call_number: 1,
        tool: call.tool.clone(),
        digest: if is_held {
            call.digest
        } else {
            transition.original_digest
        },
        nonce: if is_held {
            call.nonce
        } else {
            transition.original_nonce.unwrap_or(FRESH + 1)
        },
        estimate: facts.estimate,
        why: Reason::HitlAllCalls,
        policy_digest: Digest::of(&[]),
        opened_at: Timestamp::ZERO,
        expires_at: Timestamp::MAX,
        info_digest: Digest::of(&[]),
        status,
        decided: None,
        successor,
    };
    let held = approval.transition(Timestamp::from_nanos(1));
    if effect(&held, facts) == effect(transition, facts) {
        Ok(approval)
    } else if transition.resume_attempt && transition.terminal.is_some() {
        Err("an attempt to resume what is over, which no call declares itself")
    } else {
        Err(match transition.decision {
            HumanDecision::Approve if transition.terminal.is_some() => "an end that no approval has",
            HumanDecision::Approve | HumanDecision::Modify => {
                "a decision that binds less than nonce and digest"
            }
            _ => "a decision that is over, of a kind that no approval has",
        })
    }
}

/// A transition without what has no effect on the answer.
fn effect(transition: &Transition, facts: &Facts<'_>) -> Transition {
    let over = transition.terminal.is_some();
    let terminal_counts =
        facts.nonce_seen || transition.resume_attempt || transition.decision == HumanDecision::Approve;
    // Which end it was is told to nobody.
    let terminal = transition
        .terminal
        .filter(|_| terminal_counts)
        .map(|_| Terminal::Consumed);
    let mut effect = Transition {
        terminal,
        resume_attempt: over && transition.resume_attempt,
        ..nothing_bound()
    };
    effect.decision = transition.decision;
    match transition.decision {
        HumanDecision::Approve if !over => {
            effect.original_nonce = transition.original_nonce;
            effect.original_digest = transition.original_digest;
        }
        HumanDecision::Modify => {
            effect.original_nonce = transition
                .original_nonce
                .filter(|nonce| facts.nonce == Some(*nonce));
            effect.successor_nonce = transition.successor_nonce;
            effect.successor_digest = transition.successor_digest;
        }
        // Both wait for people still.
        HumanDecision::Escalate => effect.decision = HumanDecision::Defer,
        HumanDecision::Approve | HumanDecision::Defer | HumanDecision::Reject | HumanDecision::Unknown => {}
    }
    effect
}

fn nothing_bound() -> Transition {
    Transition {
        decision: HumanDecision::Approve,
        original_nonce: None,
        original_digest: None,
        successor_nonce: None,
        successor_digest: None,
        terminal: None,
        resume_attempt: false,
    }
}

/// The rows of the call that was asked about, number 1, and of its approval.
fn hold_for(rows: &mut Rows, session: &mut Session, call: &PreExec, approval: Approval) {
    let approval_id = ApprovalId::parse("apr_1").unwrap();
    let over = approval.status.is_over();
    if !over {
        session.waiting.push(Waiting {
            call_number: 1,
            approval_id: approval_id.clone(),
        });
    }
    let held = Call {
        request: None,
        nonce: approval.nonce,
        phase: if over { Phase::Cancelled } else { Phase::Waiting },
        answer: VerdictReply {
            session: id(),
            call_number: 1,
            verdict: decision::Verdict::Hitl,
            reason: Reason::HitlAllCalls,
            also: Vec::new(),
            remaining: None,
            repeats: 0,
            approval_id: Some(approval_id.clone()),
            blocked_by: None,
            replayed: false,
            place: Place::default(),
            warnings: Vec::new(),
            authorization: None,
            retry_after: None,
        },
        tool: call.tool.clone(),
        digest: approval.digest,
        reports: Vec::new(),
        approval: Some(approval_id.clone()),
        ticket: None,
    };
    rows.insert(Key::Call(id(), 1), Row::Call(Box::new(held)));
    rows.insert(Key::Approval(approval_id), Row::Approval(Box::new(approval)));
}

fn see(rows: &mut Rows, nonce: u64) {
    let mut nonces = Nonces::default();
    let (word, bit) = (usize::try_from(nonce >> 6 & 3).unwrap(), 1_u64 << (nonce & 63));
    *nonces.bits.get_mut(word).unwrap() |= bit;
    rows.insert(Key::Nonces(id(), nonce >> 8), Row::Nonces(nonces));
}

fn pre_exec(rows: &Rows, call: PreExec) -> VerdictReply {
    match run(rows, Command::PreExec(call)).0 {
        Reply::Verdict(answer) => answer,
        other => unreachable!("{other:?}"),
    }
}

fn run(rows: &Rows, command: Command) -> (Reply, Vec<Change>) {
    let batch = Batch {
        proposed: Timestamp::from_nanos(1),
        seed: [0; 16],
        version: VERSION,
        vouched_by: Vec::new(),
        commands: vec![command],
    };
    let mut working = Working::over(rows);
    let mut applied = apply(&mut working, Position { term: 1, index: 1 }, &batch).unwrap();
    (applied.replies.pop().unwrap(), working.into_changes())
}

/// A cluster in which an organization needs no account.
fn cluster() -> Rows {
    let init = Command::Init(Init {
        chain_id: "chain".into(),
        by: bot(),
        default_guard: Guard::unlimited(),
        unfunded_organizations: true,
        fixtures: false,
    });
    let (_, changes) = run(&Rows::new(), init);
    let put = |change| match change {
        Change::Put(key, row) => Some((key, row)),
        Change::Delete(_) => None,
    };
    changes.into_iter().filter_map(put).collect()
}

fn bot() -> Principal {
    Principal {
        name: "org/acme/agent/bot-1".into(),
        organization: Some(organization()),
        agents: vec![AgentPattern::Exact(agent())],
    }
}

fn id() -> SessionId {
    SessionId::parse("ses_1").unwrap()
}

fn organization() -> OrganizationId {
    OrganizationId::parse("acme").unwrap()
}

fn agent() -> AgentId {
    AgentId::parse("bot-1").unwrap()
}

/// The reference's cases live outside the project: `HALTGATE_CONFORMANCE` names their folder.
fn published() -> String {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test looks for files outside the project"
    )]
    let folder = std::env::var("HALTGATE_CONFORMANCE").unwrap_or_else(|_| beside.to_owned());
    let packed =
        std::fs::File::open(PathBuf::from(folder).join("decide_vectors.jsonl.gz")).expect("the random cases");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .expect("gzip");
    text
}
