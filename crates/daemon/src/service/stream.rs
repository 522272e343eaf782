//! PreExecStream: many questions on one connection, decided side by side, answered in their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::proto::shackle::v1 as proto;
use wire::rpc::Rpc;
use wire::{Code, Failure};

use crate::accept::Caller;
use crate::admit::Ask;
use crate::door::Door;
use crate::layer::with_detail;
use crate::road;
use crate::service::Streamed;

type Answer = Result<proto::PreExecResponse, Status>;

/// A question that is being decided, and the place that it takes until it is answered.
type Deciding = (JoinHandle<Answer>, OwnedSemaphorePermit);

/// Answers a stream. A question that fails ends it.
pub async fn pre_exec_stream(
    door: &Arc<Door>,
    ask: &Ask,
    incoming: Streaming<proto::PreExecRequest>,
) -> Result<Streamed<proto::PreExecResponse>, Failure> {
    let most = door.config.limits.stream_in_flight;
    let (deciding, in_order) = mpsc::channel(most);
    let (out, answers) = mpsc::channel(1);
    let (door, caller) = (Arc::clone(door), Arc::clone(&ask.caller));
    tokio::spawn(read(
        door,
        caller,
        incoming,
        Arc::new(Semaphore::new(most)),
        deciding,
    ));
    tokio::spawn(write(in_order, out));
    Ok(Box::pin(ReceiverStream::new(answers)))
}

/// Takes questions while there is room; the client's stream waits otherwise.
async fn read(
    door: Arc<Door>,
    caller: Arc<Caller>,
    mut incoming: Streaming<proto::PreExecRequest>,
    room: Arc<Semaphore>,
    deciding: mpsc::Sender<Deciding>,
) {
    let mut draining = door.draining.clone();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let message = tokio::select! {
            message = incoming.message() => message,
            _ = draining.wait_for(|draining| *draining) => return,
            () = deciding.closed() => return,
        };
        let handle = match message {
            Ok(Some(message)) => tokio::spawn(answer(Arc::clone(&door), Arc::clone(&caller), message)),
            Ok(None) => return,
            Err(status) => tokio::spawn(std::future::ready(Err(with_detail(&status)))),
        };
        if deciding.send((handle, place)).await.is_err() {
            return;
        }
    }
}

/// Each question is admitted by itself: the stream may outlive the certificate.
async fn answer(door: Arc<Door>, caller: Arc<Caller>, message: proto::PreExecRequest) -> Answer {
    let within = Duration::from_millis(door.config.limits.deadline_ms);
    let answer = match door.admit(Some(&caller), Rpc::PreExec, within) {
        Ok(ask) => road::pre_exec(&door, &ask, message).await,
        Err(failure) => Err(failure),
    };
    answer.map_err(|failure| door.status(failure))
}

/// Gives the answers in the order of their questions.
async fn write(mut in_order: mpsc::Receiver<Deciding>, out: mpsc::Sender<Answer>) {
    while let Some((handle, place)) = in_order.recv().await {
        let answer = handle.await.unwrap_or_else(|_panicked| {
            Err(Failure::new(Code::Internal, "the question could not be answered").to_status())
        });
        let failed = answer.is_err();
        drop(place);
        if out.send(answer).await.is_err() || failed {
            return;
        }
    }
}
