//! One pure function: commands in; replies, audit entries and events out; changes in the rows it works on.

use audit::Entry;

use crate::command::{Batch, Command};
use crate::event::Event;
use crate::row::reply::{Refusal, Reply};
use crate::row::{Fault, Rows};
use crate::turn::{Context, Done, Stop, Turn};
use crate::working::Working;
use crate::{feature, op};

/// What a batch did, besides the rows it changed.
#[derive(Debug, Default)]
pub struct Applied {
    /// One a command, in order.
    pub replies: Vec<Reply>,
    /// The audit entries it made, linked to the chain.
    pub entries: Vec<Entry>,
    pub events: Vec<Event>,
}

/// Applies the commands of one log entry, one after the other, each seeing what the last one did.
///
/// Pure: the same rows, context and batch give the same answer, entries and rows on every replica.
///
/// # Errors
/// A `Fault` is never about the commands: the rows are broken or unreadable, or this binary lacks the version of the
/// rules that is active here. The node must stop.
pub fn apply<'c, R: Rows>(
    rows: &mut Working<'_, R>,
    context: impl Into<Context<'c>>,
    batch: &Batch,
) -> Result<Applied, Fault> {
    let mut replies = Vec::with_capacity(batch.commands.len());
    let mut turn = Turn::open(rows, context.into())?;
    for (ordinal, command) in (0..).zip(&batch.commands) {
        // The founder's batch says with which version a cluster begins.
        if !turn.begun {
            turn.cluster.version = batch.version;
        }
        let active = turn.version();
        feature::check(active)?;
        if batch.version != active {
            replies.push(Reply::OtherVersion(active));
            continue;
        }
        turn.begin(batch, ordinal);
        replies.push(match carry_out(&mut turn, command) {
            Ok(reply) => reply,
            Err(Stop::Refused(refusal)) => Reply::Refused(refusal),
            Err(Stop::Fault(fault)) => return Err(fault),
        });
    }
    let (entries, events) = turn.close();
    Ok(Applied {
        replies,
        entries,
        events,
    })
}

/// One match: every write there is, and who carries it out.
fn carry_out(turn: &mut Turn<'_>, command: &Command) -> Done {
    match command {
        Command::Init(init) => op::init::apply(turn, init),
        // Nothing is accepted before the cluster is initialised.
        _ if !turn.begun => Err(Refusal::NotInitialized.into()),
        Command::Register(register) => op::register::apply(turn, register),
        Command::PreExec(call) => op::pre_exec::apply(turn, call),
        Command::PostExec(report) => op::post_exec::apply(turn, report),
        Command::Seen(seen) => op::seen::apply(turn, seen),
        Command::EndSession(end) => op::end_session::apply(turn, end),
        Command::Due => op::due::apply(turn),
        Command::SetBudget(set) => op::set_budget::apply(turn, set),
        Command::GrantBudget(grant) => op::grant_budget::apply(turn, grant),
        Command::PutGuard(put) => op::put_guard::apply(turn, put),
        Command::Engage(engage) => op::engage::apply(turn, engage),
        Command::Release(release) => op::release::apply(turn, release),
        Command::Session(act) => op::session_act::apply(turn, act),
        Command::RegisterKey(key) => op::register_key::apply(turn, key),
        Command::Seal(seal) => op::seal::apply(turn, seal),
        Command::Members(members) => op::members::apply(turn, members),
        Command::Refused(refused) => op::refused::apply(turn, refused),
        Command::Fixture(fixture) => op::fixture::apply(turn, fixture),
        Command::Correct(correct) => op::correct::apply(turn, correct),
        Command::Redeem(redeem) => op::redeem::apply(turn, redeem),
        Command::Decide(decide) => op::decide::apply(turn, decide),
        Command::ActivateVersion(activate) => op::activate_version::apply(turn, activate),
    }
}
