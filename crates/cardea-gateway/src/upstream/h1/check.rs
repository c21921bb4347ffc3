//! The exchange of an active check: one request, and as much of its response as decides.

use std::{future::poll_fn, io::IoSlice};

use cardea_http::{Method, ResponseHead, h1::HeadLimits};
use cardea_upstream::{CHECK_BODY_BYTES_MAX, CheckConfig, CheckMethod, CheckResult, FailureKind};

use super::response::HeadReader;
use crate::{
    body::BodyError, buffer::Buffer, framing::BodyReader, transport::Transport, upstream::HeadError,
};

/// How large the head of a response may be.
const HEAD_LIMITS: fn() -> HeadLimits =
    || HeadLimits { head_bytes_max: 16 << 10, fields_max: 100, ..HeadLimits::default() };

/// Sends the request of a check and judges the response. A redirect is a response like any other: it is not followed.
pub(crate) async fn exchange(transport: &mut Transport, host: &str, config: &CheckConfig) -> CheckResult {
    let mut inbound = Buffer::new();
    let result = converse(transport, &mut inbound, host, config).await;
    inbound.release();
    result.err().unwrap_or(CheckResult::Passed)
}

async fn converse(
    transport: &mut Transport,
    inbound: &mut Buffer,
    host: &str,
    config: &CheckConfig,
) -> Result<(), CheckResult> {
    const CLOSED: CheckResult = CheckResult::Failed(FailureKind::Closed);
    const MALFORMED: CheckResult = CheckResult::Failed(FailureKind::Malformed);
    let method = match config.method {
        CheckMethod::Get => Method::Get,
        CheckMethod::Head => Method::Head,
        CheckMethod::Options => Method::Options,
    };
    send(transport, &request(method, host, &config.path)).await.map_err(|_| CLOSED)?;
    let mut reader = HeadReader::new(method, HEAD_LIMITS());
    let mut head = ResponseHead::default();
    let framing = loop {
        let read = poll_fn(|cx| reader.poll(cx, transport, inbound, &mut head)).await;
        match read {
            Ok(Some(framing)) => break framing,
            Ok(None) => {}
            Err(HeadError::EndedBefore | HeadError::EndedAfterInformational | HeadError::EndedWithin) => {
                return Err(CLOSED);
            }
            Err(HeadError::Malformed(_) | HeadError::TooManyInformational) => return Err(MALFORMED),
        }
    };
    if !config.statuses.contains(head.status) {
        return Err(CheckResult::Failed(FailureKind::Status));
    }
    let Some(wanted) = &config.body_contains else { return Ok(()) };
    let mut body = BodyReader::new(framing);
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
        if memchr::memmem::find(searched, wanted.as_bytes()).is_some() {
            return Ok(());
        }
        if found.len() >= CHECK_BODY_BYTES_MAX {
            return Err(CheckResult::Body);
        }
        body.consume(inbound, available);
    }
}

/// The request. Its parts were checked when the configuration was read.
fn request(method: Method, host: &str, path: &str) -> Vec<u8> {
    let method = method.as_str();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: cardea-health-check\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

async fn send(transport: &mut Transport, bytes: &[u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let sent = poll_fn(|cx| transport.poll_send(cx, &[IoSlice::new(left)])).await?;
        left = left.get(sent..).unwrap_or_default();
    }
    poll_fn(|cx| transport.poll_flush(cx)).await
}
