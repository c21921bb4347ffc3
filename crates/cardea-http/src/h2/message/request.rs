//! Reads the head of a request (RFC 9113 §8.3.1, §8.5, RFC 8441 §4).

use super::super::error::{HeadFault, Malformed};
use super::super::hpack::{Decoder, FieldLine, FieldSink, HpackError, LineError, LineName, Pseudo};
use super::super::priority::Priority;
use crate::h1::{Framing, HeadLimits, request_framing};
use crate::{
    FieldError, FramingError, HeadError, Known, Method, MethodError, RequestError, RequestHead, Scheme,
    TargetError, Version,
};

/// The protocol of an extended CONNECT (RFC 8441 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `websocket`.
    WebSocket,
    /// Any other, which should be answered with 501 (RFC 9220 §3).
    Other,
}

/// What a request's head says to the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    /// The declared length of the content.
    pub(crate) length: Option<u64>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) priority: Priority,
}

/// What a connection accepts of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestRules {
    pub(crate) limits: HeadLimits,
    pub(crate) scheme: Scheme,
    /// Whether extended CONNECT was offered.
    pub(crate) connect_protocol: bool,
}

/// Decodes a block into `head`. After a fault it has no meaning.
pub(crate) fn read_request(
    decoder: &mut Decoder,
    block: &[u8],
    rules: &RequestRules,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, HeadFault>, HpackError> {
    head.clear();
    head.version = Version::Http2;
    let mut sink = RequestSink {
        head,
        rules,
        seen: 0,
        list_len: 0,
        fields: 0,
        has_fields: false,
        scheme: None,
        protocol: None,
        fault: None,
    };
    decoder.decode(block, &mut sink)?;
    Ok(sink.finish())
}

struct RequestSink<'a> {
    head: &'a mut RequestHead,
    rules: &'a RequestRules,
    /// The pseudo-header fields so far, as bits.
    seen: u8,
    /// The size by RFC 9113 §6.5.2.
    list_len: usize,
    /// The number of field lines; crumbs of `Cookie` are one.
    fields: usize,
    has_fields: bool,
    /// `None` in here is a scheme of neither kind.
    scheme: Option<Option<Scheme>>,
    protocol: Option<Protocol>,
    fault: Option<HeadFault>,
}

const fn bit(pseudo: Pseudo) -> u8 {
    1 << pseudo as u8
}

const METHOD: u8 = bit(Pseudo::Method);
const SCHEME: u8 = bit(Pseudo::Scheme);
const PATH: u8 = bit(Pseudo::Path);
const AUTHORITY: u8 = bit(Pseudo::Authority);
const PROTOCOL: u8 = bit(Pseudo::Protocol);

impl FieldSink for RequestSink<'_> {
    fn field(&mut self, line: &FieldLine<'_>) {
        if self.fault.is_none()
            && let Err(fault) = self.take(line)
        {
            self.fault = Some(fault);
        }
    }
}

