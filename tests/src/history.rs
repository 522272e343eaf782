//! What clients asked and were told, in simulated time.

use std::fmt::Write as _;
use std::time::Duration;

use machine::{Command, Reply};

/// One attempt: a command sent once, and what came back, if anything.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub client: usize,
    pub node: String,
    pub command: Command,
    pub invoked: Duration,
    pub returned: Duration,
    pub reply: Option<Reply>,
}

/// Every attempt of a run, in the order in which they ended.
#[derive(Debug, Default)]
pub struct History {
    pub attempts: Vec<Attempt>,
    trace: String,
}

impl History {
    pub fn push(&mut self, attempt: Attempt) {
        // Writing into a string cannot fail.
        let _written = writeln!(
            self.trace,
            "{:?} {:?} c{} {} {:?} -> {:?}",
            attempt.invoked, attempt.returned, attempt.client, attempt.node, attempt.command, attempt.reply
        );
        self.attempts.push(attempt);
    }

    pub fn note(&mut self, at: Duration, what: &str) {
        let _written = writeln!(self.trace, "{at:?} {what}");
    }

    /// Everything that happened, byte for byte: the same seed gives the same.
    pub fn trace(&self) -> &str {
        &self.trace
    }

    /// Attempts that were answered.
    pub fn answered(&self) -> impl Iterator<Item = (&Attempt, &Reply)> {
        self.attempts
            .iter()
            .filter_map(|attempt| attempt.reply.as_ref().map(|reply| (attempt, reply)))
    }
}
