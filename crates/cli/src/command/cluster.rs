//! `haltgate init`, `join`, `members`, `status`, `drain`, `activate-version`: the cluster itself.

use client::{Credentials, Pool, request_id};
use daemon::Config;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;

use crate::args::{ActivateVersion, Drain, Join, OfNode, Output, Remote as RemoteArgs, Status};
use crate::export::hex;
use crate::failed::Failed;
use crate::print;
use crate::remote::Remote;

pub async fn init(args: OfNode, output: Output) -> Result<(), Failed> {
    let answer = form(&args).await?;
    print::object(
        output,
        &json!({
            "cluster_id": answer.cluster_id,
            "formed": answer.formed,
            "members": answer.members.iter().map(|member| member.grpc_addr.clone()).collect::<Vec<_>>(),
        }),
    );
    Ok(())
}

/// Forms the cluster: asks the node of the configuration, with that node's own certificate.
pub async fn form(args: &OfNode) -> Result<admin::ClusterInitResponse, Failed> {
    let config = load(&args.config)?;
    let credentials = Credentials {
        ca: config.tls.ca.clone(),
        cert: config.tls.cert.clone(),
        key: config.tls.key.clone(),
    };
    let pool = Pool::open(&[config.member().client], &credentials)?;
    let request = admin::ClusterInitRequest {
        request_id: request_id(),
        members: Vec::new(),
    };
    Ok(pool.call(&request, args.timeout).await?)
}

/// Adds a running, pristine node: learner first, then voter.
pub async fn join(args: Join, output: Output) -> Result<(), Failed> {
    let config = load(&args.config)?;
    let own = Remote::open(&RemoteArgs {
        endpoints: vec![config.member().client],
        ..args.remote.clone()
    })?;
    let addresses = config.member();
    let pristine = own.call(admin::ClusterStatusRequest::default()).await?;
    let member = admin::Member {
        node_id: pristine.node_id,
        raft_id: pristine.raft_id,
        grpc_addr: addresses.client,
        peer_addr: addresses.peer,
        http_addr: addresses.http,
        ..admin::Member::default()
    };
    let remote = Remote::open(&args.remote)?;
    let raft_id = member.raft_id;
    let add = admin::ClusterAddLearnerRequest {
        request_id: request_id(),
        member: Some(member),
    };
    remote.call(add).await?;
    let promote = admin::ClusterPromoteRequest {
        request_id: request_id(),
        raft_id,
    };
    let answer = remote.call(promote).await?;
    print::object(
        output,
        &json!({ "raft_id": raft_id, "voter": true, "log_index": answer.log_index }),
    );
    Ok(())
}

pub async fn members(args: RemoteArgs, output: Output) -> Result<(), Failed> {
    let answer = Remote::open(&args)?.call(admin::ClusterMembersRequest {}).await?;
    let rows: Vec<Value> = answer
        .members
        .iter()
        .map(|member| {
            let mut row = member_row(member);
            if let Some(row) = row.as_object_mut() {
                row.insert("leader".to_owned(), json!(member.raft_id == answer.leader_id));
            }
            row
        })
        .collect();
    print::list(
        output,
        &rows,
        &["node", "raft_id", "grpc", "peer", "voter", "leader", "reachable"],
    );
    Ok(())
}

pub async fn status(args: Status, output: Output) -> Result<(), Failed> {
    let request = admin::ClusterStatusRequest {
        with_state_hash: args.state_hash,
    };
    let answer = Remote::open(&args.remote)?.call(request).await?;
    let head = answer.chain_head.clone().unwrap_or_default();
    print::object(
        output,
        &json!({
            "node": answer.node_id,
            "raft_id": answer.raft_id,
            "cluster_id": answer.cluster_id,
            "role": answer.role().as_str_name().trim_start_matches("NODE_ROLE_").to_lowercase(),
            "leader_id": answer.leader_id,
            "term": answer.term,
            "last_log_index": answer.last_log_index,
            "applied_index": answer.applied_index,
            "snapshot_index": answer.snapshot_index,
            "purged_index": answer.purged_index,
            "halt_epoch": answer.halt_epoch,
            "active_version": answer.active_version,
            "newest_version": answer.newest_version,
            "head_sequence": head.sequence,
            "head_hash": hex(&head.hash),
            "sealed_to": answer.sealed_to,
            "state_hash": hex(&answer.state_hash),
            "state_hash_index": answer.state_hash_index,
            "ready": answer.ready,
            "not_ready": answer.not_ready,
            "version": answer.version,
            "members": answer.members.iter().map(member_row).collect::<Vec<_>>(),
        }),
    );
    Ok(())
}

pub async fn drain(args: Drain, output: Output) -> Result<(), Failed> {
    let request = admin::ClusterTransferLeaderRequest {
        request_id: request_id(),
        to_raft_id: args.to.unwrap_or(0),
    };
    let answer = Remote::open(&args.remote)?.call(request).await?;
    print::object(
        output,
        &json!({ "leader_id": answer.leader_id, "term": answer.term }),
    );
    Ok(())
}

pub async fn activate_version(args: ActivateVersion, output: Output) -> Result<(), Failed> {
    let request = admin::ClusterActivateVersionRequest {
        request_id: request_id(),
        version: args.version.unwrap_or(0),
    };
    let answer = Remote::open(&args.remote)?.call(request).await?;
    print::object(
        output,
        &json!({ "version": answer.version, "log_index": answer.log_index }),
    );
    Ok(())
}

fn load(path: &std::path::Path) -> Result<Config, Failed> {
    Config::load(path).map_err(|error| Failed::usage(format!("{}: {error}", path.display())))
}

fn member_row(member: &admin::Member) -> Value {
    json!({
        "node": member.node_id, "raft_id": member.raft_id, "grpc": member.grpc_addr, "peer": member.peer_addr,
        "http": member.http_addr, "voter": member.voter, "reachable": member.reachable,
        "matched_index": member.matched_index,
    })
}
