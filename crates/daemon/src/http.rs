//! Probes and metrics: no identity is asked, no content is given.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use crate::door::Door;
use crate::emergency;

/// The routes of the HTTP port.
pub fn router(door: Arc<Door>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(door)
}

/// The process lives as long as Raft does.
async fn livez(State(door): State<Arc<Door>>) -> Response {
    match door.node.status().stopped {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("Raft has ended: {why}\n"),
        )
            .into_response(),
    }
}

/// It can decide, or says what is in the way, one line each.
async fn readyz(State(door): State<Arc<Door>>) -> Response {
    let mut obstacles = door.obstacles();
    // What was pulled by hand is not looked for: it holds from this moment on.
    if door.emergency.is_engaged() && obstacles.is_empty() {
        obstacles.push(emergency::ENGAGED.to_owned());
    }
    if obstacles.is_empty() {
        let text = match door.node.status().changing {
            true => "ready\na change of members is under way\n",
            false => "ready\n",
        };
        return (StatusCode::OK, text).into_response();
    }
    let mut lines = obstacles.join("\n");
    lines.push('\n');
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(door): State<Arc<Door>>) -> Response {
    crate::observe::now(&door);
    match door.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Connections of the HTTP port at once: probes and a few scrapers. Anyone may open one, so they are few, and
/// each lives for a bounded time.
const CONNECTIONS_MAX: usize = 64;
const CONNECTION_MAX: Duration = Duration::from_secs(10);

/// A listener that keeps few connections, none for long.
#[derive(Debug)]
pub struct Few {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Few {
    pub fn of(listener: TcpListener) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl axum::serve::Listener for Few {
    type Io = Brief;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Brief, SocketAddr) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                // Never closed.
                std::future::pending::<()>().await;
                continue;
            };
            let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
            let ends = Box::pin(tokio::time::sleep(CONNECTION_MAX));
            return (
                Brief {
                    stream,
                    ends,
                    _place: place,
                },
                address,
            );
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is up.
#[derive(Debug)]
pub struct Brief {
    stream: TcpStream,
    ends: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Brief {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ends.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Brief {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.ends.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
