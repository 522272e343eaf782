//! One random step: few names, small amounts, edges of time and of call numbers.

use machine::command::Act;
use machine::row::HaltMode;
use proptest::prelude::*;

use super::names::{ACCOUNTS, GUARD_SCOPES, GUARDS, PEOPLE, SCOPES};

/// A command in terms of what there is: places count from the first, and say nothing where there is none.
#[derive(Debug, Clone)]
pub enum Step {
    /// Log time goes on by so many seconds.
    Wait(u64),
    /// A command of before comes again, counted backwards.
    Again(usize),
    Register {
        agent: usize,
        resume: Option<usize>,
        request: Option<u8>,
        /// A named guard.
        guard: Option<usize>,
    },
    Call(Call),
    /// The held call of an approval, or what a person put in its place, is sent.
    Follow {
        approval: usize,
        successor: bool,
        changed: bool,
        request: Option<u8>,
    },
    Report(Report),
    Seen(usize),
    End(usize),
    Due,
    Budget {
        account: usize,
        limit: u8,
        request: u16,
    },
    Grant {
        account: usize,
        amount: i64,
        request: u16,
    },
    /// Nothing gives back all that was spent.
    Correct {
        account: usize,
        amount: Option<i64>,
        request: u16,
    },
    Guard {
        scope: usize,
        guard: usize,
        stale: bool,
        request: u16,
    },
    Engage {
        by: usize,
        scope: usize,
        mode: HaltMode,
        ttl: Option<u64>,
        two_person: bool,
        request: u16,
    },
    Release {
        by: usize,
        scope: usize,
        request: u16,
    },
    Act {
        session: usize,
        act: Act,
        request: u16,
    },
    Decide {
        by: usize,
        approval: usize,
        ruling: Said,
        /// The approver saw something else.
        stale: bool,
        request: u16,
    },
    Redeem {
        session: usize,
        call: usize,
        wrong: bool,
        request: u16,
    },
    Key(u8),
    Seal {
        entries: u64,
        wrong: bool,
    },
    Members,
    Refused,
    Fixture(u8),
    Init,
}

/// What a person says.
#[derive(Debug, Clone, Copy)]
pub enum Said {
    Approve,
    Reject,
    /// Other arguments, and a nonce; 0 lets the cluster draw it.
    Modify(u8, u64),
    Defer,
    Escalate,
}

#[derive(Debug, Clone)]
pub struct Call {
    pub session: usize,
    pub stranger: bool,
    /// 0 is the next one.
    pub number: u64,
    /// 0 is one that is not used yet.
    pub nonce: u64,
    pub tool: u8,
    pub digest: u8,
    pub params: u8,
    pub cost: Option<i64>,
    pub request: Option<u8>,
    pub approval: Option<usize>,
    /// The rules' facts are of other guards than those that are current.
    pub stale: bool,
    pub parent: bool,
}

#[derive(Debug, Clone)]
pub struct Report {
    pub session: usize,
    /// An open hold, or none of them.
    pub hold: Option<usize>,
    pub number: u64,
    pub cost: Option<i64>,
    pub success: bool,
    pub partial: bool,
    pub tokens: u64,
    pub request: Option<u8>,
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => waits().prop_map(Step::Wait),
        8 => registers(),
        12 => prop_oneof![2 => 0..5_usize, 1 => 0..30_usize].prop_map(Step::Again),
        24 => calls().prop_map(Step::Call),
        6 => follows(),
        9 => reports().prop_map(Step::Report),
        1 => session().prop_map(Step::Seen),
        1 => session().prop_map(Step::End),
        4 => Just(Step::Due),
        6 => money(),
        2 => (0..GUARD_SCOPES.len(), 0..GUARDS, flag(0.1), request())
            .prop_map(|(scope, guard, stale, request)| Step::Guard { scope, guard, stale, request }),
        2 => engages(),
        6 => (0..PEOPLE, 0..SCOPES.len() + SESSIONS, request())
            .prop_map(|(by, scope, request)| Step::Release { by, scope, request }),
        5 => (session(), act(), request()).prop_map(|(session, act, request)| Step::Act { session, act, request }),
        6 => decides(),
        5 => (session(), 0..4_usize, flag(0.1), request())
            .prop_map(|(session, call, wrong, request)| Step::Redeem { session, call, wrong, request }),
        2 => rare(),
    ]
}

/// Sessions that steps may name.
pub const SESSIONS: usize = 3;

fn session() -> impl Strategy<Value = usize> {
    0..SESSIONS
}

fn flag(odds: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(odds)
}

/// Operators' requests: most are new, some come again.
fn request() -> impl Strategy<Value = u16> {
    prop_oneof![1 => 0..60_u16, 4 => 60..u16::MAX]
}

fn waits() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..3_u64,
        4 => 29..61_u64,
        2 => Just(90_u64),
        1 => Just(3_600_u64),
        1 => Just(86_400_u64),
    ]
}

