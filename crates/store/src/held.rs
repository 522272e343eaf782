//! The arguments of calls that wait for people: beside the state, never in the log, a snapshot or a hash, and gone
//! with the decision. A crash may lose them; whoever asks again brings them again, and other nodes have them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use decision::{ApprovalId, OrganizationId};

use crate::error::StoreError;
use crate::format;
use crate::guarded::Guarded;

/// Bytes of one call's arguments, or of its successor's.
pub const HELD_BYTES_MAX: usize = 64 << 10;
/// Bytes that one organization's calls may take on a node. Another's are never let go of for them.
const ORGANIZATION_BYTES_MAX: usize = 32 << 20;
/// Bytes in all: eight organizations at their largest.
const BYTES_MAX: usize = 256 << 20;

/// Whose arguments they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldPart {
    /// Of the call that was asked about.
    Call,
    /// Of the call that a person put in its place.
    Successor,
}

impl HeldPart {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Successor => "successor",
        }
    }
}

/// What waits for a decision on this node.
#[derive(Debug, Clone)]
pub struct HeldArguments(Arc<Guarded<Kept>>);

#[derive(Debug)]
struct Kept {
    place: Place,
    known: BTreeMap<(ApprovalId, HeldPart), Known>,
    total: usize,
    by_organization: BTreeMap<OrganizationId, usize>,
}

#[derive(Debug)]
struct Known {
    organization: OrganizationId,
    bytes: usize,
}

#[derive(Debug)]
enum Place {
    /// A file each; the organization's name is its first line.
    Directory(PathBuf),
    Memory(BTreeMap<(ApprovalId, HeldPart), Vec<u8>>),
}

impl HeldArguments {
    /// Opens the directory, or makes it, and takes in what is there.
    pub(crate) fn in_directory(dir: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&dir).map_err(StoreError::file(format!("making {}", dir.display())))?;
        let mut kept = Kept::new(Place::Directory(dir.clone()));
        let list = fs::read_dir(&dir).map_err(StoreError::file(format!("listing {}", dir.display())))?;
        for entry in list {
            let path = entry
                .map_err(StoreError::file(format!("listing {}", dir.display())))?
                .path();
            match read(&path) {
                Some((key, organization, bytes)) => kept.note(key, organization, bytes.len()),
                // Cut off by a crash, or nothing of ours.
                None => fs::remove_file(&path).map_err(StoreError::file("removing cut-off arguments"))?,
            }
        }
        Ok(Self(Arc::new(Guarded::new(kept))))
    }

    pub(crate) fn in_memory() -> Self {
        Self(Arc::new(Guarded::new(Kept::new(Place::Memory(BTreeMap::new())))))
    }

    /// Keeps arguments, in the place of any that were there.
    ///
    /// # Errors
    /// They are too large, there is no room for this organization's, or the disk refuses.
    pub fn put(
        &self,
        organization: &OrganizationId,
        approval: &ApprovalId,
        part: HeldPart,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let mut kept = self.0.lock();
        let key = (approval.clone(), part);
        kept.remove(&key);
        let of_organization = kept.by_organization.get(organization).copied().unwrap_or(0);
        if bytes.len() > HELD_BYTES_MAX
            || of_organization.saturating_add(bytes.len()) > ORGANIZATION_BYTES_MAX
            || kept.total.saturating_add(bytes.len()) > BYTES_MAX
        {
            return Err(StoreError::Busy(
                "keeping the arguments of as many calls as there is room for",
            ));
        }
        kept.write(&key, organization, bytes)
            .map_err(StoreError::file("keeping a call's arguments"))?;
        kept.note(key, organization.clone(), bytes.len());
        Ok(())
    }

    /// Gives arguments back; none where this node has none. Whoever shows them compares them with their digest.
    pub fn get(&self, approval: &ApprovalId, part: HeldPart) -> Option<Vec<u8>> {
        let kept = self.0.lock();
        let key = (approval.clone(), part);
        kept.known.get(&key)?;
        match &kept.place {
            Place::Memory(all) => all.get(&key).cloned(),
            Place::Directory(_) => read(&kept.path(&key)?).map(|(_, _, bytes)| bytes),
        }
    }

    /// Lets go of a part.
    pub fn remove(&self, approval: &ApprovalId, part: HeldPart) {
        self.0.lock().remove(&(approval.clone(), part));
    }

    /// Lets go of everything that this says no to.
    pub fn retain(&self, mut keep: impl FnMut(&ApprovalId, HeldPart) -> bool) {
        let mut kept = self.0.lock();
        let over: Vec<_> = kept
            .known
            .keys()
            .filter(|(approval, part)| !keep(approval, *part))
            .cloned()
            .collect();
        over.iter().for_each(|key| kept.remove(key));
    }
}

impl Kept {
    fn new(place: Place) -> Self {
        Self {
            place,
            known: BTreeMap::new(),
            total: 0,
            by_organization: BTreeMap::new(),
        }
    }

    fn path(&self, (approval, part): &(ApprovalId, HeldPart)) -> Option<PathBuf> {
        match &self.place {
            // An approval's id is letters, digits, dots and hyphens, and does not begin with a dot.
            Place::Directory(dir) => Some(dir.join(format!("{approval}.{}", part.suffix()))),
            Place::Memory(_) => None,
        }
    }

