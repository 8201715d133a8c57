//! A request's body, read whole before the request takes its place on the stage: a burst shall not
//! wait for a slow client, and a request that is to be sent again must still be there.

use crate::answer::Refusal;
use crate::budget::{Budget, Share};
use crate::config::Limits;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    /// Its part of all bodies' memory.
    _share: Share,
}

pub(crate) async fn read(body: Incoming, limits: &Limits, budget: &Budget) -> Result<Whole, Refusal> {
    let announced = body.size_hint();
    if announced.lower() > limits.body {
        return Err(too_large(limits));
    }
    let share = budget.take(announced.lower()).ok_or_else(no_memory)?;
    if body.is_end_stream() {
        return Ok(Whole { bytes: Bytes::new(), _share: share });
    }
    let whole = Box::pin(gather(body, limits, share));
    tokio::time::timeout(limits.client.into(), whole).await.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come within {}", limits.client),
        ))
    })
}

async fn gather(mut body: Incoming, limits: &Limits, mut share: Share) -> Result<Whole, Refusal> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::bad(format!("the body broke off: {error}")))?;
        // Trailers of requests have no use that a server may rely on (RFC 9110, 6.5.1).
        let Ok(data) = frame.into_data() else { continue };
        let length = (first.len() + all.len() + data.len()) as u64;
        if length > limits.body {
            return Err(too_large(limits));
        }
        if !share.grow_to(length) {
            return Err(no_memory());
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(Whole { bytes: if all.is_empty() { first } else { all.freeze() }, _share: share })
}

fn too_large(limits: &Limits) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {} bytes here", limits.body))
}

fn no_memory() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too much is held already; come back in a second")
}