impl RequestSink<'_> {
    fn take(&mut self, line: &FieldLine<'_>) -> Result<(), HeadFault> {
        self.list_len += line.list_len();
        if self.list_len > self.rules.limits.head_bytes_max {
            return Err(refused(HeadError::TooLarge));
        }
        line.check()?;
        match line.kind {
            LineName::Pseudo(pseudo) => self.take_pseudo(pseudo, line.value),
            LineName::Known(known) => {
                self.has_fields = true;
                self.take_known(known, line)
            }
            LineName::Other => {
                self.has_fields = true;
                self.append(line)
            }
        }
    }

    fn take_pseudo(&mut self, pseudo: Pseudo, value: &[u8]) -> Result<(), HeadFault> {
        if self.has_fields {
            return Err(Malformed::PseudoMisplaced.into());
        }
        if self.seen & bit(pseudo) != 0 {
            return Err(Malformed::PseudoRepeated.into());
        }
        self.seen |= bit(pseudo);
        match pseudo {
            Pseudo::Method => {
                self.head.method = Method::parse(value).map_err(|error| match error {
                    MethodError::Invalid => Malformed::PseudoInvalid.into(),
                    MethodError::TooLong => HeadFault::Refused(error.into()),
                })?;
            }
            Pseudo::Path => self.take_path(value)?,
            Pseudo::Scheme => {
                let is = |scheme: Scheme| value.eq_ignore_ascii_case(scheme.as_str().as_bytes());
                self.scheme = Some([Scheme::Https, Scheme::Http].into_iter().find(|&scheme| is(scheme)));
            }
            Pseudo::Authority => {
                let appended = self.head.fields.append_known(Known::Host, value);
                appended.map_err(|error| HeadFault::Refused(error.into()))?;
            }
            Pseudo::Protocol => {
                let is_websocket = value.eq_ignore_ascii_case(b"websocket");
                self.protocol = Some(if is_websocket { Protocol::WebSocket } else { Protocol::Other });
            }
            Pseudo::Status | Pseudo::Unknown => return Err(Malformed::PseudoUndefined.into()),
        }
        Ok(())
    }

    fn take_path(&mut self, path: &[u8]) -> Result<(), HeadFault> {
        if path.len() > self.rules.limits.target_bytes_max {
            return Err(HeadFault::Refused(RequestError::TargetTooLong));
        }
        if !path.iter().all(u8::is_ascii_graphic) {
            return Err(Malformed::PseudoInvalid.into());
        }
        if memchr::memchr(b'#', path).is_some() {
            return Err(HeadFault::Refused(TargetError::Fragment.into()));
        }
        self.head.set_target(path);
        Ok(())
    }

    fn take_known(&mut self, known: Known, line: &FieldLine<'_>) -> Result<(), HeadFault> {
        match known {
            // Two readers must not find two hosts (RFC 9113 §8.3.1).
            Known::Host if self.seen & AUTHORITY != 0 => {
                let authority = self.head.fields.get(Known::Host).unwrap_or_default();
                if authority.eq_ignore_ascii_case(line.value) {
                    return Ok(());
                }
                Err(HeadFault::Refused(RequestError::HostDisagrees))
            }
            // However many crumbs, it is one header (RFC 9113 §8.2.3). Their number is bounded by the size.
            Known::Cookie if self.head.fields.contains(Known::Cookie) => {
                self.head.fields.append_line(line).map_err(fault_of)
            }
            _ => self.append(line),
        }
    }

    fn append(&mut self, line: &FieldLine<'_>) -> Result<(), HeadFault> {
        self.fields += 1;
        if self.fields > self.rules.limits.fields_max {
            return Err(refused(HeadError::TooManyFields));
        }
        self.head.fields.append_line(line).map_err(fault_of)
    }

    fn finish(self) -> Result<RequestFacts, HeadFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Self { head, rules, seen, scheme, protocol, .. } = self;
        let is_connect = head.method == Method::Connect;
        let expected = match (is_connect, protocol) {
            (true, None) => METHOD | AUTHORITY,
            (true, Some(_)) if rules.connect_protocol => METHOD | SCHEME | PATH | AUTHORITY | PROTOCOL,
            (_, Some(_)) => return Err(Malformed::PseudoUndefined.into()),
            // `Host` may name the authority instead.
            (false, None) => METHOD | SCHEME | PATH | (seen & AUTHORITY),
        };
        if seen != expected {
            return Err(Malformed::PseudoSet.into());
        }
        if is_connect && protocol.is_none() {
            let authority = head.fields.get(Known::Host).unwrap_or_default();
            head.target.clear();
            head.target.extend_from_slice(authority);
        } else {
            match head.target() {
                [b'/', ..] => {}
                b"*" if head.method == Method::Options => {}
                _ => return Err(Malformed::PseudoInvalid.into()),
            }
            match scheme.flatten() {
                None => return Err(HeadFault::Refused(TargetError::SchemeUnknown.into())),
                Some(scheme) if scheme != rules.scheme => {
                    return Err(HeadFault::Refused(RequestError::SchemeDisagrees));
                }
                Some(_) => {}
            }
        }
        head.fields.join(Known::Cookie, b"; ").map_err(fault_of)?;
        let length = match request_framing(head) {
            Ok(Framing::Length(length)) => Some(length),
            Ok(_) => None,
            // HTTP/1.1 refuses it as well, but it isn't malformed.
            Err(error @ RequestError::Framing(FramingError::FramingFieldLookalike)) => {
                return Err(HeadFault::Refused(error));
            }
            Err(RequestError::Framing(error)) => return Err(error.into()),
            Err(error) => return Err(HeadFault::Refused(error)),
        };
        let priority = Priority::of(&head.fields);
        Ok(RequestFacts { length, protocol, priority })
    }
}

fn refused(error: HeadError) -> HeadFault {
    HeadFault::Refused(error.into())
}

fn fault_of(error: FieldError) -> HeadFault {
    match error {
        FieldError::NameInvalid => LineError::NameInvalid.into(),
        FieldError::ValueInvalid => LineError::ValueInvalid.into(),
        FieldError::TooLarge | FieldError::TooMany => HeadFault::Refused(error.into()),
    }
}
