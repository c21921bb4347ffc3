//! Reads the head of a response (RFC 9113 §8.3.2).

use super::super::error::{HeadFault, Malformed};
use super::super::hpack::{Decoder, FieldLine, FieldSink, HpackError, LineName, Pseudo};
use super::super::role::RequestKind;
use crate::h1::{Framing, HeadLimits, has_connection_fields, response_framing};
use crate::{FramingError, Method, ResponseError, ResponseHead, Version};

/// What a response's head says to the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseFacts {
    /// The length of the content, if it is known.
    pub(crate) length: Option<u64>,
    /// 1xx: another head follows.
    pub(crate) is_informational: bool,
}

/// Decodes a block into `head`. After a fault it has no meaning.
pub(crate) fn read_response(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &HeadLimits,
    request: RequestKind,
    head: &mut ResponseHead,
) -> Result<Result<ResponseFacts, HeadFault>, HpackError> {
    head.clear();
    head.version = Version::Http2;
    let mut sink = ResponseSink { head, limits, has_status: false, list_len: 0, fields: 0, fault: None };
    decoder.decode(block, &mut sink)?;
    Ok(sink.finish(request))
}

struct ResponseSink<'a> {
    head: &'a mut ResponseHead,
    limits: &'a HeadLimits,
    has_status: bool,
    list_len: usize,
    fields: usize,
    fault: Option<Malformed>,
}

impl FieldSink for ResponseSink<'_> {
    fn field(&mut self, line: &FieldLine<'_>) {
        if self.fault.is_none()
            && let Err(fault) = self.take(line)
        {
            self.fault = Some(fault);
        }
    }
}

impl ResponseSink<'_> {
    fn take(&mut self, line: &FieldLine<'_>) -> Result<(), Malformed> {
        self.list_len += line.list_len();
        if self.list_len > self.limits.head_bytes_max {
            return Err(Malformed::TooLarge);
        }
        line.check()?;
        match line.kind {
            LineName::Pseudo(_) if self.fields > 0 => Err(Malformed::PseudoMisplaced),
            LineName::Pseudo(Pseudo::Status) if self.has_status => Err(Malformed::PseudoRepeated),
            LineName::Pseudo(Pseudo::Status) => {
                self.has_status = true;
                self.head.status = status(line.value).ok_or(Malformed::PseudoInvalid)?;
                Ok(())
            }
            LineName::Pseudo(_) => Err(Malformed::PseudoUndefined),
            LineName::Known(_) | LineName::Other => {
                self.fields += 1;
                if self.fields > self.limits.fields_max {
                    return Err(Malformed::TooLarge);
                }
                self.head.fields.append_line(line).map_err(|_| Malformed::TooLarge)
            }
        }
    }

    fn finish(self, request: RequestKind) -> Result<ResponseFacts, HeadFault> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        if !self.has_status {
            return Err(Malformed::PseudoSet.into());
        }
        let head = self.head;
        if has_connection_fields(&head.fields) {
            return Err(FramingError::ConnectionFieldInHttp2.into());
        }
        let method = if request == RequestKind::Head { Method::Head } else { Method::Get };
        let framing = response_framing(head, method).map_err(|error| match error {
            ResponseError::Framing(error) => HeadFault::from(error),
            _ => Malformed::PseudoInvalid.into(),
        })?;
        let has_no_content = request == RequestKind::Head || matches!(head.status, 204 | 304);
        let is_tunnel = request == RequestKind::Connect && matches!(head.status, 200..300);
        let length = match framing {
            _ if is_tunnel => None,
            _ if has_no_content => Some(0),
            Framing::Length(length) => Some(length),
            Framing::None | Framing::Chunked | Framing::UntilClose => None,
        };
        // It can't switch protocols (RFC 9113 §8.6).
        if head.status == 101 {
            return Err(Malformed::InformationalInvalid.into());
        }
        Ok(ResponseFacts { length, is_informational: head.status < 200 })
    }
}

/// Three digits from 100 to 599 (RFC 9110 §15).
fn status(value: &[u8]) -> Option<u16> {
    let &[hundreds @ b'1'..=b'5', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = value else { return None };
    Some(u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0'))
}
