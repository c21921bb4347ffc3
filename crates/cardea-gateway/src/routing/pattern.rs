//! Hosts and paths as configured, and what they are parsed into.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use cardea_http::normalize_path;
use cardea_tls::wildcard_of;

use super::error::{HostError, PathError};

/// How many segments a configured path may have.
pub const SEGMENTS_MAX: usize = 32;

/// The hosts that a route serves: one name or address, or the names one label below one.
///
/// `*.example.com` stands for exactly one label before `.example.com`, as in a certificate: for `a.example.com`, not for
/// `example.com` and not for `a.b.example.com`.
/// Names are compared in lower case and without a trailing dot; a port is not part of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    wildcard: bool,
    /// Without `*.`.
    name: Box<str>,
}

impl HostPattern {
    /// Whether the pattern stands for the names one label below one.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// The name, or what all the names end in (without the leading `*.`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the pattern stands for a host, given in its normal form.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        if self.wildcard { wildcard_of(host) == Some(&*self.name) } else { *self.name == *host }
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let malformed = || HostError::Malformed(text.to_owned());
        let (wildcard, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        if name.contains('*') {
            return Err(HostError::Wildcard(text.to_owned()));
        }
        if let Some(address) = name.strip_prefix('[') {
            if wildcard {
                return Err(HostError::Wildcard(text.to_owned()));
            }
            let address = address.strip_suffix(']').ok_or_else(malformed)?;
            let address: Ipv6Addr = address.parse().map_err(|_| malformed())?;
            return Ok(Self { wildcard, name: format!("[{address}]").into() });
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if let Some(bad) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
        {
            return Err(HostError::Character(text.to_owned(), bad));
        }
        // RFC 1035 §2.3.4: 63 octets to a label, 255 to a name with its length octets.
        if name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(malformed());
        }
        let numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if wildcard && numeric {
            return Err(HostError::Wildcard(text.to_owned()));
        }
        Ok(Self { wildcard, name: name.into() })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.wildcard { "*." } else { "" }, self.name)
    }
}

/// The paths that a route serves. Case matters. Paths are written as they are after normalisation
/// (RFC 3986 §6.2.2): no `.` or `..`, no `//`, escapes for reserved characters only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// This path alone: `/a` is not `/a/`.
    Exact(String),
    /// This path and everything below it, by whole segments: `/api` matches `/api`, `/api/` and `/api/x`,
    /// not `/apix`. A slash at the end makes no difference. `/` matches every path.
    Prefix(String),
    /// Like `Exact`, with parameters: `{name}` stands for one segment that is not empty, `{*name}`, at the
    /// end alone, for everything that is left, which is not empty.
    Pattern(String),
}

impl PathMatch {
    /// The text as configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) | Self::Pattern(path) => path,
        }
    }

    /// Takes the path apart and checks that some normalised path can match it.
    pub(super) fn parse(&self) -> Result<ParsedPath<'_>, PathError> {
        let text = self.as_str().strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let (text, mut end) = match self {
            Self::Prefix(_) => (text.strip_suffix('/').unwrap_or(text), End::Open),
            Self::Exact(_) | Self::Pattern(_) => (text, End::Closed),
        };
        let mut segments = Vec::new();
        // The prefix `/` has no segment; the exact path `/` has one that is empty.
        if !(text.is_empty() && matches!(self, Self::Prefix(_)) && self.as_str() == "/") {
            let mut pieces = text.split('/').peekable();
            while let Some(piece) = pieces.next() {
                let last = pieces.peek().is_none();
                if segments.len() == SEGMENTS_MAX {
                    return Err(PathError::TooDeep(SEGMENTS_MAX));
                }
                if matches!(self, Self::Pattern(_)) && piece.contains(['{', '}']) {
                    match parameter(piece)? {
                        (name, false) => segments.push(Segment::Parameter(name)),
                        (name, true) if last => end = End::Rest(name),
                        (_, true) => return Err(PathError::Parameter(piece.to_owned())),
                    }
                } else {
                    literal(piece, last && matches!(end, End::Closed))?;
                    segments.push(Segment::Literal(piece.as_bytes()));
                }
            }
        }
        let parsed = ParsedPath { segments, end };
        parsed.check_names()?;
        Ok(parsed)
    }
}

/// A configured path, taken apart.
pub(super) struct ParsedPath<'a> {
    /// At most [`SEGMENTS_MAX`].
    pub(super) segments: Vec<Segment<'a>>,
    pub(super) end: End<'a>,
}

/// One segment of a configured path.
pub(super) enum Segment<'a> {
    Literal(&'a [u8]),
    Parameter(&'a str),
}

/// What follows the segments of a configured path.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    /// Nothing.
    Closed,
    /// A slash and something that is not empty.
    Rest(&'a str),
    /// Nothing, or a slash and whatever follows.
    Open,
}

impl ParsedPath<'_> {
    fn check_names(&self) -> Result<(), PathError> {
        let mut names: Vec<&str> = Vec::new();
        for segment in &self.segments {
            if let Segment::Parameter(name) = segment {
                names.push(name);
            }
        }
        if let End::Rest(name) = self.end {
            names.push(name);
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(PathError::Repeated(pair[0].to_owned())),
            None => Ok(()),
        }
    }
}

/// The name of a parameter, and whether it takes everything that is left.
fn parameter(piece: &str) -> Result<(&str, bool), PathError> {
    let name = piece.strip_prefix('{').and_then(|piece| piece.strip_suffix('}'));
    let (name, rest) = match name.map(|name| (name, name.strip_prefix('*'))) {
        Some((_, Some(name))) => (name, true),
        Some((name, None)) => (name, false),
        None => ("", false),
    };
    let head = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !head || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(PathError::Parameter(piece.to_owned()));
    }
    Ok((name, rest))
}

/// Checks that a normalised path can contain this segment (RFC 3986 §3.3, §6.2.2).
fn literal(piece: &str, may_be_empty: bool) -> Result<(), PathError> {
    if matches!(piece, "." | "..") || (piece.is_empty() && !may_be_empty) {
        return Err(PathError::NeverMatches(piece.to_owned()));
    }
    let mut chars = piece.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '%' => {
                let digits = piece.get(at + 1..at + 3);
                let value = digits
                    .filter(|d| d.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)))
                    .and_then(|d| u8::from_str_radix(d, 16).ok())
                    .filter(|b| !is_unreserved(*b));
                if value.is_none() {
                    return Err(PathError::Escape(piece.chars().skip_while(|c| *c != '%').take(3).collect()));
                }
                chars.nth(1);
            }
            '{' | '}' => return Err(PathError::Brace),
            '!' | '$' | '&' | '\'' | '(' | ')' | '*' | '+' | ',' | ';' | '=' | ':' | '@' => {}
            c if u8::try_from(c).is_ok_and(is_unreserved) => {}
            c => return Err(PathError::NotEncoded(c)),
        }
    }
    // What else normalisation changes or refuses, such as a disguised dot segment.
    let (path, mut normal) = (format!("/{piece}"), Vec::new());
    match normalize_path(path.as_bytes(), &mut normal) {
        Ok(_) if normal == path.as_bytes() => Ok(()),
        _ => Err(PathError::NeverMatches(piece.to_owned())),
    }
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
