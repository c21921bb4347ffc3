//! Where a redirect leads.
//!
//! The literal text of the template decides in which part of the URL each value stands (RFC 3986 §3). A value stays in its
//! part, whatever the client writes: in the authority only a host and a port are accepted, and elsewhere the bytes that would
//! begin another part, or that no URL contains, are percent-encoded.

use cardea_env::{Escape, Piece, Template};
use cardea_http::{Authority, Scheme};

use crate::exchange::Exchange;

#[cfg(test)]
mod tests;

/// The part of a URL in which the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Authority,
    Path,
    Query,
    Fragment,
}

impl Part {
    /// The part after literal text. Browsers read a backslash as a slash.
    fn after(self, text: &[u8]) -> Self {
        text.iter().fold(self, |part, byte| match (part, byte) {
            (Self::Authority | Self::Path | Self::Query, b'#') => Self::Fragment,
            (Self::Authority | Self::Path, b'?') => Self::Query,
            (Self::Authority, b'/' | b'\\') => Self::Path,
            (part, _) => part,
        })
    }

    /// Whether a value must not have this byte here (RFC 3986 §3.3 to §3.5). A `%` stays: a value may be encoded already.
    const fn excludes(self, byte: u8) -> bool {
        match byte {
            ..=b' ' | b'"' | b'#' | b'<' | b'>' | b'\\' | 0x7F.. => true,
            b'?' => matches!(self, Self::Path),
            _ => false,
        }
    }
}

/// The value of `Location`: what the template says, then the request's query, then the template's fragment. `None` if a value
/// would leave its part of the URL, or leaves no valid authority.
pub(crate) fn location(to: &Template<Exchange>, keep_query: bool, exchange: &Exchange) -> Option<Vec<u8>> {
    let mut location = render(to, exchange)?;
    let fragment = match location.iter().position(|byte| *byte == b'#') {
        Some(at) => location.split_off(at),
        None => Vec::new(),
    };
    if keep_query {
        exchange.push_query(&mut location);
    }
    // What the template was to fill in was empty. A query may end in a question mark itself.
    if location.iter().position(|byte| *byte == b'?').is_some_and(|at| at + 1 == location.len()) {
        location.pop();
    }
    location.extend_from_slice(&fragment);
    Some(location)
}

fn render(to: &Template<Exchange>, exchange: &Exchange) -> Option<Vec<u8>> {
    let mut location = Vec::new();
    let mut value = Vec::new();
    // The configuration requires that the template begins with a scheme or with a slash.
    let mut part = Part::Path;
    let mut pieces = to.pieces();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Literal(text) => {
                part = match authority_of(text).filter(|_| location.is_empty()) {
                    Some((_, authority)) => Part::Authority.after(authority),
                    None => part.after(text),
                };
                location.extend_from_slice(text);
            }
            Piece::Value(place) => {
                value.clear();
                place.render(exchange, Escape::None, &mut value);
                if part == Part::Authority && value.first() == Some(&b'/') {
                    // A path as a whole, such as `{request.path}`, ends the authority, unless the template goes on with it.
                    if continues_authority(pieces.clone()) {
                        return None;
                    }
                    part = Part::Path;
                }
                push(part, &value, &mut location)?;
            }
        }
    }
    is_valid(&location).then_some(location)
}

/// Whether the template's own text after a value in the authority belongs to the authority too.
fn continues_authority<'t>(mut rest: impl Iterator<Item = Piece<'t, Exchange>>) -> bool {
    let literal = rest.find_map(|piece| match piece {
        Piece::Literal(text) => text.first().copied(),
        Piece::Value(_) => None,
    });
    literal.is_some_and(|first| Part::Authority.after(&[first]) == Part::Authority)
}

/// Appends a value within its part.
fn push(part: Part, value: &[u8], location: &mut Vec<u8>) -> Option<()> {
    if part == Part::Authority {
        let is_clean = value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(byte));
        location.extend_from_slice(value);
        return is_clean.then_some(());
    }
    for &byte in value {
        if part.excludes(byte) {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            location.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            location.push(byte);
        }
    }
    Some(())
}

/// Whether the location is a URL with a valid authority, or a path that does not begin with one (RFC 3986 §4.2).
fn is_valid(location: &[u8]) -> bool {
    let Some((scheme, rest)) = authority_of(location) else {
        return !matches!(location, [b'/', b'/' | b'\\', ..]);
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'\\' | b'?' | b'#')).unwrap_or(rest.len());
    let authority = &rest[..end];
    // Values have no `@`, so user information is the template's own.
    let host = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    Authority::parse(&authority[host..], scheme).is_ok()
}

/// The scheme of a URL, and what follows the slashes before its authority.
fn authority_of(url: &[u8]) -> Option<(Scheme, &[u8])> {
    let https = url.strip_prefix(b"https://").map(|rest| (Scheme::Https, rest));
    https.or_else(|| url.strip_prefix(b"http://").map(|rest| (Scheme::Http, rest)))
}