fn registers() -> impl Strategy<Value = Step> {
    let resume = proptest::option::weighted(0.25, session());
    let request = proptest::option::of(0..4_u8);
    let guard = proptest::option::weighted(0.4, 0..3_usize);
    (0..3_usize, resume, request, guard).prop_map(|(agent, resume, request, guard)| Step::Register {
        agent,
        resume,
        request,
        guard,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::ResetCircuit),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        1 => Just(Act::Terminate),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => Just(0_u64),
        12 => 1..8_u64,
        1 => Just(4_097),
        1 => Just(5_000),
        1 => Just(1_000_001)
    ]
}

fn cost() -> impl Strategy<Value = Option<i64>> {
    proptest::option::weighted(0.8, prop_oneof![40 => 0..6_i64, 1 => Just(i64::MAX)])
}

fn money() -> impl Strategy<Value = Step> {
    let account = || 0..ACCOUNTS.len() + SESSIONS;
    prop_oneof![
        2 => (account(), 0..12_u8, request()).prop_map(|(account, limit, request)| Step::Budget {
            account,
            limit,
            request,
        }),
        1 => (account(), 0..9_i64, request()).prop_map(|(account, amount, request)| Step::Grant {
            account,
            amount,
            request,
        }),
        1 => (account(), proptest::option::of(-4..5_i64), request())
            .prop_map(|(account, amount, request)| Step::Correct { account, amount, request }),
    ]
}

fn engages() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(HaltMode::Halt), Just(HaltMode::Pause), Just(HaltMode::Drain)];
    let ttl = proptest::option::weighted(0.4, prop_oneof![Just(30_u64), Just(7_200)]);
    let scope = 0..SCOPES.len() + SESSIONS;
    (0..PEOPLE, scope, mode, ttl, flag(0.3), request()).prop_map(
        |(by, scope, mode, ttl, two_person, request)| Step::Engage {
            by,
            scope,
            mode,
            ttl,
            two_person,
            request,
        },
    )
}

fn decides() -> impl Strategy<Value = Step> {
    let ruling = prop_oneof![
        4 => Just(Said::Approve),
        1 => Just(Said::Reject),
        3 => (0..3_u8, prop_oneof![Just(0_u64), 1..12_u64]).prop_map(|(digest, nonce)| Said::Modify(digest, nonce)),
        1 => Just(Said::Defer),
        1 => Just(Said::Escalate),
    ];
    (0..PEOPLE, 0..4_usize, ruling, flag(0.1), request()).prop_map(
        |(by, approval, ruling, stale, request)| Step::Decide {
            by,
            approval,
            ruling,
            stale,
            request,
        },
    )
}

fn follows() -> impl Strategy<Value = Step> {
    let request = proptest::option::of(0..12_u8);
    (0..4_usize, any::<bool>(), flag(0.1), request).prop_map(|(approval, successor, changed, request)| {
        Step::Follow {
            approval,
            successor,
            changed,
            request,
        }
    })
}

/// Keys and seals, and what only leaves an entry.
fn rare() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..3_u8).prop_map(Step::Key),
        4 => (1..40_u64, flag(0.2)).prop_map(|(entries, wrong)| Step::Seal { entries, wrong }),
        1 => Just(Step::Members),
        1 => Just(Step::Refused),
        1 => (0..2_u8).prop_map(Step::Fixture),
        1 => Just(Step::Init),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    let call = (
        session(),
        flag(0.05),
        number(),
        prop_oneof![2 => Just(0_u64), 1 => 1..8_u64],
    );
    let arguments = (
        0..2_u8,
        0..3_u8,
        0..20_u8,
        cost(),
        proptest::option::weighted(0.7, 0..12_u8),
    );
    let claims = (
        proptest::option::weighted(0.1, 0..4_usize),
        flag(0.05),
        flag(0.03),
    );
    (call, arguments, claims).prop_map(
        |(
            (session, stranger, number, nonce),
            (tool, digest, params, cost, request),
            (approval, stale, parent),
        )| {
            Call {
                session,
                stranger,
                number,
                nonce,
                tool,
                digest,
                params,
                cost,
                request,
                approval,
                stale,
                parent,
            }
        },
    )
}

fn reports() -> impl Strategy<Value = Report> {
    (
        session(),
        proptest::option::weighted(0.8, 0..4_usize),
        number(),
        cost(),
        any::<bool>(),
        flag(0.3),
        prop_oneof![3 => Just(0_u64), 1 => 1..30_u64],
        proptest::option::weighted(0.7, 0..12_u8),
    )
        .prop_map(
            |(session, hold, number, cost, success, partial, tokens, request)| Report {
                session,
                hold,
                number,
                cost,
                success,
                partial,
                tokens,
                request,
            },
        )
}
