//! Which version of the rules holds: raised by a command that every member can follow, asked by nobody else; and what
//! else a batch brings besides its commands: who vouches for them, and the digest of what they changed.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use std::collections::BTreeMap;

use audit::{Entry, Signer, seal};
use decision::Timestamp;
use machine::command::{ActivateVersion, Init, Members, Principal, RegisterKey};
use machine::feature::OLDEST;
use machine::row::{Fault, Key, Read as _, Row};
use machine::{Batch, Change, Command, Context, Guard, Position, Refusal, Reply, VERSION, Working, apply};

const MEMBERS: [u64; 3] = [3, 5, 8];

#[derive(Default)]
struct World {
    rows: BTreeMap<Key, Row>,
    entries: Vec<Entry>,
    index: u64,
}

impl World {
    /// Founded with the oldest version.
    fn founded() -> Self {
        let mut world = Self::default();
        world.send(OLDEST, vec![init()]).unwrap();
        world
    }

    fn send(&mut self, version: u32, commands: Vec<Command>) -> Result<Vec<Reply>, Fault> {
        self.send_for(version, commands, Vec::new())
    }

    fn send_for(
        &mut self,
        version: u32,
        commands: Vec<Command>,
        vouched_by: Vec<Option<String>>,
    ) -> Result<Vec<Reply>, Fault> {
        self.index += 1;
        let context = Context {
            at: Position {
                term: 1,
                index: self.index,
            },
            members: &MEMBERS,
            entries: &self.entries.as_slice(),
        };
        let batch = Batch {
            proposed: Timestamp::from_nanos(self.index),
            seed: u128::from(self.index).to_be_bytes(),
            version,
            commands,
            vouched_by,
        };
        let mut working = Working::over(&self.rows);
        let applied = apply(&mut working, context, &batch)?;
        for change in working.into_changes() {
            match change {
                Change::Put(key, row) => drop(self.rows.insert(key, row)),
                Change::Delete(key) => drop(self.rows.remove(&key)),
            }
        }
        self.entries.extend(applied.entries);
        Ok(applied.replies)
    }

    fn version(&self) -> u32 {
        self.rows.cluster().unwrap().unwrap().version
    }
}

fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".into(),
        organization: None,
        agents: Vec::new(),
    }
}

fn init() -> Command {
    Command::Init(Init {
        chain_id: "chain".into(),
        by: root(),
        default_guard: Guard::default(),
        unfunded_organizations: false,
        fixtures: false,
    })
}

fn activate(version: u32, members: &[u64]) -> Command {
    Command::ActivateVersion(ActivateVersion {
        by: root(),
        version,
        members: members.to_vec(),
    })
}

fn members(change: &str) -> Command {
    Command::Members(Members {
        by: root(),
        change: change.into(),
    })
}

#[test]
fn a_cluster_begins_with_its_founders_version() {
    assert_eq!(World::founded().version(), OLDEST);
    let mut world = World::default();
    world.send(VERSION, vec![init()]).unwrap();
    assert_eq!(world.version(), VERSION);
}

#[test]
fn under_another_version_nothing_is_decided() {
    let mut world = World::founded();
    let (rows, entries) = (world.rows.clone(), world.entries.clone());
    for version in [OLDEST - 1, OLDEST + 1] {
        let replies = world.send(version, vec![members("a"), Command::Due]).unwrap();
        assert_eq!(
            replies,
            [Reply::OtherVersion(OLDEST), Reply::OtherVersion(OLDEST)]
        );
    }
    let cluster = |rows: &BTreeMap<Key, Row>| rows.cluster().unwrap();
    assert_eq!(cluster(&world.rows), cluster(&rows), "time did not move either");
    assert_eq!(world.entries, entries);
    assert_eq!(world.rows.len(), rows.len());
}

#[test]
fn a_version_is_raised_where_all_members_have_it_and_never_lowered() {
    let mut world = World::founded();
    let other = Principal {
        organization: Some(decision::OrganizationId::parse("acme").unwrap()),
        ..root()
    };
    let by_tenant = Command::ActivateVersion(ActivateVersion {
        by: other,
        version: VERSION,
        members: MEMBERS.to_vec(),
    });
    let refused = |reply: &Reply| matches!(reply, Reply::Refused(Refusal::Precondition(_)));
    for command in [
        activate(OLDEST, &MEMBERS),
        activate(OLDEST - 1, &MEMBERS),
        activate(VERSION + 1, &MEMBERS),
    ] {
        let replies = world.send(OLDEST, vec![command]).unwrap();
        assert!(refused(&replies[0]), "{replies:?}");
    }
    let replies = world.send(OLDEST, vec![by_tenant]).unwrap();
    assert!(
        matches!(replies[0], Reply::Refused(Refusal::NotYours(_))),
        "{replies:?}"
    );
    assert_eq!(world.version(), OLDEST);
}

