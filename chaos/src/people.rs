//! What people and agents do over gRPC that the load does not.

use std::time::Duration;

use client::{Registration, request_id};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1 as sp;

use crate::cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(10);

/// Replaces a guard, by the organization's operator.
pub async fn put_guard(cluster: &Cluster, scope: &str, config: sp::GuardConfig) {
    let request = admin::GuardsPutRequest {
        request_id: request_id(),
        scope: scope.to_owned(),
        config: Some(config),
        justification: "test".to_owned(),
    };
    cluster
        .pool_of(0, "operator")
        .call(&request, PATIENCE)
        .await
        .expect("the guard is put");
}

/// Opens a session through a node.
pub async fn register(cluster: &Cluster, node: usize, who: &str, agent: &str, guard: Option<&str>) -> String {
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: agent.to_owned(),
        guard: guard.map(str::to_owned),
        ..Registration::default()
    };
    let client = cluster.client_of(node, who).within(PATIENCE);
    let registered = client.register(&registration).await.expect("a session");
    registered.session_id
}
