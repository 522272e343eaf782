//! A retried PreExec over failover: the same answer while its hold is open, a denial once it is settled, or
//! once a kill or a trip forbids it.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::cluster::Cluster;
use client::{Client, Registration, nonce, request_id};
use wire::proto::shackle::v1 as sp;

struct Agent {
    client: Client,
    session: String,
    calls: u64,
}

impl Agent {
    async fn open(cluster: &Cluster) -> Self {
        let client = cluster.client("agent").deadline(Duration::from_secs(10));
        let registration = Registration {
            organization: "acme".to_owned(),
            agent: "bot-1".to_owned(),
            ..Registration::default()
        };
        let session = client
            .register(&registration)
            .await
            .expect("a session")
            .session_id;
        Self {
            client,
            session,
            calls: 0,
        }
    }

    fn request(&mut self, params: &str) -> sp::PreExecRequest {
        self.calls += 1;
        sp::PreExecRequest {
            session_id: self.session.clone(),
            call_number: self.calls,
            tool_name: "transfer".to_owned(),
            params_json: params.as_bytes().to_vec(),
            estimated_cost_nanos: Some(1_000),
            nonce: nonce(),
            request_id: request_id(),
            ..sp::PreExecRequest::default()
        }
    }

    async fn ask(&self, request: &sp::PreExecRequest) -> sp::PreExecResponse {
        self.client.pre_exec(request.clone()).await.expect("a verdict")
    }

    async fn allowed(&mut self, params: &str) -> (sp::PreExecRequest, sp::PreExecResponse) {
        let request = self.request(params);
        let answer = self.ask(&request).await;
        assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
        (request, answer)
    }
}

/// Kills the leader and starts it again when another leads.
fn fail_over(cluster: &mut Cluster) {
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.leader();
    cluster.start(leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_over_failover_gets_its_answer_while_that_still_holds() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let mut agent = Agent::open(&cluster).await;

    // Its hold is open: the same answer, nothing written again.
    let (request, first) = agent.allowed("{\"to\":1}").await;
    fail_over(&mut cluster);
    let again = agent.ask(&request).await;
    assert!(again.replayed);
    assert_eq!(
        (again.verdict(), again.audit_sequence),
        (sp::Verdict::Allow, first.audit_sequence)
    );

    // Another payload under the same id is a conflict, and no verdict.
    let other = sp::PreExecRequest {
        params_json: b"{\"to\":2}".to_vec(),
        ..request.clone()
    };
    let conflict = agent.client.pre_exec(other).await.expect_err("a conflict");
    assert_eq!(
        client::error_detail(&conflict).expect("a detail").code,
        "REQUEST_CONFLICT"
    );

    // Settled: denied.
    let report = sp::PostExecNotification {
        session_id: agent.session.clone(),
        call_number: request.call_number,
        actual_cost_nanos: Some(500),
        success: true,
        ..sp::PostExecNotification::default()
    };
    agent.client.post_exec(&report).await.expect("a settlement");
    fail_over(&mut cluster);
    let settled = agent.ask(&request).await;
    assert_eq!(settled.reason, "policy_violation:duplicate_nonce");
    agent
        .client
        .post_exec(&report)
        .await
        .expect("the same report again is the same");

    // Stopped: denied; released: the hold is still open.
    let (request, first) = agent.allowed("{\"to\":3}").await;
    let scope = format!("session/{}", agent.session);
    cluster.json("operator", &["kill", "engage", &scope, "--reason", "test"]);
    fail_over(&mut cluster);
    assert_eq!(agent.ask(&request).await.reason, "run_halted:session");
    cluster.json(
        "admin",
        &["kill", "release", &scope, "--justification", "test over"],
    );
    assert_eq!(agent.ask(&request).await.audit_sequence, first.audit_sequence);

    // Tripped by a loop: denied.
    let (earlier, _) = agent.allowed("{\"to\":4}").await;
    for attempt in 0..4 {
        // A tool of its own: with the calls before, it would be a retry storm first.
        let request = sp::PreExecRequest {
            tool_name: "poll".to_owned(),
            ..agent.request("{\"loop\":true}")
        };
        let answer = agent.ask(&request).await;
        assert_eq!(
            answer.verdict() == sp::Verdict::Allow,
            attempt < 3,
            "attempt {attempt}: {answer:?}"
        );
    }
    fail_over(&mut cluster);
    assert_eq!(agent.ask(&earlier).await.reason, "circuit_open");
    cluster.json(
        "operator",
        &[
            "session",
            "reset",
            &agent.session,
            "--justification",
            "looked at it",
        ],
    );
    assert_eq!(agent.ask(&earlier).await.verdict(), sp::Verdict::Allow);

    // Ended: denied.
    agent.client.end_session(&agent.session).await.expect("the end");
    let ended = agent.ask(&earlier).await;
    assert_eq!(ended.reason, "session_terminated");
    cluster.wait_even();
}
