//! Drills of the kill switch: over the whole cluster for operators, and of each node's own state before it is ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::PROBE_ORGANIZATION;
use decision::{
    AgentId, Digest, HaltScope, NanoUsd, OrganizationId, Reason, RequestId, SessionId, ToolName, Verdict,
};
use machine::Working;
use machine::command::{AgentPattern, EndSession, Engage, Params, PreExec, Principal, Register, Release};
use machine::row::{CALL_WINDOW, Fault, HaltMode, Read as _, Rows};
use machine::{Command, Reply, Scope};
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Code, Failure};

use crate::admit::Ask;
use crate::door::{Door, node_id};
use crate::judge::{suppose, verdict};

const AGENT: &str = "drill";
const WHY: &str = "drill";
/// How long a node has for its first DENY.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one question to a node may take.
const QUESTION: Duration = Duration::from_secs(1);
/// Nodes whose questions are told apart.
const NODES_MAX: u64 = 32;
/// The pause between two questions to one node.
const AGAIN: Duration = Duration::from_millis(20);

/// Runs the real path: a session of the reserved organization, an engagement, calls through every node, a release.
pub async fn drill(
    door: &Arc<Door>,
    ask: &Ask,
    _: proto::HaltsDrillRequest,
) -> Result<proto::HaltsDrillResponse, Failure> {
    let probe = probe()?;
    let session = door.propose(ask, register(&probe)?).await?.session;
    let begun = Instant::now();
    let (engaged, nodes) = tokio::join!(
        door.propose(ask, engage(ask.principal(), &session)?),
        ask_nodes(door, &probe, &session, begun),
    );
    let engaged = engaged.map(|halt| (halt, begun.elapsed()));
    // Whatever came out, nothing of it stays.
    let released = door.propose(ask, release(ask.principal(), &session)?).await;
    let ended = EndSession {
        by: probe.clone(),
        session: session.clone(),
    };
    door.propose(ask, ended).await?;
    let ((halt, engaged_after), _, nodes) = (engaged?, released?, nodes?);
    Ok(proto::HaltsDrillResponse {
        passed: passed(&nodes),
        engaged_after_us: micros(engaged_after),
        nodes,
        log_index: halt.place.log_index,
    })
}

/// Every node that answers has denied, and there is one.
fn passed(nodes: &[proto::NodeDrill]) -> bool {
    let denied = |node: &proto::NodeDrill| node.denied_after_us > 0;
    nodes.iter().all(|node| !node.reachable || denied(node)) && nodes.iter().any(denied)
}

