//! Names of field lines, and the static table (RFC 7541 Appendix A).

use crate::Known;

/// What the name of a field line is, decided once for each entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineName {
    /// A pseudo-header field (RFC 9113 §8.3).
    Pseudo(Pseudo),
    /// A field with an id.
    Known(Known),
    /// Any other bytes, a token or not.
    Other,
}

/// A pseudo-header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    /// `:authority`.
    Authority,
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:scheme`.
    Scheme,
    /// `:status`.
    Status,
    /// `:protocol` (RFC 8441 §4).
    Protocol,
    /// Any other name that begins with a colon.
    Unknown,
}

impl LineName {
    /// What `name` is.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        match name {
            [b':', ..] => Self::Pseudo(match name {
                b":authority" => Pseudo::Authority,
                b":method" => Pseudo::Method,
                b":path" => Pseudo::Path,
                b":scheme" => Pseudo::Scheme,
                b":status" => Pseudo::Status,
                b":protocol" => Pseudo::Protocol,
                _ => Pseudo::Unknown,
            }),
            _ => Known::of(name).map_or(Self::Other, Self::Known),
        }
    }
}

/// An entry of the static table.
pub(super) struct StaticEntry {
    pub(super) kind: LineName,
    pub(super) name: &'static str,
    pub(super) value: &'static str,
}

/// The entry of the static table at `index`, from 1 on.
pub(super) fn static_entry(index: usize) -> Option<&'static StaticEntry> {
    STATIC.get(index.checked_sub(1)?)
}

const fn entry(kind: LineName, name: &'static str, value: &'static str) -> StaticEntry {
    StaticEntry { kind, name, value }
}

/// The number of entries of the static table.
pub(super) const STATIC_LEN: usize = STATIC.len();

static STATIC: [StaticEntry; 61] = [
    entry(LineName::Pseudo(Pseudo::Authority), ":authority", ""),
    entry(LineName::Pseudo(Pseudo::Method), ":method", "GET"),
    entry(LineName::Pseudo(Pseudo::Method), ":method", "POST"),
    entry(LineName::Pseudo(Pseudo::Path), ":path", "/"),
    entry(LineName::Pseudo(Pseudo::Path), ":path", "/index.html"),
    entry(LineName::Pseudo(Pseudo::Scheme), ":scheme", "http"),
    entry(LineName::Pseudo(Pseudo::Scheme), ":scheme", "https"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "200"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "204"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "206"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "304"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "400"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "404"),
    entry(LineName::Pseudo(Pseudo::Status), ":status", "500"),
    entry(LineName::Known(Known::AcceptCharset), "accept-charset", ""),
    entry(LineName::Known(Known::AcceptEncoding), "accept-encoding", "gzip, deflate"),
    entry(LineName::Known(Known::AcceptLanguage), "accept-language", ""),
    entry(LineName::Known(Known::AcceptRanges), "accept-ranges", ""),
    entry(LineName::Known(Known::Accept), "accept", ""),
    entry(LineName::Known(Known::AccessControlAllowOrigin), "access-control-allow-origin", ""),
    entry(LineName::Known(Known::Age), "age", ""),
    entry(LineName::Known(Known::Allow), "allow", ""),
    entry(LineName::Known(Known::Authorization), "authorization", ""),
    entry(LineName::Known(Known::CacheControl), "cache-control", ""),
    entry(LineName::Known(Known::ContentDisposition), "content-disposition", ""),
    entry(LineName::Known(Known::ContentEncoding), "content-encoding", ""),
    entry(LineName::Known(Known::ContentLanguage), "content-language", ""),
    entry(LineName::Known(Known::ContentLength), "content-length", ""),
    entry(LineName::Known(Known::ContentLocation), "content-location", ""),
    entry(LineName::Known(Known::ContentRange), "content-range", ""),
    entry(LineName::Known(Known::ContentType), "content-type", ""),
    entry(LineName::Known(Known::Cookie), "cookie", ""),
    entry(LineName::Known(Known::Date), "date", ""),
    entry(LineName::Known(Known::Etag), "etag", ""),
    entry(LineName::Known(Known::Expect), "expect", ""),
    entry(LineName::Known(Known::Expires), "expires", ""),
    entry(LineName::Other, "from", ""),
    entry(LineName::Known(Known::Host), "host", ""),
    entry(LineName::Known(Known::IfMatch), "if-match", ""),
    entry(LineName::Known(Known::IfModifiedSince), "if-modified-since", ""),
    entry(LineName::Known(Known::IfNoneMatch), "if-none-match", ""),
    entry(LineName::Known(Known::IfRange), "if-range", ""),
    entry(LineName::Known(Known::IfUnmodifiedSince), "if-unmodified-since", ""),
    entry(LineName::Known(Known::LastModified), "last-modified", ""),
    entry(LineName::Known(Known::Link), "link", ""),
    entry(LineName::Known(Known::Location), "location", ""),
    entry(LineName::Known(Known::MaxForwards), "max-forwards", ""),
    entry(LineName::Known(Known::ProxyAuthenticate), "proxy-authenticate", ""),
    entry(LineName::Known(Known::ProxyAuthorization), "proxy-authorization", ""),
    entry(LineName::Known(Known::Range), "range", ""),
    entry(LineName::Known(Known::Referer), "referer", ""),
    entry(LineName::Other, "refresh", ""),
    entry(LineName::Known(Known::RetryAfter), "retry-after", ""),
    entry(LineName::Known(Known::Server), "server", ""),
    entry(LineName::Known(Known::SetCookie), "set-cookie", ""),
    entry(LineName::Known(Known::StrictTransportSecurity), "strict-transport-security", ""),
    entry(LineName::Known(Known::TransferEncoding), "transfer-encoding", ""),
    entry(LineName::Known(Known::UserAgent), "user-agent", ""),
    entry(LineName::Known(Known::Vary), "vary", ""),
    entry(LineName::Known(Known::Via), "via", ""),
    entry(LineName::Known(Known::WwwAuthenticate), "www-authenticate", ""),
];

/// The first entry of the static table with this name.
pub(super) const fn static_index(known: Known) -> Option<usize> {
    Some(match known {
        Known::AcceptCharset => 15,
        Known::AcceptEncoding => 16,
        Known::AcceptLanguage => 17,
        Known::AcceptRanges => 18,
        Known::Accept => 19,
        Known::AccessControlAllowOrigin => 20,
        Known::Age => 21,
        Known::Allow => 22,
        Known::Authorization => 23,
        Known::CacheControl => 24,
        Known::ContentDisposition => 25,
        Known::ContentEncoding => 26,
        Known::ContentLanguage => 27,
        Known::ContentLength => 28,
        Known::ContentLocation => 29,
        Known::ContentRange => 30,
        Known::ContentType => 31,
        Known::Cookie => 32,
        Known::Date => 33,
        Known::Etag => 34,
        Known::Expect => 35,
        Known::Expires => 36,
        Known::Host => 38,
        Known::IfMatch => 39,
        Known::IfModifiedSince => 40,
        Known::IfNoneMatch => 41,
        Known::IfRange => 42,
        Known::IfUnmodifiedSince => 43,
        Known::LastModified => 44,
        Known::Link => 45,
        Known::Location => 46,
        Known::MaxForwards => 47,
        Known::ProxyAuthenticate => 48,
        Known::ProxyAuthorization => 49,
        Known::Range => 50,
        Known::Referer => 51,
        Known::RetryAfter => 53,
        Known::Server => 54,
        Known::SetCookie => 55,
        Known::StrictTransportSecurity => 56,
        Known::TransferEncoding => 57,
        Known::UserAgent => 58,
        Known::Vary => 59,
        Known::Via => 60,
        Known::WwwAuthenticate => 61,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_table_agrees_with_itself() {
        for (place, entry) in STATIC.iter().enumerate() {
            assert_eq!(LineName::of(entry.name.as_bytes()), entry.kind, "{}", entry.name);
            if let LineName::Known(known) = entry.kind {
                let first = STATIC.iter().position(|other| other.name == entry.name).unwrap();
                assert_eq!(static_index(known), Some(first + 1));
                assert_eq!(first, place);
            }
        }
        for &known in Known::ALL {
            let index = STATIC.iter().position(|entry| entry.kind == LineName::Known(known));
            assert_eq!(static_index(known), index.map(|index| index + 1));
        }
        assert_eq!(static_entry(61).unwrap().name, "www-authenticate");
        assert!(static_entry(0).is_none() && static_entry(62).is_none());
    }
}
