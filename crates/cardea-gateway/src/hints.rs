//! Fields by which proxies tell services what they know of a client. From a client they are claims that nobody has
//! checked, so they are removed unless a trusted proxy sent them.

use cardea_http::{FieldError, HeaderNameSet};

/// The fields that are removed, beside those that begin like one of [`PREFIXES`] and those that the gateway sets itself.
pub const NAMES: [&str; 50] = [
    // The client's address.
    "True-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Originating-IP",
    "X-Remote-IP",
    "X-Remote-Addr",
    "X-ProxyUser-IP",
    "X-Appengine-User-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Pseudo-IPv4",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Client-IP",
    "Proxy-Client-IP",
    "WL-Proxy-Client-IP",
    "X-Forwarded",
    "X-Forward-For",
    "Forwarded-For",
    // The scheme that the client used.
    "X-Scheme",
    "X-Url-Scheme",
    "X-Proto",
    "Front-End-Https",
    "CF-Visitor",
    "CloudFront-Forwarded-Proto",
    "WL-Proxy-SSL",
    // The host, the path and the method that are meant in place of those of the request.
    "X-Host",
    "X-HTTP-Host-Override",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Override-URL",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    // Who the client is.
    "Remote-User",
    "X-Remote-User",
    "X-Remote-Group",
    "X-Remote-Groups",
    "X-WebAuth-User",
    "X-Authenticated-User",
    "X-Goog-IAP-JWT-Assertion",
    "X-Client-Cert",
    "X-Client-Certificate",
    // What servers and frameworks say to their own parts.
    "X-Sendfile-Type",
    "X-Accel-Mapping",
    "X-Accel-Redirect",
    "X-Middleware-Subrequest",
    // What gateways say of copies.
    "Cardea-Mirrored",
];

/// Fields that begin like one of these are removed too.
pub const PREFIXES: [&str; 11] = [
    "X-Forwarded-",
    "X-Original-",
    "X-Envoy-",
    "X-ARR-",
    "X-SSL-",
    "SSL-Client-",
    "X-Auth-Request-",
    "X-Amzn-Oidc-",
    "X-Goog-Authenticated-User-",
    "X-MS-Client-Principal",
    "CF-Access-",
];

/// Fields that begin like one of [`PREFIXES`] and that the forwarding policy decides on.
const FORWARDING: [&str; 6] = [
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Server",
];

/// Whether a field is one of those that are removed, and that may be kept.
#[must_use]
pub fn is_hint(name: &str) -> bool {
    if FORWARDING.iter().any(|other| other.eq_ignore_ascii_case(name)) {
        return false;
    }
    let starts =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    NAMES.iter().any(|hint| hint.eq_ignore_ascii_case(name)) || PREFIXES.iter().any(starts)
}

/// The fields that are removed, but for those in `kept`.
///
/// # Errors
/// [`FieldError::NameInvalid`] if a name in `kept` is no token.
pub fn hints(kept: &[impl AsRef<str>]) -> Result<HeaderNameSet, FieldError> {
    let is_kept = |name: &&str| kept.iter().any(|kept| kept.as_ref().eq_ignore_ascii_case(name));
    HeaderNameSet::new(NAMES.iter().filter(|name| !is_kept(name)))?
        .with_prefixes(PREFIXES)?
        .but_for(kept.iter().map(|name| name.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_client_headers_match_only_their_own_name() {
        let none: [&str; 0] = [];
        let all = hints(&none).unwrap();
        for name in NAMES {
            assert!(all.contains(name.as_bytes()) && is_hint(name), "{name}");
            assert!(all.contains(name.replace('-', "_").as_bytes()), "{name}");
        }
        assert!(all.contains(b"X-Forwarded-Ssl") && !all.contains(b"Accept") && !is_hint("Accept"));
        assert!(is_hint("x-forwarded-ssl") && !is_hint("X-Forwarded-For"));
        let some = hints(&["x-http-method-override", "X-Forwarded-Ssl"]).unwrap();
        assert!(!some.contains(b"X-HTTP-Method-Override") && !some.contains(b"x-forwarded-ssl"));
        assert!(some.contains(b"X_Forwarded-Ssl") && some.contains(b"X-Forwarded-Scheme"));
    }

    #[test]
    fn no_name_that_is_handled_by_id_slips_through_a_prefix() {
        let none: [&str; 0] = [];
        let all = hints(&none).unwrap();
        for known in cardea_http::Known::ALL {
            let mut fields = cardea_http::Fields::default();
            fields.append_known(*known, b"x").unwrap();
            let is_removed = cardea_http::strip_named(&mut fields, &all) == 1;
            assert_eq!(is_removed, is_hint(known.as_str()), "{}", known.as_str());
        }
    }

    #[test]
    fn the_documentation_names_them_all() {
        let page = include_str!("../../../docs/headers.md");
        for name in NAMES {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        for prefix in PREFIXES {
            assert!(page.contains(&format!("`{prefix}*`")), "{prefix}");
        }
    }
}
