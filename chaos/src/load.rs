//! Agents that call until they are told to stop, and remember every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Registration, nonce, request_id};
use tokio::task::JoinHandle;
use wire::proto::shackle::v1 as sp;

use crate::cluster::Cluster;

/// One call, as often as it was sent, and what was answered each time.
#[derive(Debug, Clone)]
pub struct Asked {
    pub request: sp::PreExecRequest,
    pub answers: Vec<Answered>,
}

#[derive(Debug, Clone)]
pub struct Answered {
    pub invoked: Instant,
    pub returned: Instant,
    pub answer: sp::PreExecResponse,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    agents: Vec<JoinHandle<Vec<Asked>>>,
}

/// How the agents behave.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub agents: usize,
    /// The pause between two calls of one agent.
    pub pause: Duration,
    pub cost_nanos: i64,
    /// Whether a call that was answered is sent again now and then, as if the answer had been lost.
    pub repeat: bool,
    /// Whether an allowed call is settled, at half of its cost.
    pub settle: bool,
}

impl Load {
    /// Starts agents of `acme` (`bot-1`), each in a session of its own, each beginning at another node.
    pub fn start(cluster: &Cluster, pace: Pace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut agents = Vec::new();
        for number in 0..pace.agents {
            let mut endpoints = cluster.endpoints();
            let turn = number % endpoints.len();
            endpoints.rotate_left(turn);
            let client = Client::open(&endpoints, &cluster.credentials("agent"))
                .expect("a client")
                .deadline(Duration::from_secs(2));
            agents.push(tokio::spawn(agent(client, pace, stop.clone())));
        }
        Self { stop, agents }
    }

    /// Ends the load; gives everything that was asked and answered.
    pub async fn stop(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for agent in self.agents {
            all.extend(agent.await.expect("an agent ends"));
        }
        all
    }
}

async fn agent(client: Client, pace: Pace, stop: Arc<AtomicBool>) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let mut session: Option<String> = None;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(id) = session.clone() else {
            let registration = Registration {
                organization: "acme".to_owned(),
                agent: "bot-1".to_owned(),
                ..Registration::default()
            };
            match client.register(&registration).await {
                Ok(registered) => {
                    session = Some(registered.session_id);
                    number = 0;
                }
                Err(_unavailable) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            continue;
        };
        number += 1;
        let request = sp::PreExecRequest {
            session_id: id,
            call_number: number,
            tool_name: "search".to_owned(),
            params_json: format!("{{\"page\":{number}}}").into_bytes(),
            estimated_cost_nanos: Some(pace.cost_nanos),
            nonce: nonce(),
            request_id: request_id(),
            ..sp::PreExecRequest::default()
        };
        let mut asked = Asked {
            request,
            answers: Vec::new(),
        };
        // An answer that does not come is asked for again, with the same request: until it comes, or the end.
        while asked.answers.is_empty() && !stop.load(Ordering::Relaxed) {
            ask(&client, &mut asked).await;
        }
        if pace.repeat && number % 3 == 0 {
            ask(&client, &mut asked).await;
        }
        let allowed = asked
            .answers
            .first()
            .is_some_and(|first| first.answer.verdict() == sp::Verdict::Allow);
        if pace.settle && allowed && number % 2 == 0 {
            let report = sp::PostExecNotification {
                session_id: asked.request.session_id.clone(),
                call_number: number,
                actual_cost_nanos: Some(pace.cost_nanos / 2),
                success: true,
                ..sp::PostExecNotification::default()
            };
            // What is lost here expires, and is charged.
            let _lost = client.post_exec(&report).await;
            if pace.repeat {
                ask(&client, &mut asked).await;
            }
        }
        // A tripped or ended session goes no further; another one may.
        if asked
            .answers
            .last()
            .is_some_and(|last| last.answer.reason == "circuit_open")
        {
            session = None;
        }
        all.push(asked);
        tokio::time::sleep(pace.pause).await;
    }
    all
}

async fn ask(client: &Client, asked: &mut Asked) {
    let invoked = Instant::now();
    if let Ok(answer) = client.pre_exec(asked.request.clone()).await {
        asked.answers.push(Answered {
            invoked,
            returned: Instant::now(),
            answer,
        });
    }
}
