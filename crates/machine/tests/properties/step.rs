//! One random step: few names, small amounts, edges of time and of call numbers.

use machine::command::Act;
use proptest::prelude::*;

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
    },
    Call(Call),
    Report(Report),
    Seen(usize),
    End(usize),
    Due,
    Budget {
        account: usize,
        limit: u8,
        request: u8,
    },
    Grant {
        account: usize,
        amount: i64,
        request: u8,
    },
    Guard {
        scope: usize,
        guard: usize,
        request: u8,
    },
    Engage {
        scope: usize,
        request: u8,
    },
    Release {
        scope: usize,
        request: u8,
    },
    Act {
        session: usize,
        act: Act,
        request: u8,
    },
}

#[derive(Debug, Clone)]
pub struct Call {
    pub session: usize,
    pub stranger: bool,
    pub number: u64,
    pub nonce: u64,
    pub tool: u8,
    pub digest: u8,
    pub malformed: bool,
    pub cost: Option<i64>,
    pub request: Option<u8>,
}

#[derive(Debug, Clone)]
pub struct Report {
    pub session: usize,
    pub number: u64,
    pub cost: Option<i64>,
    pub success: bool,
    pub partial: bool,
    pub request: Option<u8>,
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => waits().prop_map(Step::Wait),
        2 => registers(),
        8 => prop_oneof![2 => 0..5_usize, 1 => 0..30_usize].prop_map(Step::Again),
        14 => calls().prop_map(Step::Call),
        8 => reports().prop_map(Step::Report),
        1 => session().prop_map(Step::Seen),
        1 => session().prop_map(Step::End),
        4 => Just(Step::Due),
        2 => (0..6_usize, 0..12_u8, request()).prop_map(|(account, limit, request)| Step::Budget {
            account,
            limit,
            request,
        }),
        1 => (0..6_usize, 1..9_i64, request()).prop_map(|(account, amount, request)| Step::Grant {
            account,
            amount,
            request,
        }),
        1 => (0..3_usize, 0..8_usize, request()).prop_map(|(scope, guard, request)| Step::Guard {
            scope,
            guard,
            request,
        }),
        1 => (0..6_usize, request()).prop_map(|(scope, request)| Step::Engage { scope, request }),
        2 => (0..6_usize, request()).prop_map(|(scope, request)| Step::Release { scope, request }),
        3 => (session(), act(), request()).prop_map(|(session, act, request)| Step::Act { session, act, request }),
    ]
}

fn session() -> impl Strategy<Value = usize> {
    0..3_usize
}

/// Operators' requests: most are new, some come again.
fn request() -> impl Strategy<Value = u8> {
    0..60_u8
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
    let resume = proptest::option::of(session());
    let request = proptest::option::of(0..4_u8);
    (0..3_usize, resume, request).prop_map(|(agent, resume, request)| Step::Register {
        agent,
        resume,
        request,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::ResetCircuit),
        1 => Just(Act::Pause),
        3 => Just(Act::Resume),
        1 => Just(Act::Terminate),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 1..8_u64, 1 => Just(4_097), 1 => Just(5_000), 1 => Just(1_000_001)]
}

fn cost() -> impl Strategy<Value = Option<i64>> {
    proptest::option::weighted(0.8, prop_oneof![8 => 0..6_i64, 1 => Just(i64::MAX)])
}

fn calls() -> impl Strategy<Value = Call> {
    (
        session(),
        proptest::bool::weighted(0.05),
        number(),
        1..8_u64,
        (0..2_u8, 0..3_u8, proptest::bool::weighted(0.05)),
        cost(),
        proptest::option::of(0..8_u8),
    )
        .prop_map(
            |(session, stranger, number, nonce, (tool, digest, malformed), cost, request)| Call {
                session,
                stranger,
                number,
                nonce,
                tool,
                digest,
                malformed,
                cost,
                request,
            },
        )
}

fn reports() -> impl Strategy<Value = Report> {
    (
        session(),
        number(),
        cost(),
        any::<bool>(),
        proptest::bool::weighted(0.3),
        proptest::option::weighted(0.7, 0..12_u8),
    )
        .prop_map(|(session, number, cost, success, partial, request)| Report {
            session,
            number,
            cost,
            success,
            partial,
            request,
        })
}
