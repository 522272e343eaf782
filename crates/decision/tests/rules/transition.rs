//! R4: what a person's decision means for a call, one row an edge.

use decision::decide::{Rule, decide};
use decision::digest::Digest;
use decision::facts::{Facts, HumanDecision, Status, Terminal, Transition};
use decision::verdict::Verdict::{Allow, Deny, Hitl};

use crate::sample::{called, digest, transition};

#[test]
fn transition_is_resolved_in_its_order() {
    use HumanDecision as D;
    let bound = Transition {
        original_nonce: Some(1),
        original_digest: Some(digest()),
        ..transition(D::Approve)
    };
    let successor = Transition {
        decision: D::Modify,
        successor_nonce: Some(2),
        successor_digest: Some(digest()),
        terminal: Some(Terminal::Superseded),
        ..bound
    };
    let spent = |terminal| Transition {
        terminal: Some(terminal),
        ..bound
    };
    let resumed = |decision| Transition {
        resume_attempt: true,
        decision,
        ..spent(Terminal::Consumed)
    };
    let rows = [
        (
            "unknown before all",
            1,
            resumed(D::Unknown),
            Deny,
            "hitl_transition:unknown_decision",
        ),
        (
            "resumed and spent",
            1,
            resumed(D::Approve),
            Deny,
            "policy_violation:duplicate_resume_no_effect",
        ),
        (
            "resumed and rejected",
            1,
            resumed(D::Reject),
            Deny,
            "policy_violation:duplicate_resume_no_effect",
        ),
        (
            "resumed and open",
            1,
            Transition {
                resume_attempt: true,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        (
            "reject",
            1,
            Transition {
                decision: D::Reject,
                ..bound
            },
            Deny,
            "hitl_transition:reject",
        ),
        (
            "defer",
            1,
            Transition {
                decision: D::Defer,
                ..bound
            },
            Hitl,
            "hitl_transition:defer_escalate",
        ),
        (
            "escalate",
            1,
            Transition {
                decision: D::Escalate,
                ..bound
            },
            Hitl,
            "hitl_transition:defer_escalate",
        ),
        (
            "modified original",
            1,
            successor,
            Deny,
            "hitl_transition:superseded_original",
        ),
        (
            "modified successor",
            2,
            successor,
            Allow,
            "hitl_transition:modify_successor",
        ),
        (
            "modified, neither",
            3,
            successor,
            Deny,
            "hitl_transition:nonce_mismatch",
        ),
        (
            "rejected",
            1,
            spent(Terminal::Rejected),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "superseded",
            1,
            spent(Terminal::Superseded),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "consumed",
            1,
            spent(Terminal::Consumed),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "executed",
            1,
            spent(Terminal::Executed),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "expired",
            1,
            spent(Terminal::Expired),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "revoked",
            1,
            spent(Terminal::Revoked),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "cancelled",
            1,
            spent(Terminal::Cancelled),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "nothing bound",
            1,
            transition(D::Approve),
            Deny,
            "hitl_transition:unbound_authorization",
        ),
        (
            "no successor bound",
            2,
            transition(D::Modify),
            Deny,
            "hitl_transition:unbound_authorization",
        ),
        ("other nonce", 2, bound, Deny, "hitl_transition:nonce_mismatch"),
        (
            "other digest",
            1,
            Transition {
                original_digest: Some(Digest::of(b"other")),
                ..bound
            },
            Deny,
            "hitl_transition:digest_mismatch",
        ),
        (
            "only the nonce bound",
            1,
            Transition {
                original_digest: None,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        (
            "only the digest bound",
            9,
            Transition {
                original_nonce: None,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        ("approve", 1, bound, Allow, "hitl_transition:approve"),
    ];
    let statuses = [
        Status::Active,
        Status::Paused {
            held: true,
            decided: true,
        },
    ];
    for (name, nonce, transition, verdict, reason) in rows {
        for status in statuses {
            let facts = Facts {
                status,
                transition: Some(&transition),
                nonce: Some(nonce),
                ..called()
            };
            let decision = decide(&facts);
            assert_eq!(
                (decision.verdict, &*decision.reason.word()),
                (verdict, reason),
                "{name}"
            );
            assert_eq!(decision.rule, Rule::R4, "{name}");
            assert_eq!(decision.released, verdict == Allow, "{name}");
        }
    }
    let undecided = Status::Paused {
        held: true,
        decided: false,
    };
    let facts = Facts {
        status: undecided,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(decide(&facts).reason.word(), "hitl_pending");
    let silent = Facts {
        nonce: None,
        digest: None,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(decide(&silent).reason.word(), "hitl_transition:nonce_mismatch");
    let seen = Facts {
        nonce_seen: true,
        transition: Some(&successor),
        ..called()
    };
    assert_eq!(
        decide(&seen).reason.word(),
        "policy_violation:duplicate_resume_no_effect"
    );
    let seen_open = Facts {
        nonce_seen: true,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(
        decide(&seen_open).reason.word(),
        "policy_violation:duplicate_nonce"
    );
}