    fn write(
        &mut self,
        key: &(ApprovalId, HeldPart),
        organization: &OrganizationId,
        bytes: &[u8],
    ) -> io::Result<()> {
        let path = self.path(key);
        match &mut self.place {
            Place::Memory(all) => {
                all.insert(key.clone(), bytes.to_vec());
                Ok(())
            }
            Place::Directory(_) => {
                let path = path.ok_or_else(|| io::Error::other("no path"))?;
                let mut text = format!("{organization}\n").into_bytes();
                text.extend_from_slice(bytes);
                format::write_private(&path, &text)
            }
        }
    }

    fn note(&mut self, key: (ApprovalId, HeldPart), organization: OrganizationId, bytes: usize) {
        self.total = self.total.saturating_add(bytes);
        let of_organization = self.by_organization.entry(organization.clone()).or_default();
        *of_organization = of_organization.saturating_add(bytes);
        self.known.insert(key, Known { organization, bytes });
    }

    fn remove(&mut self, key: &(ApprovalId, HeldPart)) {
        let Some(Known { organization, bytes }) = self.known.remove(key) else {
            return;
        };
        self.total = self.total.saturating_sub(bytes);
        if let Some(of_organization) = self.by_organization.get_mut(&organization) {
            *of_organization = of_organization.saturating_sub(bytes);
            if *of_organization == 0 {
                self.by_organization.remove(&organization);
            }
        }
        let path = self.path(key);
        match (&mut self.place, path) {
            (Place::Memory(all), _) => drop(all.remove(key)),
            (Place::Directory(_), Some(path)) => {
                if let Err(error) = fs::remove_file(&path) {
                    tracing::error!(%error, path = %path.display(), "a decided call's arguments stay on disk");
                }
            }
            (Place::Directory(_), None) => {}
        }
    }
}

/// What a file holds; none where it is not a whole one of ours.
fn read(path: &std::path::Path) -> Option<((ApprovalId, HeldPart), OrganizationId, Vec<u8>)> {
    let name = path.file_name()?.to_str()?;
    let (approval, suffix) = name.rsplit_once('.')?;
    let part = [HeldPart::Call, HeldPart::Successor]
        .into_iter()
        .find(|part| part.suffix() == suffix)?;
    let text = fs::read(path).ok()?;
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (organization, bytes) = text.split_at_checked(end)?;
    let organization = OrganizationId::parse(std::str::from_utf8(organization).ok()?).ok()?;
    let approval = ApprovalId::parse(approval).ok()?;
    Some(((approval, part), organization, bytes.get(1..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use decision::{ApprovalId, OrganizationId};

    use super::{HELD_BYTES_MAX, HeldArguments, HeldPart, ORGANIZATION_BYTES_MAX};

    fn approval(number: usize) -> ApprovalId {
        ApprovalId::parse(&format!("appr-{number}.x")).unwrap()
    }

    fn organization(name: &str) -> OrganizationId {
        OrganizationId::parse(name).unwrap()
    }

    #[test]
    fn what_is_kept_is_there_after_a_restart_and_gone_when_it_is_let_go_of() {
        let dir = std::env::temp_dir().join(format!("haltgate-held-{}", std::process::id()));
        let acme = organization("acme");
        let held = HeldArguments::in_directory(dir.clone()).unwrap();
        held.put(&acme, &approval(1), HeldPart::Call, b"{\"a\":1}\n{}")
            .unwrap();
        held.put(&acme, &approval(1), HeldPart::Successor, b"{}").unwrap();
        held.put(&acme, &approval(2), HeldPart::Call, b"").unwrap();
        std::fs::write(dir.join("appr-3.call"), "cut off").unwrap();

        let held = HeldArguments::in_directory(dir.clone()).unwrap();
        assert_eq!(
            held.get(&approval(1), HeldPart::Call).as_deref(),
            Some(b"{\"a\":1}\n{}".as_slice())
        );
        assert_eq!(
            held.get(&approval(2), HeldPart::Call).as_deref(),
            Some(b"".as_slice())
        );
        assert_eq!(held.get(&approval(3), HeldPart::Call), None);
        held.remove(&approval(1), HeldPart::Call);
        held.retain(|approval, _| approval.as_str() == "appr-1.x");
        let names: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["appr-1.x.successor"]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn one_organization_fills_its_share_and_nobody_elses() {
        let held = HeldArguments::in_memory();
        let (acme, other) = (organization("acme"), organization("other"));
        let large = vec![0; HELD_BYTES_MAX];
        let fit = ORGANIZATION_BYTES_MAX / HELD_BYTES_MAX;
        for number in 0..fit {
            held.put(&acme, &approval(number), HeldPart::Call, &large)
                .unwrap();
        }
        assert!(held.put(&acme, &approval(fit), HeldPart::Call, b"{}").is_err());
        held.put(&other, &approval(fit), HeldPart::Call, &large).unwrap();
        assert!(
            held.put(
                &other,
                &approval(fit + 1),
                HeldPart::Call,
                &vec![0; HELD_BYTES_MAX + 1]
            )
            .is_err()
        );
        held.remove(&approval(0), HeldPart::Call);
        held.put(&acme, &approval(fit + 2), HeldPart::Call, &large)
            .unwrap();
        // The same again takes no more room.
        held.put(&acme, &approval(fit + 2), HeldPart::Call, &large)
            .unwrap();
    }
}
