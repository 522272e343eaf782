//! What each command is about, and the one reply that belongs to it: nobody proposes a command for somebody without
//! both.

use machine::command::{
    Correct, Decide, EndSession, Engage, GrantBudget, PostExec, PreExec, PutGuard, Redeem, Register, Release,
    SessionAct, SetBudget,
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

/// A row reads: the order and its command, the replies to it and what the caller is told of them, what it is about.
macro_rules! orders {
    ($($order:ident => $command:ident { $($reply:pat => $value:expr),+ } -> $answer:ty, about $target:expr;)*) => {
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

// What is only named by its session or approval is the machine's to compare: `Target::InState`.
orders! {
    Register    => Register    { Reply::Registered(it) => *it } -> Registered, about |_| Target::InState;
    PreExec     => PreExec     { Reply::Verdict(it) => Ok(it), Reply::Reevaluate(place) => Err(place) } -> Judged,
                                                                               about |_| Target::InState;
    PostExec    => PostExec    { Reply::Settled(it) => it } -> Settled,        about |_| Target::InState;
    EndSession  => EndSession  { Reply::Session(it, _) => it } -> SessionStatus, about |_| Target::InState;
    Redeem      => Redeem      { Reply::Redeemed(it) => it } -> Redeemed,      about |_| Target::InState;
    Decide      => Decide      { Reply::Approval(it) => it } -> ApprovalReply, about |_| Target::InState;
    SessionAct  => Session     { Reply::Session(it, at) => (it, at) } -> (SessionStatus, Place),
                                                                               about |_| Target::InState;
    Engage      => Engage      { Reply::Halt(it) => it } -> HaltReply,         about |it| of_scope(&it.scope);
    Release     => Release     { Reply::Halt(it) => it } -> HaltReply,         about |it| of_scope(&it.scope);
    SetBudget   => SetBudget   { Reply::Account(it, at) => (it, at) } -> (Account, Place), about |it| of_account(&it.account);
    GrantBudget => GrantBudget { Reply::Account(it, at) => (it, at) } -> (Account, Place), about |it| of_account(&it.account);
    Correct     => Correct     { Reply::Account(it, at) => (it, at) } -> (Account, Place), about |it| of_account(&it.account);
    PutGuard    => PutGuard    { Reply::Guard(it, at) => (*it, at) } -> (Guard, Place),
                                                                               about |it| of_guard_change(&it.scope);
}

/// What came of a call; an error, where nothing was decided: the guards that are current as of this place are others
/// than it was judged by.
pub type Judged = Result<VerdictReply, Place>;
