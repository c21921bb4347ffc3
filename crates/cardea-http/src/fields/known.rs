//! The field names that a proxy handles, with an id each, found by a perfect hash that is computed at compile time.

macro_rules! known {
    ($($variant:ident = $name:literal,)+) => {
        /// A field name with an id. [`Known::as_str`] is its usual spelling.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Known {
            $(#[doc = concat!("`", $name, "`.")] $variant,)+
        }

        impl Known {
            /// All known names.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The usual spelling, for example `Content-Length`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        /// The usual spellings, by id.
        static NAMES: &[&[u8]] = &[$($name.as_bytes()),+];
    };
}

known! {
    Host = "Host",
    Connection = "Connection",
    ContentLength = "Content-Length",
    TransferEncoding = "Transfer-Encoding",
    KeepAlive = "Keep-Alive",
    ProxyConnection = "Proxy-Connection",
    Te = "TE",
    Trailer = "Trailer",
    Upgrade = "Upgrade",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyAuthenticationInfo = "Proxy-Authentication-Info",
    Http2Settings = "HTTP2-Settings",
    Via = "Via",
    Forwarded = "Forwarded",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
    XForwardedPort = "X-Forwarded-Port",
    XForwardedPrefix = "X-Forwarded-Prefix",
    XForwardedServer = "X-Forwarded-Server",
    XRealIp = "X-Real-IP",
    XOriginalUrl = "X-Original-URL",
    XRewriteUrl = "X-Rewrite-URL",
    XHttpMethodOverride = "X-HTTP-Method-Override",
    Authorization = "Authorization",
    WwwAuthenticate = "WWW-Authenticate",
    AuthenticationInfo = "Authentication-Info",
    Dpop = "DPoP",
    Cookie = "Cookie",
    SetCookie = "Set-Cookie",
    Expect = "Expect",
    Date = "Date",
    Server = "Server",
    Location = "Location",
    RetryAfter = "Retry-After",
    RateLimit = "RateLimit",
    RateLimitPolicy = "RateLimit-Policy",
    CacheControl = "Cache-Control",
    Pragma = "Pragma",
    Expires = "Expires",
    Age = "Age",
    Vary = "Vary",
    Etag = "ETag",
    LastModified = "Last-Modified",
    IfMatch = "If-Match",
    IfNoneMatch = "If-None-Match",
    IfModifiedSince = "If-Modified-Since",
    IfUnmodifiedSince = "If-Unmodified-Since",
    IfRange = "If-Range",
    Range = "Range",
    AcceptRanges = "Accept-Ranges",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLocation = "Content-Location",
    ContentDisposition = "Content-Disposition",
    UserAgent = "User-Agent",
    Accept = "Accept",
    AcceptCharset = "Accept-Charset",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    Origin = "Origin",
    Referer = "Referer",
    MaxForwards = "Max-Forwards",
    Allow = "Allow",
    Link = "Link",
    AltSvc = "Alt-Svc",
    Priority = "Priority",
    ServerTiming = "Server-Timing",
    XRequestId = "X-Request-Id",
    XCorrelationId = "X-Correlation-Id",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    EarlyData = "Early-Data",
    ClientCert = "Client-Cert",
    ClientCertChain = "Client-Cert-Chain",
    SecWebSocketAccept = "Sec-WebSocket-Accept",
    SecWebSocketExtensions = "Sec-WebSocket-Extensions",
    SecWebSocketKey = "Sec-WebSocket-Key",
    SecWebSocketProtocol = "Sec-WebSocket-Protocol",
    SecWebSocketVersion = "Sec-WebSocket-Version",
    SecFetchDest = "Sec-Fetch-Dest",
    SecFetchMode = "Sec-Fetch-Mode",
    SecFetchSite = "Sec-Fetch-Site",
    SecFetchUser = "Sec-Fetch-User",
    UpgradeInsecureRequests = "Upgrade-Insecure-Requests",
    StrictTransportSecurity = "Strict-Transport-Security",
    ContentSecurityPolicy = "Content-Security-Policy",
    XContentTypeOptions = "X-Content-Type-Options",
    XFrameOptions = "X-Frame-Options",
    ReferrerPolicy = "Referrer-Policy",
    AccessControlAllowCredentials = "Access-Control-Allow-Credentials",
    AccessControlAllowHeaders = "Access-Control-Allow-Headers",
    AccessControlAllowMethods = "Access-Control-Allow-Methods",
    AccessControlAllowOrigin = "Access-Control-Allow-Origin",
    AccessControlExposeHeaders = "Access-Control-Expose-Headers",
    AccessControlMaxAge = "Access-Control-Max-Age",
    AccessControlRequestHeaders = "Access-Control-Request-Headers",
    AccessControlRequestMethod = "Access-Control-Request-Method",
}

impl Known {
    /// The id of a field name, case-insensitive.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        let ([first, .., last], Some(middle)) = (name, name.get(name.len() / 2)) else {
            return None;
        };
        let late = name.get(name.len().wrapping_sub(4)).copied().unwrap_or(0);
        let slot = slot_of(SEED, name.len(), *first, *middle, late, *last);
        let id = usize::from(*SLOTS.get(slot)?);
        is_name(name, NAMES.get(id)?).then(|| Self::ALL.get(id).copied())?
    }

    /// The bit of this name in a set of names.
    pub(crate) const fn bit(self) -> u128 {
        1 << (self as u8)
    }
}

