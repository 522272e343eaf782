//! Where gRPC comes in: one entry an RPC, made from the table in `wire::rpc`. Each is the same: let the request in,
//! have the service's function answer, say so.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status, Streaming};
use wire::rpc::Rpc;

use crate::accept::Caller;
use crate::admit::Ask;
use crate::door::Door;
use crate::service::{self, Streamed};

/// The services of the clients' port.
#[derive(Debug, Clone)]
struct Entry(Arc<Door>);

impl Entry {
    fn admit<M>(&self, request: Request<M>, rpc: Rpc) -> Result<(Ask, M), Status> {
        let limits = &self.0.config.limits;
        let within = deadline(request.metadata(), limits.deadline_ms, limits.deadline_max_ms);
        let caller = request.extensions().get::<Arc<Caller>>();
        match self.0.admit(caller, rpc, within) {
            Ok(ask) => Ok((ask, request.into_inner())),
            Err(failure) => Err(self.0.status(failure)),
        }
    }
}

macro_rules! entries {
    ($($path:literal = $package:ident::$module:ident::{$service:ident, $server:ident}, $file:ident, $urgency:ident {
        $($rpc:ident $name:ident $function:ident($request:ident) $reply:ident $who:ident $kind:ident $(($stream:ident))?)*
    })*) => {
        $(impl wire::rpc::$package::$module::$service for Entry {
            $(entry! { $kind $($stream)? $rpc, $file::$function, wire::rpc::$package::$request, wire::rpc::$package::$reply })*
        })*

        /// Adds all services.
        pub fn add_all(routes: &mut RoutesBuilder, door: &Arc<Door>) {
            let largest = door.config.limits.message_bytes;
            $(routes.add_service(
                wire::rpc::$package::$module::$server::new(Entry(Arc::clone(door))).max_decoding_message_size(largest),
            );)*
        }
    };
}

/// One function of a service's trait, as `async_trait` would write it.
macro_rules! entry {
    (one $rpc:ident, $file:ident::$function:ident, $request:ty, $reply:ty) => {
        entry! { $rpc, $file::$function, $request => $reply }
    };
    (many $stream:ident $rpc:ident, $file:ident::$function:ident, $request:ty, $reply:ty) => {
        type $stream = Streamed<$reply>;
        entry! { $rpc, $file::$function, $request => Streamed<$reply> }
    };
    (both $stream:ident $rpc:ident, $file:ident::$function:ident, $request:ty, $reply:ty) => {
        type $stream = Streamed<$reply>;
        entry! { $rpc, $file::$function, Streaming<$request> => Streamed<$reply> }
    };
    ($rpc:ident, $file:ident::$function:ident, $message:ty => $answer:ty) => {
        fn $function<'s, 'f>(
            &'s self,
            request: Request<$message>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$answer>, Status>> + Send + 'f>>
        where
            's: 'f,
            Self: 'f,
        {
            Box::pin(async move {
                let (ask, message) = self.admit(request, Rpc::$rpc)?;
                let answer = service::$file::$function(&self.0, &ask, message).await;
                answer
                    .map(Response::new)
                    .map_err(|failure| self.0.status(failure))
            })
        }
    };
}

wire::rpcs!(entries);

/// The client's deadline where it names one, a little earlier so that the answer still arrives; else the server's.
fn deadline(metadata: &MetadataMap, default_ms: u64, most_ms: u64) -> Duration {
    let most = Duration::from_millis(most_ms);
    let named = metadata
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(timeout);
    match named {
        Some(named) => {
            let margin = (named / 10).min(Duration::from_millis(10));
            named.saturating_sub(margin).min(most)
        }
        None => Duration::from_millis(default_ms),
    }
}

/// Reads gRPC's `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(amount.saturating_mul(3_600))),
        'M' => Some(Duration::from_secs(amount.saturating_mul(60))),
        'S' => Some(Duration::from_secs(amount)),
        'm' => Some(Duration::from_millis(amount)),
        'u' => Some(Duration::from_micros(amount)),
        'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::deadline;
    use std::time::Duration;
    use tonic::metadata::MetadataMap;

    #[test]
    fn a_deadline_is_the_clients_capped_or_the_servers() {
        let rows = [
            (None, Duration::from_secs(2)),
            (Some("1S"), Duration::from_millis(990)),
            (Some("250m"), Duration::from_millis(240)),
            (Some("50m"), Duration::from_millis(45)),
            (Some("100u"), Duration::from_micros(90)),
            (Some("0S"), Duration::ZERO),
            (Some("99999999H"), Duration::from_secs(60)),
            (Some("999999999S"), Duration::from_secs(2)),
            (Some("S"), Duration::from_secs(2)),
            (Some("+1S"), Duration::from_secs(2)),
            (Some("1s"), Duration::from_secs(2)),
            (Some(""), Duration::from_secs(2)),
        ];
        for (named, expected) in rows {
            let mut metadata = MetadataMap::new();
            if let Some(named) = named {
                metadata.insert("grpc-timeout", named.parse().unwrap());
            }
            assert_eq!(deadline(&metadata, 2_000, 60_000), expected, "{named:?}");
        }
    }
}
