//! Sessions heard from since this node last wrote them down.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use decision::SessionId;

/// Sessions heard from since the last `Seen` command of this node.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<BTreeSet<SessionId>>);

impl Heard {
    pub fn note(&self, session: SessionId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(session);
    }

    /// Takes at most this many out.
    pub fn take(&self, most: usize) -> Vec<SessionId> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sessions = Vec::new();
        while sessions.len() < most {
            let Some(session) = heard.pop_first() else { break };
            sessions.push(session);
        }
        sessions
    }
}
