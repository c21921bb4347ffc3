//! Which protocol is spoken with a service.

/// The protocols by which a service is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// Over TLS, the endpoint chooses HTTP/2 or HTTP/1.1 (ALPN, RFC 7301). Without TLS, HTTP/1.1.
    Auto,
    /// HTTP/2 alone; without TLS with prior knowledge (RFC 9113 §3.3).
    Http2,
}

/// What a connection for a request may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Http1,
    /// HTTP/1.1, on a new connection of its own: those that are kept may speak HTTP/2.
    Tunnel,
    Http2,
    /// What the endpoint chooses.
    Either,
}

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http1,
    Http2,
}

impl Protocol {
    /// What is offered to an endpoint for a request, which may ask for an upgrade.
    pub(crate) const fn offer(self, is_secure: bool, is_upgrade: bool) -> Offer {
        match (self, is_secure, is_upgrade) {
            (Self::Http1, _, _) | (Self::Auto, false, _) => Offer::Http1,
            (Self::Auto, true, false) => Offer::Either,
            (Self::Auto, true, true) => Offer::Tunnel,
            (Self::Http2, _, _) => Offer::Http2,
        }
    }

    /// Whether an upgrade can be asked for, which HTTP/2 has not (RFC 9113 §8.6).
    pub(crate) const fn has_upgrade(self) -> bool {
        !matches!(self, Self::Http2)
    }

    /// Whether a connection may speak HTTP/2.
    #[must_use]
    pub const fn has_http2(self) -> bool {
        matches!(self, Self::Auto | Self::Http2)
    }
}

impl Offer {
    /// Whether a connection may speak HTTP/2.
    pub(crate) const fn has_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Either)
    }

    /// What is spoken on a connection whose peer chose `alpn`; nothing if it is not what was offered.
    pub(super) fn spoken(self, is_secure: bool, alpn: Option<&[u8]>) -> Option<Spoken> {
        match (self, alpn) {
            (Self::Http2, _) if !is_secure => Some(Spoken::Http2),
            (Self::Http2 | Self::Either, Some(b"h2")) => Some(Spoken::Http2),
            (Self::Http2, _) => None,
            (Self::Http1 | Self::Tunnel | Self::Either, _) => Some(Spoken::Http1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_asked_for_over_http_1_alone() {
        for (protocol, is_secure, plain, upgrade) in [
            (Protocol::Http1, false, Offer::Http1, Some(Offer::Http1)),
            (Protocol::Http1, true, Offer::Http1, Some(Offer::Http1)),
            (Protocol::Auto, false, Offer::Http1, Some(Offer::Http1)),
            (Protocol::Auto, true, Offer::Either, Some(Offer::Tunnel)),
            (Protocol::Http2, false, Offer::Http2, None),
            (Protocol::Http2, true, Offer::Http2, None),
        ] {
            assert_eq!(protocol.offer(is_secure, false), plain, "{protocol:?} {is_secure}");
            let found = protocol.has_upgrade().then(|| protocol.offer(is_secure, true));
            assert_eq!(found, upgrade, "{protocol:?} {is_secure}");
        }
    }

    #[test]
    fn http_2_is_spoken_where_it_was_chosen_or_is_known() {
        let h2 = Some(&b"h2"[..]);
        assert_eq!(Offer::Http2.spoken(false, None), Some(Spoken::Http2));
        assert_eq!(Offer::Http2.spoken(true, None), None);
        assert_eq!(Offer::Http2.spoken(true, Some(b"http/1.1")), None);
        assert_eq!(Offer::Either.spoken(true, h2), Some(Spoken::Http2));
        assert_eq!(Offer::Either.spoken(true, None), Some(Spoken::Http1));
        assert_eq!(Offer::Either.spoken(true, Some(b"http/1.1")), Some(Spoken::Http1));
        assert_eq!(Offer::Http1.spoken(true, None), Some(Spoken::Http1));
    }
}
