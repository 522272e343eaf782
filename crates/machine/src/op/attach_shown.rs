//! The parameters of a held call, from the node that has them: what the approver sees.

use audit::Kind;
use decision::Digest;

use crate::command::AttachShown;
use crate::row::ApprovalStatus;
use crate::row::reply::{Refusal, Reply};
use crate::step::approval;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, shown: &AttachShown) -> Done {
    let mut approval = approval::named(turn, &shown.approval)?;
    if !shown.by.speaks_for(&approval.organization, &approval.agent) {
        return Err(turn.not_yours(&shown.by, format!("approval/{}", approval.id)));
    }
    if approval.status != ApprovalStatus::Pending || !approval.params.is_empty() {
        return Ok(Reply::Approval(approval::reply(turn, &approval, 0)));
    }
    if decision::params::inspect(&shown.params).digest != approval.digest || approval.digest.is_none() {
        let other = "the parameters are not those of the held call";
        return Err(Refusal::Invalid(other.to_owned()).into());
    }
    approval.params.clone_from(&shown.params);
    approval.info_digest = Digest::of(&approval.shown(&approval.id));
    let sequence = turn.record(approval::entry(turn, Kind::ApprovalShown, &approval));
    let answer = approval::reply(turn, &approval, sequence);
    approval::save(turn, approval);
    Ok(Reply::Approval(answer))
}
