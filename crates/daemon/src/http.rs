//! Probes and metrics: no identity is asked, no content is given.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::door::Door;
use crate::status::Readiness;

#[derive(Debug, Clone)]
pub struct Probes {
    pub door: Arc<Door>,
    pub readiness: Readiness,
}

/// The routes of the HTTP port.
pub fn router(probes: Probes) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(probes)
}

/// The process lives as long as Raft does.
async fn livez(State(probes): State<Probes>) -> Response {
    match probes.door.node.status().stopped {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("Raft has ended: {why}\n"),
        )
            .into_response(),
    }
}

/// It can decide, or says what is in the way, one line each.
async fn readyz(State(probes): State<Probes>) -> Response {
    let obstacles = probes.readiness.obstacles();
    if obstacles.is_empty() {
        return (StatusCode::OK, "ready\n").into_response();
    }
    let mut lines = obstacles.join("\n");
    lines.push('\n');
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(probes): State<Probes>) -> Response {
    crate::observe::now(&probes.door);
    match probes.door.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
