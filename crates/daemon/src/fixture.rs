//! The sessions of the workload authorize-v1 (docs/bench/authorize-v1.md), loaded once, by the leader, as commands
//! like all others.

use std::time::Duration;

use cluster::{Node, Unavailable, Urgency};
use decision::{AgentId, NanoUsd, OrganizationId, RequestId, SessionId};
use machine::command::{Fixture, FixtureSession, Limit, Principal, PutGuard, Request, SetBudget};
use machine::row::{Fault, Read as _, Rows};
use machine::{AccountId, Command, Guard, GuardScope, Reply};

const ORGANIZATION: &str = "org-0001";
/// Sessions of one command: some 60 KiB.
const SESSIONS: usize = 250;
/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);

const DOLLAR: i64 = 1_000_000_000;
/// A pool of sessions that are alike.
struct Pool {
    letter: &'static str,
    sessions: u32,
    /// Dollars.
    granted: i64,
    /// Dollars.
    spent: i64,
    tripped: bool,
    nonces: &'static [u64],
}

const HEALTHY: Pool = Pool {
    letter: "h",
    sessions: 10_000,
    granted: 1_000_000,
    spent: 0,
    tripped: false,
    nonces: &[],
};
/// The last pool is loaded last.
const POOLS: [Pool; 4] = [
    HEALTHY,
    Pool {
        letter: "x",
        sessions: 100,
        granted: 1,
        spent: 1,
        ..HEALTHY
    },
    Pool {
        letter: "t",
        sessions: 100,
        tripped: true,
        ..HEALTHY
    },
    Pool {
        letter: "r",
        sessions: 100,
        nonces: &[1],
        ..HEALTHY
    },
];
/// The session that is there only when all are.
const LAST: &str = "ses-r-00000099";

/// Says whether the sessions are there.
pub fn is_loaded<R: Rows>(rows: &R) -> Result<bool, Fault> {
    match SessionId::parse(LAST) {
        Ok(last) => Ok(rows.session(&last)?.is_some()),
        Err(_) => Ok(false),
    }
}

/// Loads the sessions as soon as this node leads, unless they are there.
pub async fn load(node: &Node) {
    let mut last_error = String::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if matches!(node.reader().at(|view| is_loaded(view)), Ok(Ok(true))) {
            return;
        }
        if !node.status().leads() {
            continue;
        }
        match load_all(node).await {
            Ok(()) => {
                tracing::info!("the benchmark's sessions are loaded");
                return;
            }
            Err(error) if error != last_error => {
                tracing::warn!(error, "the benchmark's sessions are not loaded yet");
                last_error = error;
            }
            Err(_) => {}
        }
    }
}

async fn load_all(node: &Node) -> Result<(), String> {
    for command in commands().map_err(|error| error.to_string())? {
        match node.propose(command, Urgency::Urgent, PATIENCE).await {
            Ok(Reply::Refused(refusal)) => return Err(refusal.to_string()),
            Ok(_) => {}
            Err(unavailable @ (Unavailable::NoLeader | Unavailable::NoQuorum | Unavailable::Overloaded)) => {
                return Err(unavailable.to_string());
            }
            Err(unavailable) => return Err(unavailable.to_string()),
        }
    }
    Ok(())
}

/// The organization's limit and guard, then the sessions.
fn commands() -> Result<Vec<Command>, decision::InvalidId> {
    let organization = OrganizationId::parse(ORGANIZATION)?;
    let by = Principal {
        name: "fixture".to_owned(),
        organization: None,
        agents: Vec::new(),
    };
    let request = |id: &str| {
        Ok(Request {
            id: RequestId::parse(id)?,
            payload: decision::Digest::of(id.as_bytes()),
        })
    };
    let mut commands = vec![
        Command::SetBudget(SetBudget {
            by: by.clone(),
            account: AccountId::Organization(organization.clone()),
            limit: Limit::Amount(NanoUsd::new(DOLLAR.saturating_mul(1_000_000_000))),
            request: request("fixture-budget")?,
            justification: String::new(),
        }),
        Command::PutGuard(PutGuard {
            by,
            scope: GuardScope::Organization(organization.clone()),
            guard: Guard::default(),
            request: request("fixture-guard")?,
            justification: String::new(),
        }),
    ];
    for Pool {
        letter,
        sessions: count,
        granted,
        spent,
        tripped,
        nonces,
    } in POOLS
    {
        let mut sessions = Vec::new();
        for number in 0..count {
            sessions.push(FixtureSession {
                session: SessionId::parse(&format!("ses-{letter}-{number:08}"))?,
                organization: organization.clone(),
                agent: AgentId::parse(&format!("agt-{:06}", number / 10))?,
                granted: NanoUsd::new(DOLLAR.saturating_mul(granted)),
                spent: NanoUsd::new(DOLLAR.saturating_mul(spent)),
                tripped,
                nonces: nonces.to_vec(),
            });
        }
        let chunks = sessions.chunks(SESSIONS).map(|chunk| {
            Command::Fixture(Fixture {
                sessions: chunk.to_vec(),
            })
        });
        commands.extend(chunks);
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::{LAST, commands, is_loaded};
    use machine::Working;
    use machine::command::{Init, Principal};
    use machine::row::{Key, Row};
    use machine::{Batch, Command, Guard, Position, Reply};
    use std::collections::BTreeMap;

    #[test]
    fn the_pools_are_applied_and_then_known_as_loaded() {
        let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
        let by = Principal {
            name: "test".to_owned(),
            organization: None,
            agents: Vec::new(),
        };
        let init = Command::Init(Init {
            chain_id: "chain".to_owned(),
            by,
            default_guard: Guard::default(),
            unfunded_organizations: false,
            fixtures: true,
        });
        for (index, command) in std::iter::once(init).chain(commands().unwrap()).enumerate() {
            assert!(!is_loaded(&rows).unwrap());
            let batch = Batch {
                proposed: decision::Timestamp::from_nanos(1),
                seed: [0; 16],
                version: machine::VERSION,
                commands: vec![command],
            };
            let mut working = Working::over(&rows);
            let position = Position {
                term: 1,
                index: u64::try_from(index).unwrap(),
            };
            let applied = machine::apply(&mut working, position, &batch).unwrap();
            assert!(
                !matches!(applied.replies[0], Reply::Refused(_)),
                "{:?}",
                applied.replies
            );
            for change in working.into_changes() {
                match change {
                    machine::Change::Put(key, row) => drop(rows.insert(key, row)),
                    machine::Change::Delete(key) => drop(rows.remove(&key)),
                }
            }
        }
        assert!(is_loaded(&rows).unwrap(), "{LAST}");
        let sessions = rows.keys().filter(|key| matches!(key, Key::Session(_))).count();
        assert_eq!(sessions, 10_300);
    }
}