// The highest bits of a set are `fields::FLAGS`.
const _: () = assert!(Known::ALL.len() < 126);

/// Large enough that a seed without collisions is found quickly.
const SLOT_COUNT: usize = 2048;
const NONE: u8 = u8::MAX;
const SEED: u64 = seed();
static SLOTS: [u8; SLOT_COUNT] = match slots(SEED) {
    Some(slots) => slots,
    None => [NONE; SLOT_COUNT],
};

/// Whether `name` is `known`, case-insensitive, by as few comparisons as possible, because it runs for every field line.
/// `known` contains letters, digits and `-`, of which only letters have bit 6 set and may differ in bit 5.
fn is_name(name: &[u8], known: &[u8]) -> bool {
    const LETTER: u64 = u64::from_ne_bytes([0x40; 8]);
    let same = |name: u64, known: u64| (name ^ known) & !((known & LETTER) >> 1) == 0;
    let eight = |name: &[u8; 8], known: &[u8; 8]| same(u64::from_ne_bytes(*name), u64::from_ne_bytes(*known));
    let four = |name: &[u8; 4], known: &[u8; 4]| {
        same(u64::from(u32::from_ne_bytes(*name)), u64::from(u32::from_ne_bytes(*known)))
    };
    if name.len() != known.len() {
        return false;
    }
    // The last bytes overlap those before.
    if let (Some(first), Some(known_first), Some(last), Some(known_last)) =
        (name.first_chunk(), known.first_chunk(), name.last_chunk(), known.last_chunk())
    {
        let (between, _) = name.get(8..).unwrap_or_default().as_chunks();
        let (known_between, _) = known.get(8..).unwrap_or_default().as_chunks();
        return eight(first, known_first)
            && eight(last, known_last)
            && (name.len() <= 16
                || between.iter().zip(known_between).all(|(name, known)| eight(name, known)));
    }
    match (name.first_chunk(), known.first_chunk(), name.last_chunk(), known.last_chunk()) {
        (Some(first), Some(known_first), Some(last), Some(known_last)) => {
            four(first, known_first) && four(last, known_last)
        }
        _ => name.eq_ignore_ascii_case(known),
    }
}

/// The slot of a name, from its length and four of its bytes, case-insensitive.
const fn slot_of(seed: u64, len: usize, first: u8, middle: u8, late: u8, last: u8) -> usize {
    let bytes = u32::from_le_bytes([first, middle, late, last]) | 0x2020_2020;
    let key = ((len as u64) << 32) | bytes as u64;
    (key.wrapping_mul(seed) >> (u64::BITS - SLOT_COUNT.trailing_zeros())) as usize
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: an index out of range does not build"
)]
const fn slots(seed: u64) -> Option<[u8; SLOT_COUNT]> {
    let mut slots = [NONE; SLOT_COUNT];
    let mut id = 0;
    while id < Known::ALL.len() {
        let name = Known::ALL[id].as_str().as_bytes();
        let len = name.len();
        let late = if len >= 4 { name[len - 4] } else { 0 };
        let slot = slot_of(seed, len, name[0], name[len / 2], late, name[len - 1]);
        if slots[slot] != NONE {
            return None;
        }
        slots[slot] = id as u8;
        id += 1;
    }
    Some(slots)
}

const fn seed() -> u64 {
    let mut seed: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut tries = 0;
    while tries < 1000 {
        if slots(seed).is_some() {
            return seed;
        }
        seed = seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1) | 1;
        tries += 1;
    }
    0
}

const _: () = assert!(SEED != 0, "no seed without a collision: two names share length and sampled bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_every_case_and_nothing_near_it() {
        for &known in Known::ALL {
            let name = known.as_str();
            assert_eq!(Known::of(name.as_bytes()), Some(known));
            assert_eq!(Known::of(name.to_ascii_lowercase().as_bytes()), Some(known));
            assert_eq!(Known::of(name.to_ascii_uppercase().as_bytes()), Some(known));
            assert_eq!(Known::of(format!("{name}x").as_bytes()), None);
            assert_eq!(Known::of(name.replace('-', "_").as_bytes()).is_some(), !name.contains('-'));
        }
        // Bytes that differ from those of a name only in the case bit, and are no letters.
        for twin in [&b"content\rlength"[..], b"HTTP\x12-Settings", b"x-real-ip\0", b"h\x4Fst\0"] {
            assert_eq!(Known::of(twin), None);
        }
        for &known in Known::ALL {
            for at in 0..known.as_str().len() {
                for bit in 0..8 {
                    let mut name = known.as_str().as_bytes().to_vec();
                    name[at] ^= 1 << bit;
                    let expected =
                        Known::ALL.iter().find(|k| k.as_str().as_bytes().eq_ignore_ascii_case(&name));
                    assert_eq!(Known::of(&name), expected.copied());
                }
            }
        }
        for absent in [&b""[..], b"x", b"ho", b"hos\xF4", b"x-custom"] {
            assert_eq!(Known::of(absent), None);
        }
    }
}