/// Asks every node side by side until it denies.
async fn ask_nodes(
    door: &Arc<Door>,
    probe: &Principal,
    session: &SessionId,
    begun: Instant,
) -> Result<Vec<proto::NodeDrill>, Failure> {
    let members = door.node.status().members;
    let asking = members.into_iter().zip(1..).map(|(known, place)| async move {
        let mut told = proto::NodeDrill {
            node_id: node_id(&known.member),
            ..Default::default()
        };
        // Numbers and nonces of its own for each node, so that no question is another's retry, and all in one window.
        for number in (0..CALL_WINDOW / NODES_MAX).map(|round| round * NODES_MAX + place) {
            if begun.elapsed() >= PATIENCE {
                break;
            }
            let call = Command::PreExec(call(probe, session, number)?);
            let answer = door
                .node
                .probe(known.raft_id, known.member.clone(), &call, QUESTION)
                .await;
            told.reachable = answer.outcome.is_ok();
            let reply = match answer.outcome {
                Ok(Reply::Verdict(reply)) => reply,
                Ok(other) => {
                    told.answer = format!("{other:?}");
                    break;
                }
                Err(why) => {
                    told.answer = why;
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            told.answer = format!("{} {}", reply.verdict, reply.reason);
            let denies =
                reply.verdict == Verdict::Deny && reply.reason == Reason::RunHalted(HaltScope::Session);
            // Its own state has it too, not only the leader's that decided.
            if denies && answer.halt_epoch >= reply.place.halt_epoch {
                told.denied_after_us = micros(begun.elapsed());
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(told)
    });
    futures::future::join_all(asking).await.into_iter().collect()
}

/// The same on this node's own state, of which nothing is kept: before a node is ready, its kill switch has to hold.
pub fn holds<R: Rows>(rows: &R) -> Result<Result<(), String>, Fault> {
    if rows.cluster()?.is_none() {
        return Ok(Err("the cluster is being formed".to_owned()));
    }
    Ok(halted_on(rows)?.map_err(|what| format!("the drill of this node's kill switch failed: {what}")))
}

fn halted_on<R: Rows>(rows: &R) -> Result<Result<(), Failure>, Fault> {
    let mut working = Working::over(rows);
    let (probe, register) = match probe().and_then(|probe| Ok((probe.clone(), register(&probe)?))) {
        Ok(named) => named,
        Err(failure) => return Ok(Err(failure)),
    };
    let session = match suppose(&mut working, 0, register)? {
        Ok(registered) => registered.session,
        // A node that joins a drained cluster opens no session either.
        Err(failure) if failure.code == Code::FailedPrecondition => return Ok(Ok(())),
        Err(failure) => return Ok(Err(failure)),
    };
    let root = Principal {
        name: format!("cluster/admin/{AGENT}"),
        organization: None,
        agents: Vec::new(),
    };
    let (engage, question) = match (engage(root, &session), call(&probe, &session, 1)) {
        (Ok(engage), Ok(question)) => (engage, question),
        (Err(failure), _) | (_, Err(failure)) => return Ok(Err(failure)),
    };
    if let Err(failure) = suppose(&mut working, 0, engage)? {
        return Ok(Err(failure));
    }
    Ok(match suppose(&mut working, 0, question)?.and_then(verdict) {
        Ok(reply) if reply.verdict == Verdict::Deny && matches!(reply.reason, Reason::RunHalted(_)) => Ok(()),
        Ok(reply) => Err(Failure::new(
            Code::Internal,
            format!("a halted session was answered {} {}", reply.verdict, reply.reason),
        )),
        Err(failure) => Err(failure),
    })
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// What a name that is written in the program is not, is a bug.
fn named<T, E: std::fmt::Display>(parsed: Result<T, E>) -> Result<T, Failure> {
    parsed.map_err(|error| Failure::new(Code::Internal, error.to_string()))
}

fn probe() -> Result<Principal, Failure> {
    Ok(Principal {
        name: format!("org/{PROBE_ORGANIZATION}/agent/{AGENT}"),
        organization: Some(named(OrganizationId::parse(PROBE_ORGANIZATION))?),
        agents: vec![AgentPattern::Exact(named(AgentId::parse(AGENT))?)],
    })
}

fn register(probe: &Principal) -> Result<Register, Failure> {
    Ok(Register {
        by: probe.clone(),
        organization: named(OrganizationId::parse(PROBE_ORGANIZATION))?,
        agent: named(AgentId::parse(AGENT))?,
        resume: None,
        request: None,
        metadata: BTreeMap::new(),
        guard: None,
    })
}

fn engage(by: Principal, session: &SessionId) -> Result<Engage, Failure> {
    Ok(Engage {
        by,
        scope: Scope::Session(session.clone()),
        reason: WHY.to_owned(),
        ticket: String::new(),
        request: request(session, "engage")?,
        mode: HaltMode::Halt,
        ttl: None,
        two_person: false,
    })
}

fn release(by: Principal, session: &SessionId) -> Result<Release, Failure> {
    Ok(Release {
        by,
        scope: Scope::Session(session.clone()),
        justification: WHY.to_owned(),
        request: request(session, "release")?,
        ticket: String::new(),
    })
}

fn call(probe: &Principal, session: &SessionId, number: u64) -> Result<PreExec, Failure> {
    Ok(PreExec {
        by: probe.clone(),
        session: session.clone(),
        call_number: number,
        tool: named(ToolName::parse(AGENT))?,
        digest: Some(Digest::of(&number.to_be_bytes())),
        params: Params::Clear,
        estimate: Some(NanoUsd::ZERO),
        nonce: number,
        request: None,
        parent_guard: None,
        approval: None,
        numbers: Vec::new(),
        rules: None,
    })
}

/// One a session and order: sessions of drills are new each time.
fn request(session: &SessionId, order: &str) -> Result<machine::command::Request, Failure> {
    let digest = Digest::of(format!("{session} {order}").as_bytes());
    let id: String = digest
        .as_bytes()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(machine::command::Request {
        id: named(RequestId::parse(&id))?,
        payload: digest,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use decision::Timestamp;
    use machine::command::{Init, Principal};
    use machine::row::{Key, Row};
    use machine::{Batch, Command, Guard, Position};
    use machine::{Change, Working};

    use super::holds;

    #[test]
    fn a_fresh_state_passes_its_drill_and_one_without_a_cluster_does_not() {
        let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
        assert!(holds(&rows).unwrap().is_err());
        let batch = Batch {
            proposed: Timestamp::from_nanos(1),
            seed: [1; 16],
            version: machine::VERSION,
            vouched_by: Vec::new(),
            commands: vec![Command::Init(Init {
                chain_id: "c".to_owned(),
                by: Principal {
                    name: "cluster/admin/root".to_owned(),
                    organization: None,
                    agents: Vec::new(),
                },
                default_guard: Guard::default(),
                unfunded_organizations: false,
                fixtures: false,
            })],
        };
        let mut working = Working::over(&rows);
        machine::apply(&mut working, Position { term: 1, index: 1 }, &batch).unwrap();
        for change in working.into_changes() {
            if let Change::Put(key, row) = change {
                rows.insert(key, row);
            }
        }
        let before = rows.clone();
        assert_eq!(holds(&rows).unwrap(), Ok(()));
        assert_eq!(rows, before, "nothing is kept");
    }
}
