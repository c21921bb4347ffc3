//! The exchange of an active check: one request, and as much of its response as decides.

use std::{future::poll_fn, io::IoSlice};

use cardea_http::{
    Method, ResponseHead,
    h1::{Framing, HeadLimits, wants_keep_alive},
};
use cardea_upstream::{CHECK_BODY_BYTES_MAX, CheckConfig, CheckMethod, CheckResult, FailureKind};

use super::response::HeadReader;
use crate::{
    body::BodyError, buffer::Buffer, framing::BodyReader, transport::Transport, upstream::HeadError,
};

/// How large the head of a response may be.
const HEAD_LIMITS: fn() -> HeadLimits =
    || HeadLimits { head_bytes_max: 16 << 10, fields_max: 100, ..HeadLimits::default() };

/// The most that is read and thrown away of a response that has been judged, in bytes; beyond it, a new connection is cheaper.
const REST_BYTES_MAX: usize = 64 << 10;

/// The server is tired of waiting for a request (RFC 9110 §15.5.9).
const REQUEST_TIMEOUT: u16 = 408;

const CLOSED: CheckResult = CheckResult::Failed(FailureKind::Closed);
const MALFORMED: CheckResult = CheckResult::Failed(FailureKind::Malformed);

/// What came of a request.
pub(crate) struct Answer {
    pub(crate) result: CheckResult,
    /// The connection ended without a response to the request, so that one that was used before may have been closed earlier.
    pub(crate) is_unanswered: bool,
    /// What is left of the response; none where the connection can't be used again.
    pub(crate) rest: Option<Rest>,
}

impl Answer {
    pub(crate) const fn failed(result: CheckResult) -> Self {
        Self { result, is_unanswered: false, rest: None }
    }

    const fn none() -> Self {
        Self { result: CLOSED, is_unanswered: true, rest: None }
    }
}

/// What is left of a response that has been judged, on its connection.
pub(crate) struct Rest {
    transport: Transport,
    inbound: Buffer,
    body: BodyReader,
}

impl Rest {
    /// Reads the rest, and returns the connection if another request can be sent there.
    pub(crate) async fn finish(mut self) -> Option<Transport> {
        let mut left = REST_BYTES_MAX;
        let Self { transport, inbound, body } = &mut self;
        while poll_fn(|cx| body.poll_data(cx, transport, inbound)).await.ok()? {
            let available = body.available();
            left = left.checked_sub(available)?;
            body.consume(inbound, available);
        }
        // What follows the response belongs to nothing.
        let is_whole = inbound.is_empty();
        inbound.release();
        is_whole.then_some(self.transport)
    }
}

/// The request of a check. Its parts were checked when the configuration was read.
pub(crate) fn request(host: &str, config: &CheckConfig) -> Vec<u8> {
    let (method, path) = (method(config), &config.path);
    let method = method.as_str();
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: cardea-health-check\r\n\r\n")
        .into_bytes()
}

const fn method(config: &CheckConfig) -> Method {
    match config.method {
        CheckMethod::Get => Method::Get,
        CheckMethod::Head => Method::Head,
        CheckMethod::Options => Method::Options,
    }
}

/// Sends the [`request`] of a check and judges the response. A redirect is a response like any other: it is not followed.
pub(crate) async fn exchange(mut transport: Transport, request: &[u8], config: &CheckConfig) -> Answer {
    if send(&mut transport, request).await.is_err() {
        return Answer::none();
    }
    let mut inbound = Buffer::new();
    let mut reader = HeadReader::new(method(config), HEAD_LIMITS());
    let mut head = ResponseHead::default();
    let framing = loop {
        let read = poll_fn(|cx| reader.poll(cx, &mut transport, &mut inbound, &mut head)).await;
        match read {
            Ok(Some(framing)) => break framing,
            Ok(None) => {}
            Err(HeadError::EndedBefore) => return Answer::none(),
            Err(HeadError::Malformed(_) | HeadError::TooManyInformational) => {
                return Answer::failed(MALFORMED);
            }
            Err(_) => return Answer::failed(CLOSED),
        }
    };
    let mut body = BodyReader::new(framing);
    let has_status = config.statuses.contains(head.status);
    let result = match &config.body_contains {
        _ if !has_status => Err(CheckResult::Failed(FailureKind::Status)),
        Some(wanted) => search(wanted.as_bytes(), &mut body, &mut transport, &mut inbound).await,
        None => Ok(()),
    };
    let may_go_on = wants_keep_alive(head.version, &head.fields)
        && head.status != 101
        && framing != Framing::UntilClose
        && !matches!(framing, Framing::Length(length) if length > REST_BYTES_MAX as u64);
    Answer {
        result: result.err().unwrap_or(CheckResult::Passed),
        is_unanswered: head.status == REQUEST_TIMEOUT && !has_status,
        rest: may_go_on.then_some(Rest { transport, inbound, body }),
    }
}

/// Looks for a text at the beginning of a body.
async fn search(
    wanted: &[u8],
    body: &mut BodyReader,
    transport: &mut Transport,
    inbound: &mut Buffer,
) -> Result<(), CheckResult> {
    let mut found = Vec::new();
    loop {
        match poll_fn(|cx| body.poll_data(cx, transport, inbound)).await {
            Ok(true) => {}
            Ok(false) => return Err(CheckResult::Body),
            Err(BodyError::Aborted) => return Err(CLOSED),
            Err(_) => return Err(MALFORMED),
        }
        let available = body.available();
        let take = available.min(CHECK_BODY_BYTES_MAX - found.len());
        // What was searched before can hold no more than the beginning of the text.
        let from = found.len().saturating_sub(wanted.len());
        found.extend_from_slice(inbound.filled().get(..take).unwrap_or_default());
        let searched = found.get(from..).unwrap_or_default();
        if memchr::memmem::find(searched, wanted).is_some() {
            return Ok(());
        }
        if found.len() >= CHECK_BODY_BYTES_MAX {
            return Err(CheckResult::Body);
        }
        body.consume(inbound, available);
    }
}

async fn send(transport: &mut Transport, bytes: &[u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let sent = poll_fn(|cx| transport.poll_send(cx, &[IoSlice::new(left)])).await?;
        left = left.get(sent..).unwrap_or_default();
    }
    poll_fn(|cx| transport.poll_flush(cx)).await
}
