//! PreExecStream: many questions on one connection, decided side by side, answered in their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::proto::shackle::v1 as proto;
use wire::{Code, Failure};

use crate::door::Ask;
use crate::roles::Rpc;
use crate::service::Streamed;
use crate::service::guard::Guarding;

/// One client's stream of questions.
pub(crate) struct Questions {
    pub guarding: Guarding,
    pub ask: Ask,
    pub incoming: Streaming<proto::PreExecRequest>,
}

type Answer = Result<proto::PreExecResponse, Status>;

/// A question that is being decided, and the place that it takes until it is answered.
type Deciding = (JoinHandle<Answer>, OwnedSemaphorePermit);

/// Answers a stream. A question that fails ends it.
pub(crate) fn answers(questions: Questions) -> Streamed<proto::PreExecResponse> {
    let most = questions.guarding.0.config.limits.stream_in_flight;
    let (deciding, in_order) = mpsc::channel(most);
    let (out, answers) = mpsc::channel(1);
    tokio::spawn(read(questions, Arc::new(Semaphore::new(most)), deciding));
    tokio::spawn(write(in_order, out));
    Box::pin(ReceiverStream::new(answers))
}

/// Takes questions while there is room; the client's stream waits otherwise.
async fn read(questions: Questions, room: Arc<Semaphore>, deciding: mpsc::Sender<Deciding>) {
    let Questions {
        guarding,
        ask,
        mut incoming,
    } = questions;
    let within = Duration::from_millis(guarding.0.config.limits.deadline_ms);
    let mut draining = guarding.0.draining.clone();
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
            Ok(Some(message)) => {
                let (guarding, ask) = (guarding.clone(), ask.again(Rpc::PreExec, within));
                tokio::spawn(async move {
                    guarding
                        .answer(&ask, message)
                        .await
                        .map_err(|failure| guarding.0.status(failure))
                })
            }
            Ok(None) => return,
            Err(status) => tokio::spawn(std::future::ready(Err(status))),
        };
        if deciding.send((handle, place)).await.is_err() {
            return;
        }
    }
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
