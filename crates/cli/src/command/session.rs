//! `haltgate session`: look at sessions, reset, pause, resume and terminate them.

use client::{Client, Registration, request_id};
use decision::NanoUsd;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1 as sp;

use crate::args::{ActOnSession, Output, Session};
use crate::failed::Failed;
use crate::print;
use crate::remote::{PAGE, Remote, credentials};

const COLUMNS: [&str; 10] = [
    "session",
    "organization",
    "agent",
    "status",
    "total_calls",
    "budget_remaining_usd",
    "budget_held_usd",
    "open_approvals",
    "circuit",
    "guards",
];

pub async fn run(command: Session, output: Output) -> Result<(), Failed> {
    /// The four orders about one session: their messages are alike.
    macro_rules! act {
        ($request:ident, $act:ident) => {{
            let request = admin::$request {
                request_id: request_id(),
                session_id: $act.session.clone(),
                justification: $act.justification.clone(),
            };
            let answer = Remote::open(&$act.remote)?.call(request).await?;
            acted(output, &$act, answer.status, answer.log_index);
        }};
    }
    match command {
        Session::Register {
            remote,
            org,
            agent,
            guard,
        } => {
            let client = Client::open(&remote.endpoints, &credentials(&remote))?.within(remote.timeout);
            let registration = Registration {
                organization: org,
                agent,
                guard,
                ..Registration::default()
            };
            let session = client.register(&registration).await?.session_id;
            print::object(output, &json!({ "session": session }));
        }
        Session::List { remote, scope } => list(&Remote::open(&remote)?, &scope, output).await?,
        Session::Show(on) => {
            let request = admin::SessionsGetRequest {
                session_id: on.session,
            };
            let answer = Remote::open(&on.remote)?.call(request).await?;
            let mut shown = answer.session.as_ref().map_or(Value::Null, session);
            if output == Output::Table {
                for_people(&mut shown);
            }
            print::object(output, &shown);
        }
        Session::Reset(act) => act!(SessionsResetCircuitRequest, act),
        Session::Pause(act) => act!(SessionsPauseRequest, act),
        Session::Resume(act) => act!(SessionsResumeRequest, act),
        Session::Terminate(act) => act!(SessionsTerminateRequest, act),
    }
    Ok(())
}

async fn list(remote: &Remote, scope: &str, output: Output) -> Result<(), Failed> {
    let page = |page_token| admin::SessionsListRequest {
        scope: scope.to_owned(),
        page_size: PAGE,
        page_token,
        ..admin::SessionsListRequest::default()
    };
    let rows = |answer: admin::SessionsListResponse| {
        let rows = answer.sessions.iter().map(session).collect();
        (rows, answer.next_page_token)
    };
    let mut rows: Vec<Value> = remote.pages(page, rows).await?;
    if output == Output::Table {
        rows.iter_mut().for_each(for_people);
    }
    print::list(output, &rows, &COLUMNS);
    Ok(())
}

fn acted(output: Output, act: &ActOnSession, status: i32, log_index: u64) {
    print::object(
        output,
        &json!({ "session": act.session, "status": status_word(status), "log_index": log_index }),
    );
}

fn status_word(status: i32) -> String {
    sp::SessionStatus::try_from(status)
        .map_or("unknown", |status| status.as_str_name())
        .to_lowercase()
}

/// Whether the session has an account of its own: one that was granted something, or has booked something.
fn has_account(state: &sp::SessionState) -> bool {
    [
        state.budget_initial_usd,
        state.budget_remaining_usd,
        state.budget_spent_usd,
    ]
    .iter()
    .any(|amount| *amount != 0.0)
        || state.budget_held_nanos != 0
}

fn session(state: &sp::SessionState) -> Value {
    let budget = |usd: f64| has_account(state).then_some(usd);
    let held = wire::money::to_dollars(NanoUsd::new(state.budget_held_nanos));
    json!({
        "session": state.session_id,
        "organization": state.organization_id,
        "agent": state.agent_id,
        "status": status_word(state.status),
        "total_calls": state.total_calls,
        "budget_initial_usd": budget(state.budget_initial_usd),
        "budget_remaining_usd": budget(state.budget_remaining_usd),
        "budget_spent_usd": budget(state.budget_spent_usd),
        "budget_held_usd": budget(held),
        "open_approvals": state.open_approvals,
        "guards": state.guard_path,
        "circuit": if state.circuit_tripped { state.circuit_trip_reason.clone() } else { "closed".to_owned() },
        "circuit_tripped_at_ns": state.circuit_tripped.then_some(state.circuit_tripped_at_ns),
        "last_activity_ns": state.last_activity_ns,
        "last_tool": state.last_tool_name,
        "repeat_counts": state.repeat_counts,
        "window_counts": state.window_counts,
    })
}

/// Says in words what a table would show as a bare value: no account, and since when the circuit is open.
fn for_people(row: &mut Value) {
    let Some(fields) = row.as_object_mut() else { return };
    for (name, value) in fields.iter_mut() {
        if name.starts_with("budget_") && value.is_null() {
            *value = Value::from("none");
        }
    }
    let since = fields.remove("circuit_tripped_at_ns").and_then(|at| at.as_i64());
    if let (Some(since), Some(Value::String(circuit))) = (since, fields.get_mut("circuit")) {
        circuit.push_str(&format!(" (since {})", print::utc(i128::from(since))));
    }
}
