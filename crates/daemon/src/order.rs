//! What each command is about, and the one reply that belongs to it: nobody proposes a command for somebody without
//! both.

use machine::command::{
    AttachShown, Correct, Decide, EndSession, Engage, GrantBudget, PostExec, PreExec, PutGuard, Redeem,
    Register, Release, SessionAct, SetBudget,
};
use machine::reply::{ApprovalReply, HaltReply, Place, Redeemed, Registered, Settled, VerdictReply};
use machine::row::{Account, SessionStatus};
use machine::{Command, Guard, Reply};
use wire::{Code, Failure};

use crate::roles::{Target, of_account, of_guard_change, of_scope};

/// A command that somebody gives.
pub trait Order: Sized {
    type Answer;

    /// What the caller's role has to reach.
    fn target(&self) -> Target<'_>;

    fn command(self) -> Command;

    /// The answer; none where the reply belongs to another command.
    fn answer(reply: Reply) -> Option<Self::Answer>;
}

/// Reads the reply to an order.
pub fn answer_to<O: Order>(reply: Option<Reply>) -> Result<O::Answer, Failure> {
    match reply {
        Some(Reply::Refused(refusal)) => Err(refusal.into()),
        // A bug, and nothing was allowed.
        reply => reply.and_then(O::answer).ok_or_else(|| {
            Failure::new(
                Code::Internal,
                "the cluster answered something else than was asked",
            )
        }),
    }
}

/// A row reads: the order and its command, the reply, what the caller is told of it, and what the order is about.
macro_rules! orders {
    ($($order:ident is $command:ident, $($reply:pat => $value:expr),+ => $answer:ty, about $target:expr;)*) => {
        $(impl Order for $order {
            type Answer = $answer;

            fn target(&self) -> Target<'_> {
                let of: fn(&Self) -> Target<'_> = $target;
                of(self)
            }

            fn command(self) -> Command {
                Command::$command(self)
            }

            fn answer(reply: Reply) -> Option<$answer> {
                match reply {
                    $($reply => Some($value),)+
                    _ => None,
                }
            }
        })*
    };
}

// What is only named by a session or an approval is the machine's to compare: `Target::InState`.
orders! {
    Register is Register, Reply::Registered(it) => *it => Registered, about |_| Target::InState;
    PreExec is PreExec,
        Reply::Verdict(it) => Ok(it),
        Reply::Reevaluate(place) => Err(place) => Judged, about |_| Target::InState;
    PostExec is PostExec, Reply::Settled(it) => it => Settled, about |_| Target::InState;
    EndSession is EndSession, Reply::Session(status, _) => status => SessionStatus, about |_| Target::InState;
    AttachShown is AttachShown, Reply::Approval(it) => it => ApprovalReply, about |_| Target::InState;
    Redeem is Redeem, Reply::Redeemed(it) => it => Redeemed, about |_| Target::InState;
    Decide is Decide, Reply::Approval(it) => it => ApprovalReply, about |_| Target::InState;
    SessionAct is Session, Reply::Session(status, place) => (status, place) => (SessionStatus, Place),
        about |_| Target::InState;
    Engage is Engage, Reply::Halt(it) => it => HaltReply, about |engage| of_scope(&engage.scope);
    Release is Release, Reply::Halt(it) => it => HaltReply, about |release| of_scope(&release.scope);
    SetBudget is SetBudget, Reply::Account(it, place) => (it, place) => (Account, Place),
        about |set| of_account(&set.account);
    GrantBudget is GrantBudget, Reply::Account(it, place) => (it, place) => (Account, Place),
        about |grant| of_account(&grant.account);
    Correct is Correct, Reply::Account(it, place) => (it, place) => (Account, Place),
        about |correct| of_account(&correct.account);
    PutGuard is PutGuard, Reply::Guard(it, place) => (*it, place) => (Guard, Place),
        about |put| of_guard_change(&put.scope);
}

/// What came of a call; an error, where nothing was decided: the guards that are current as of this place are others
/// than it was judged by.
pub type Judged = Result<VerdictReply, Place>;
