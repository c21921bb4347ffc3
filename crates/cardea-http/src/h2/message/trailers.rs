//! Reads a trailer section (RFC 9113 §8.1).

use super::super::error::Malformed;
use super::super::hpack::{Decoder, FieldLine, FieldSink, HpackError, LineName};
use crate::h1::has_connection_fields;
use crate::{Fields, FramingError, HeadError, TrailerError, TrailerLimits};

/// Decodes a block into `fields`. The sizes are those of HTTP/1.1. After an error the fields have no meaning.
pub(crate) fn read_trailers(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &TrailerLimits,
    fields: &mut Fields,
) -> Result<Result<(), Malformed>, HpackError> {
    fields.clear();
    let mut sink = TrailerSink { fields, limits, bytes: TrailerLimits::END_BYTES, fault: None };
    decoder.decode(block, &mut sink)?;
    let TrailerSink { fields, fault, .. } = sink;
    Ok(match fault {
        Some(fault) => Err(fault),
        None if has_connection_fields(fields) => Err(FramingError::ConnectionFieldInHttp2.into()),
        None => Ok(()),
    })
}

struct TrailerSink<'a> {
    fields: &'a mut Fields,
    limits: &'a TrailerLimits,
    bytes: usize,
    fault: Option<Malformed>,
}

impl FieldSink for TrailerSink<'_> {
    fn field(&mut self, line: &FieldLine<'_>) {
        if self.fault.is_none()
            && let Err(fault) = self.take(line)
        {
            self.fault = Some(fault);
        }
    }
}

impl TrailerSink<'_> {
    fn take(&mut self, line: &FieldLine<'_>) -> Result<(), Malformed> {
        line.check()?;
        if matches!(line.kind, LineName::Pseudo(_)) {
            return Err(Malformed::PseudoMisplaced);
        }
        if self.fields.len() >= self.limits.fields_max {
            return Err(TrailerError(HeadError::TooManyFields).into());
        }
        self.bytes = self.bytes.saturating_add(TrailerLimits::line_len(line.name, line.value));
        if self.bytes > self.limits.bytes_max {
            return Err(TrailerError(HeadError::TooLarge).into());
        }
        self.fields.append_line(line).map_err(|error| TrailerError(error.into()).into())
    }
}
