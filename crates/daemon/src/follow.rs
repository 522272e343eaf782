//! Following what this node applies: streams wake on events, and look for themselves where they may have missed some.

use std::sync::Arc;
use std::time::Duration;

use machine::Event;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, watch};
use tonic::Status;
use wire::{Code, Failure};

use crate::door::Door;

/// Messages that wait for a slow reader.
pub const WAITING: usize = 64;
/// How often a stream looks for itself: an installed snapshot tells no events.
const LOOK: Duration = Duration::from_secs(1);

/// One stream's view of what happens.
pub struct Follow {
    events: broadcast::Receiver<Arc<Vec<Event>>>,
    draining: watch::Receiver<bool>,
}

impl Follow {
    /// From now on.
    pub fn new(door: &Door) -> Self {
        Self {
            events: door.node.reader().events(),
            draining: door.draining.clone(),
        }
    }

    /// What was applied next; nothing, where the state has to be looked at again. The status with which the stream
    /// ends, where the node stops or the reader is gone.
    pub async fn next<T>(&mut self, to: &mpsc::Sender<T>) -> Result<Option<Arc<Vec<Event>>>, Status> {
        let stopping =
            || Failure::new(Code::DaemonUnavailable, "this node is stopping: follow another").to_status();
        tokio::select! {
            events = self.events.recv() => match events {
                Ok(events) => Ok(Some(events)),
                Err(RecvError::Lagged(_)) => Ok(None),
                Err(RecvError::Closed) => Err(stopping()),
            },
            () = tokio::time::sleep(LOOK) => Ok(None),
            _ = self.draining.wait_for(|draining| *draining) => Err(stopping()),
            () = to.closed() => Err(Status::cancelled("the reader is gone")),
        }
    }
}
