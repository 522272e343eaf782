//! Goes on with a newer version of the rules. A cluster never goes back: what the newer one wrote, the older one may
//! not read.

use audit::{Detail, Entry, Kind};

use crate::command::ActivateVersion;
use crate::feature::VERSION;
use crate::row::reply::{Refusal, Reply};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, activate: &ActivateVersion) -> Done {
    turn.reaches(&activate.by, None, || "cluster".to_owned())?;
    let (active, version) = (turn.cluster.version, activate.version);
    if version <= active || version > VERSION {
        return Err(Refusal::Precondition(format!(
            "version {active} is active, and this release has none above {VERSION}: version {version} cannot be activated"
        ))
        .into());
    }
    // Those that answered have to be all there are here: one that was added since may not have the version.
    if activate.members != turn.members() {
        return Err(Refusal::Precondition(format!(
            "the members are {:?}, and {:?} said that they have version {version}: ask again",
            turn.members(),
            activate.members
        ))
        .into());
    }
    turn.cluster.version = version;
    let sequence = turn.record(Entry {
        operator_id: activate.by.name.clone(),
        detail: Detail::Activated {
            version,
            members: activate.members.clone(),
        }
        .to_string(),
        ..turn.entry(Kind::VersionActivated)
    });
    Ok(Reply::Done(turn.place(sequence)))
}
