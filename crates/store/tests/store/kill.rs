//! kill -9 at random moments: a child writes and says what was acknowledged, the parent kills it and looks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use openraft::RaftLogReader;
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use store::{Options, Store, Vote};

use crate::fixture::{Dice, TempDir, append, apply, entries, log_id, read, recover, reference};

const DIR: &str = "HALTGATE_STORE_KILL_DIR";
const KILLS: u64 = 40;

#[test]
fn what_was_acknowledged_survives_kill_nine() {
    let dir = TempDir::new();
    let mut dice = Dice(0x6b11);
    let mut said: BTreeMap<String, u64> = BTreeMap::new();
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child", "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + dice.roll(60);
        while left > 0 {
            let line = lines
                .next()
                .expect("the child ended before it was killed")
                .unwrap();
            left -= u64::from(note(&mut said, &line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said until then counts too; a line may be cut off.
        for line in lines.map_while(Result::ok) {
            note(&mut said, &line);
        }
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(look(&dir, &said, kill));
    }
    assert!(
        said["append"] > 100 && said["purge"] > 0 && said["snapshot"] > 0,
        "too little happened: {said:?}"
    );
}

/// Takes in a line such as `append 7.`; says whether it was one.
fn note(said: &mut BTreeMap<String, u64>, line: &str) -> bool {
    let Some((what, number)) = line.strip_suffix('.').and_then(|line| line.split_once(' ')) else {
        return false;
    };
    let Ok(number) = number.parse() else { return false };
    said.insert(what.to_owned(), number);
    true
}

async fn look(dir: &TempDir, said: &BTreeMap<String, u64>, kill: u64) {
    let said = |what: &str| said.get(what).copied().unwrap_or(0);
    let mut store = Store::open(dir.path(), Options::default()).unwrap();
    let log = store.log.get_log_state().await.unwrap();
    let first = log.last_purged_log_id.map_or(0, |id| id.index + 1);
    let next = log.last_log_id.map_or(0, |id| id.index + 1);
    assert!(
        next >= said("append"),
        "kill {kill}: {next} entries, {} were acknowledged",
        said("append")
    );
    assert!(first >= said("purge"), "kill {kill}");
    assert_eq!(
        read(&mut store, 0..u64::MAX).await,
        entries(first..next),
        "kill {kill}"
    );
    let vote = store.log.get_log_reader().await.read_vote().await.unwrap();
    assert!(
        vote.map_or(0, |vote| vote.leader_id.term) >= said("vote"),
        "kill {kill}"
    );
    // The process died, the machine did not: what was applied is there, too.
    let applied = store
        .state
        .applied_state()
        .await
        .unwrap()
        .0
        .map_or(0, |id| id.index + 1);
    assert!(applied >= said("apply"), "kill {kill}");
    let snapshot = store
        .snapshots
        .current()
        .and_then(|data| data.info().applied)
        .map_or(0, |id| id.index + 1);
    assert!(snapshot >= said("snapshot"), "kill {kill}");
    if applied > 0 {
        assert_eq!(
            store.reader.state_hash().await.unwrap(),
            reference(applied - 1).await,
            "kill {kill}"
        );
    }
    recover(&mut store).await;
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by what_was_acknowledged_survives_kill_nine"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = Store::open(
        dir.as_ref(),
        Options {
            log_memory_bytes: 20_000,
            ..Options::default()
        },
    )
    .unwrap();
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(write_forever(store));
}

async fn write_forever(mut store: Store) {
    let say = |what: &str, number: u64| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{what} {number}.").unwrap();
        out.flush().unwrap();
    };
    let log = store.log.get_log_state().await.unwrap();
    let mut next = log.last_log_id.map_or(0, |id| id.index + 1);
    let mut purged = log.last_purged_log_id.map_or(0, |id| id.index + 1);
    let mut term = store
        .log
        .get_log_reader()
        .await
        .read_vote()
        .await
        .unwrap()
        .map_or(0, |vote| vote.leader_id.term);
    recover(&mut store).await;
    let mut applied = store
        .state
        .applied_state()
        .await
        .unwrap()
        .0
        .map_or(0, |id| id.index + 1);
    let mut dice = Dice(next);
    // INVARIANT: a purge follows every snapshot before the log grows far, so the reference stays cheap.
    while next < 2_000 {
        match dice.roll(16) {
            0..=7 => {
                let until = next + 1 + dice.roll(5);
                append(&mut store, next..until).await;
                next = until;
                say("append", next);
            }
            8..=11 if next > applied => {
                let until = applied + 1 + dice.roll(next - applied);
                store.log.save_committed(Some(log_id(until - 1))).await.unwrap();
                let run = read(&mut store, applied..until).await;
                apply(&mut store, run).await;
                applied = until;
                say("apply", applied);
            }
            12 | 13 => {
                term += 1;
                store.log.save_vote(&Vote::new(term, 1)).await.unwrap();
                say("vote", term);
            }
            14 if applied > purged => {
                purged += 1 + dice.roll(applied - purged);
                store.log.purge(log_id(purged - 1)).await.unwrap();
                say("purge", purged);
            }
            15 if applied > 0 && dice.roll(4) == 0 => {
                store.snapshots.build().await.unwrap();
                say("snapshot", applied);
            }
            _ => {}
        }
    }
}
