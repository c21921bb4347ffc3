//! The two ends of a connection.

use super::Config;
use super::error::HeadFault;
use super::hpack::{Decoder, HpackError};
use super::message::{Protocol, RequestRules, read_request, read_response};
use super::priority::Priority;
use crate::{Fields, Method, RequestHead, ResponseHead};

/// The end that answers requests.
#[derive(Debug)]
pub struct Server;

/// The end that sends requests.
#[derive(Debug)]
pub struct Client;

/// An end of a connection: [`Server`] or [`Client`].
pub trait Role: sealed::Role {}

impl Role for Server {}
impl Role for Client {}

/// What a received head says to the codec.
#[derive(Debug, Clone, Copy)]
pub struct HeadFacts {
    pub(super) length: Option<u64>,
    pub(super) is_informational: bool,
    pub(super) protocol: Option<Protocol>,
    pub(super) priority: Priority,
    pub(super) request: RequestKind,
}

/// What a request says of its response's content (RFC 9110 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// HEAD: there is none.
    Head,
    /// CONNECT: whatever a successful response says, there is a tunnel (RFC 9110 §9.3.6).
    Connect,
    /// Any other.
    Other,
}

impl RequestKind {
    pub(super) const fn of(method: Method) -> Self {
        match method {
            Method::Head => Self::Head,
            Method::Connect => Self::Connect,
            _ => Self::Other,
        }
    }
}

pub(super) mod sealed {
    use super::{Config, Decoder, Fields, HeadFacts, HeadFault, HpackError, RequestKind};

    pub trait Role {
        /// What is received: requests or responses.
        type Head;
        const IS_SERVER: bool;

        /// Decodes a block into `head`. `request` is the kind of request that a response is to.
        fn read(
            decoder: &mut Decoder,
            block: &[u8],
            config: &Config,
            request: RequestKind,
            head: &mut Self::Head,
        ) -> Result<Result<HeadFacts, HeadFault>, HpackError>;

        /// Where trailers are decoded to.
        fn fields(head: &mut Self::Head) -> &mut Fields;
    }
}

impl sealed::Role for Server {
    type Head = RequestHead;
    const IS_SERVER: bool = true;

    fn read(
        decoder: &mut Decoder,
        block: &[u8],
        config: &Config,
        _: RequestKind,
        head: &mut RequestHead,
    ) -> Result<Result<HeadFacts, HeadFault>, HpackError> {
        let rules = RequestRules {
            limits: config.head,
            scheme: config.scheme,
            connect_protocol: config.connect_protocol,
        };
        let read = read_request(decoder, block, &rules, head)?;
        Ok(read.map(|facts| HeadFacts {
            length: facts.length,
            is_informational: false,
            protocol: facts.protocol,
            priority: facts.priority,
            request: RequestKind::of(head.method),
        }))
    }

    fn fields(head: &mut RequestHead) -> &mut Fields {
        &mut head.fields
    }
}

impl sealed::Role for Client {
    type Head = ResponseHead;
    const IS_SERVER: bool = false;

    fn read(
        decoder: &mut Decoder,
        block: &[u8],
        config: &Config,
        request: RequestKind,
        head: &mut ResponseHead,
    ) -> Result<Result<HeadFacts, HeadFault>, HpackError> {
        let read = read_response(decoder, block, &config.head, request, head)?;
        Ok(read.map(|facts| HeadFacts {
            length: facts.length,
            is_informational: facts.is_informational,
            protocol: None,
            priority: Priority::default(),
            request,
        }))
    }

    fn fields(head: &mut ResponseHead) -> &mut Fields {
        &mut head.fields
    }
}
