//! `haltgate session`: look at sessions, reset, pause, resume and terminate them.

use client::{Client, Registration, request_id};
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::sessions_client::SessionsClient;
use wire::proto::shackle::v1 as sp;

use crate::args::{ActOnSession, Output, Session};
use crate::failed::Failed;
use crate::print;
use crate::remote::{Remote, credentials};

const COLUMNS: [&str; 7] = [
    "session",
    "organization",
    "agent",
    "status",
    "total_calls",
    "budget_remaining_usd",
    "circuit",
];

pub async fn run(command: Session, output: Output) -> Result<(), Failed> {
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
        Session::List { remote, scope } => {
            let remote = Remote::open(&remote)?;
            let mut rows = Vec::new();
            let mut page_token = String::new();
            loop {
                let request = admin::SessionsListRequest {
                    scope: scope.clone(),
                    page_size: 500,
                    page_token,
                    ..admin::SessionsListRequest::default()
                };
                let list = |channel, request| async move { SessionsClient::new(channel).list(request).await };
                let answer = remote.call(request, list).await?;
                rows.extend(answer.sessions.iter().map(session));
                page_token = answer.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            print::list(output, &rows, &COLUMNS);
        }
        Session::Show(on) => {
            let request = admin::SessionsGetRequest {
                session_id: on.session,
            };
            let get = |channel, request| async move { SessionsClient::new(channel).get(request).await };
            let answer = Remote::open(&on.remote)?.call(request, get).await?;
            print::object(output, &answer.session.as_ref().map_or(Value::Null, session));
        }
        Session::Reset(act) => {
            let request = admin::SessionsResetCircuitRequest {
                request_id: request_id(),
                session_id: act.session.clone(),
                justification: act.justification.clone(),
            };
            let reset =
                |channel, request| async move { SessionsClient::new(channel).reset_circuit(request).await };
            let answer = Remote::open(&act.remote)?.call(request, reset).await?;
            acted(output, &act, answer.status, answer.log_index);
        }
        Session::Pause(act) => {
            let request = admin::SessionsPauseRequest {
                request_id: request_id(),
                session_id: act.session.clone(),
                justification: act.justification.clone(),
            };
            let pause = |channel, request| async move { SessionsClient::new(channel).pause(request).await };
            let answer = Remote::open(&act.remote)?.call(request, pause).await?;
            acted(output, &act, answer.status, answer.log_index);
        }
        Session::Resume(act) => {
            let request = admin::SessionsResumeRequest {
                request_id: request_id(),
                session_id: act.session.clone(),
                justification: act.justification.clone(),
            };
            let resume = |channel, request| async move { SessionsClient::new(channel).resume(request).await };
            let answer = Remote::open(&act.remote)?.call(request, resume).await?;
            acted(output, &act, answer.status, answer.log_index);
        }
        Session::Terminate(act) => {
            let request = admin::SessionsTerminateRequest {
                request_id: request_id(),
                session_id: act.session.clone(),
                justification: act.justification.clone(),
            };
            let terminate =
                |channel, request| async move { SessionsClient::new(channel).terminate(request).await };
            let answer = Remote::open(&act.remote)?.call(request, terminate).await?;
            acted(output, &act, answer.status, answer.log_index);
        }
    }
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

fn session(state: &sp::SessionState) -> Value {
    json!({
        "session": state.session_id,
        "organization": state.organization_id,
        "agent": state.agent_id,
        "status": status_word(state.status),
        "total_calls": state.total_calls,
        "budget_initial_usd": state.budget_initial_usd,
        "budget_remaining_usd": state.budget_remaining_usd,
        "budget_spent_usd": state.budget_spent_usd,
        "circuit": if state.circuit_tripped { state.circuit_trip_reason.clone() } else { "closed".to_owned() },
        "last_tool": state.last_tool_name,
        "repeat_counts": state.repeat_counts,
        "window_counts": state.window_counts,
    })
}