#[cfg(feature = "made-up-version")]
#[test]
fn activation_names_exactly_the_members_and_holds_from_the_next_command_on() {
    let mut world = World::founded();
    for some in [&MEMBERS[..2], &[3, 5, 8, 9], &[8, 5, 3], &[]] {
        let replies = world.send(OLDEST, vec![activate(VERSION, some)]).unwrap();
        assert!(
            matches!(replies[0], Reply::Refused(Refusal::Precondition(_))),
            "{replies:?}"
        );
    }
    let replies = world
        .send(
            OLDEST,
            vec![activate(VERSION, &MEMBERS), members("under the old one")],
        )
        .unwrap();
    assert!(matches!(replies[0], Reply::Done(_)), "{replies:?}");
    assert_eq!(replies[1], Reply::OtherVersion(VERSION));
    let entry = world.entries.last().unwrap();
    assert_eq!(entry.kind, audit::Kind::VersionActivated);
    let said = audit::Detail::Activated {
        version: VERSION,
        members: MEMBERS.to_vec(),
    };
    assert_eq!(audit::Detail::of(entry), Ok(said));
    assert!(matches!(
        world.send(VERSION, vec![members("b")]).unwrap()[0],
        Reply::Done(_)
    ));
}

#[test]
fn a_binary_that_lacks_the_active_version_stops_and_does_not_speak_of_damage() {
    let mut world = World::founded();
    let mut cluster = world.rows.cluster().unwrap().unwrap();
    cluster.version = VERSION + 1;
    world.rows.insert(Key::Cluster, Row::Cluster(cluster));
    let fault = world.send(VERSION, vec![Command::Due]).unwrap_err();
    let needs = VERSION + 1;
    assert!(
        matches!(&fault, Fault::Version { needs: said, .. } if *said == needs),
        "{fault:?}"
    );
    let said = fault.to_string();
    assert!(said.contains(&format!("version {needs}")), "{said}");
    assert!(!said.contains("damaged"), "{said}");
    let mut empty = World::default();
    assert!(empty.send(VERSION + 1, vec![init()]).is_err());
}

#[test]
fn entries_name_the_node_that_vouches_for_their_command() {
    let mut world = World::founded();
    let vouched = vec![Some("n2".to_owned()), None];
    let commands = vec![members("a"), members("b"), members("c")];
    world.send_for(OLDEST, commands, vouched).unwrap();
    let names: Vec<_> = world
        .entries
        .iter()
        .map(|entry| entry.vouched_by.as_str())
        .collect();
    assert_eq!(names, ["", "n2", "", ""]);
}

#[test]
fn a_seal_that_does_not_verify_is_refused() {
    let mut world = World::founded();
    let signer = Signer::from_seed(&[7; 32]);
    let key = Command::RegisterKey(RegisterKey {
        node: "n1".into(),
        public: signer.public(),
    });
    world.send(OLDEST, vec![key, members("a")]).unwrap();
    let good = seal(&signer, &world.entries).unwrap();
    let mut entry_broken = good.clone();
    entry_broken.signatures[1][0] ^= 1;
    let mut chain_broken = good.clone();
    chain_broken.chain_signature = [0; 64];
    for broken in [entry_broken, chain_broken] {
        let replies = world.send(OLDEST, vec![Command::Seal(broken)]).unwrap();
        assert!(
            matches!(replies[0], Reply::Refused(Refusal::Invalid(_))),
            "{replies:?}"
        );
    }
    // Of entries of its own batch, too.
    let replies = world.send(OLDEST, vec![Command::Seal(good)]).unwrap();
    assert!(matches!(replies[0], Reply::Done(_)), "{replies:?}");
}

#[test]
fn the_digest_of_changes_is_of_batches_however_they_are_run() {
    let states = |together: bool| {
        let mut world = World::founded();
        let digest = |world: &World| world.rows.chain().unwrap().unwrap().state;
        let before = digest(&world);
        if together {
            // Two batches over one working set, as a run of log entries is applied.
            let mut working = Working::over(&world.rows);
            for (index, change) in [(2, "a"), (3, "b")] {
                let batch = Batch {
                    proposed: Timestamp::from_nanos(index),
                    seed: [0; 16],
                    version: OLDEST,
                    commands: vec![members(change), register(index)],
                    vouched_by: Vec::new(),
                };
                apply(&mut working, Position { term: 1, index }, &batch).unwrap();
            }
            return (before, working.chain().unwrap().unwrap().state);
        }
        for (index, change) in [(2, "a"), (3, "b")] {
            world
                .send(OLDEST, vec![members(change), register(index)])
                .unwrap();
        }
        (before, digest(&world))
    };
    let (before, after) = states(false);
    assert_ne!(before, after);
    assert_eq!(states(true), (before, after));
}

fn register(seed: u64) -> Command {
    let seed = u8::try_from(seed).unwrap();
    Command::RegisterKey(RegisterKey {
        node: format!("n{seed}"),
        public: Signer::from_seed(&[seed; 32]).public(),
    })
}
