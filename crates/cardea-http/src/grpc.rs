//! The parts of gRPC over HTTP/2 that concern a proxy: its content types, statuses, messages and timeouts. They follow the gRPC
//! project's document on its protocol (`PROTOCOL-HTTP2.md`).

mod status;
mod timeout;

pub use status::GrpcStatus;
pub use timeout::{GrpcTimeoutError, set_timeout, timeout_of};

use crate::{FieldError, Fields};

/// The content type of a gRPC message, without a subtype.
pub const CONTENT_TYPE: &str = "application/grpc";

/// The name of the field with the status of a call.
const STATUS: &[u8] = b"grpc-status";

/// The name of the field with the message of a status.
const MESSAGE: &[u8] = b"grpc-message";

/// Whether a content type is that of gRPC: alone, with a subtype (`+proto`) or with parameters. gRPC-Web is another protocol.
#[must_use]
pub fn is_content_type(value: &[u8]) -> bool {
    value.split_at_checked(CONTENT_TYPE.len()).is_some_and(|(name, rest)| {
        name.eq_ignore_ascii_case(CONTENT_TYPE.as_bytes()) && matches!(rest, [] | [b'+' | b';' | b' ', ..])
    })
}

/// The status in the trailers of a response, or in its head if it consists of trailers only. A status that gRPC does not
/// define, or that occurs more than once, is [`GrpcStatus::Unknown`].
#[must_use]
pub fn status_of(fields: &Fields) -> Option<GrpcStatus> {
    let mut values = fields.get_all_by_name(STATUS);
    let first = values.next()?;
    let status = if values.next().is_none() { GrpcStatus::parse(first) } else { None };
    Some(status.unwrap_or(GrpcStatus::Unknown))
}

/// Replaces the status in `fields`, and its message.
///
/// # Errors
/// If `fields` have no room.
pub fn set_status(fields: &mut Fields, status: GrpcStatus, message: &str) -> Result<(), FieldError> {
    fields.remove_by_name(STATUS);
    fields.remove_by_name(MESSAGE);
    fields.append(STATUS, status.as_str().as_bytes())?;
    fields.append(MESSAGE, &encode_message(message))
}

/// A message as `grpc-message` carries it: percent-encoded, except for the visible characters of ASCII and spaces.
fn encode_message(message: &str) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value & 0xf)).copied().unwrap_or_default();
    let mut encoded = Vec::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(byte);
        } else {
            encoded.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
    // A field's value neither begins nor ends with a space (RFC 9113 §8.2.1).
    if let Some(last) = encoded.pop_if(|last| *last == b' ') {
        encoded.extend_from_slice(&[b'%', digit(last >> 4), digit(last)]);
    }
    if encoded.first() == Some(&b' ') {
        encoded.splice(..1, *b"%20");
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_types_of_grpc_are_told_from_those_of_other_protocols() {
        for (value, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/GRPC+json", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc ; a=b", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/grp", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_content_type(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn the_status_of_a_call_is_read_from_fields() {
        let status = |values: &[&str]| {
            let mut fields = Fields::default();
            for value in values {
                fields.append(b"Grpc-Status", value.as_bytes()).unwrap();
            }
            status_of(&fields)
        };
        assert_eq!(status(&[]), None);
        assert_eq!(status(&["0"]), Some(GrpcStatus::Ok));
        assert_eq!(status(&["16"]), Some(GrpcStatus::Unauthenticated));
        for undefined in
            [&["17"][..], &["99999999999"], &["-1"], &["+1"], &["01"], &["x"], &[""], &["0", "0"]]
        {
            assert_eq!(status(undefined), Some(GrpcStatus::Unknown), "{undefined:?}");
        }
    }

    #[test]
    fn a_status_replaces_the_one_that_is_there() {
        let mut fields = Fields::default();
        fields.append(b"grpc-status", b"0").unwrap();
        fields.append(b"Grpc-Message", b"fine").unwrap();
        set_status(&mut fields, GrpcStatus::PermissionDenied, "100 % \u{e9}\n").unwrap();
        assert_eq!(status_of(&fields), Some(GrpcStatus::PermissionDenied));
        let messages: Vec<_> = fields.get_all_by_name(b"grpc-message").collect();
        assert_eq!(messages, [b"100 %25 %C3%A9%0A"]);
    }

    /// Decodes a message as a client does.
    fn decode(encoded: &[u8]) -> String {
        let mut bytes = Vec::new();
        let mut rest = encoded;
        while let [first, after @ ..] = rest {
            if let (b'%', [high, low, after @ ..]) = (first, after) {
                let text = String::from_utf8(vec![*high, *low]).unwrap();
                bytes.push(u8::from_str_radix(&text, 16).unwrap());
                rest = after;
            } else {
                bytes.push(*first);
                rest = after;
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn any_message_fits_in_a_field_and_is_decoded_to_itself(message in "[ -~%\u{0}-\u{2ff}]{0,40}") {
            let mut fields = Fields::default();
            set_status(&mut fields, GrpcStatus::Unknown, &message).unwrap();
            let value = fields.get_by_name(b"grpc-message").unwrap();
            prop_assert!(value.trim_ascii() == value);
            prop_assert_eq!(decode(value), message);
        }
    }
}
