//! Threads of their own for agents' calls. However many calls wait there, Raft, the other nodes and operators
//! share theirs with nobody, and the system's scheduler prefers them.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// How nice the threads are to the node's others (`nice`): where there are too few cores for all, a halt gets
/// three times the share of the calls it is to stop.
const NICE: i32 = 5;

/// The threads, until this is dropped.
#[derive(Debug)]
pub struct CallThreads(Option<Runtime>, Handle);

impl CallThreads {
    /// # Errors
    /// The system gives no more threads.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name("calls")
            .on_thread_start(be_nice)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok(Self(Some(runtime), handle))
    }

    pub fn handle(&self) -> &Handle {
        &self.1
    }
}

fn be_nice() {
    // None is the calling thread. Being nicer is never refused; if it were, only the preference is lost.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "calls have the priority of everything else");
    }
}

impl Drop for CallThreads {
    fn drop(&mut self) {
        // Never waits: it may be dropped by a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
