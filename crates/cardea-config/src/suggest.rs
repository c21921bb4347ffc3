//! Suggestions: the key or name that was probably meant.

pub(super) use cardea_env::nearest;

/// Keys of other programs, with the corresponding keys of Cardea.
const SYNONYMS: &[(&str, &str)] = &[
    ("upstream", "service"),
    ("backend", "service"),
    ("cluster", "service"),
    ("proxy_pass", "service"),
    ("forward_to", "service"),
    ("server", "endpoint"),
    ("target", "endpoint"),
    ("listen", "listener"),
    ("entrypoint", "listener"),
    ("bind", "address"),
    ("port", "address"),
    ("url", "address"),
    ("host", "hosts"),
    ("domains", "hosts"),
    ("server_names", "hosts"),
    ("prefix", "path_prefix"),
    ("location", "path_prefix"),
    ("pattern", "path_pattern"),
    ("cert", "certificate"),
    ("certificate", "chain"),
    ("cert_file", "chain"),
    ("certificate_file", "chain"),
    ("key_file", "key"),
    ("private_key", "key"),
    ("jwks_uri", "jwks_url"),
    ("iss", "issuer"),
    ("aud", "audiences"),
    ("audience", "audiences"),
    ("scope", "scopes"),
    ("role", "roles"),
    ("timeout", "timeouts"),
    ("max_connections", "connections_max"),
    ("max_body_size", "body_bytes_max"),
    ("client_max_body_size", "body_bytes_max"),
    ("keepalive_timeout", "keep_alive_idle"),
    ("threads", "workers"),
    ("worker_processes", "workers"),
    ("return", "respond"),
    ("static", "respond"),
    ("leeway", "clock_skew"),
    ("add_headers", "request_headers"),
];

/// The key that was probably meant: a similar one, or the one that corresponds to another program's.
pub(super) fn key<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(written, known.iter().copied()).or_else(|| {
        let available = SYNONYMS.iter().filter(|(_, ours)| known.contains(ours));
        let theirs = nearest(written, available.clone().map(|&(theirs, _)| theirs))?;
        let (_, ours) = available.clone().find(|&&(other, _)| other == theirs)?;
        known.iter().copied().find(|known| known == ours)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_other_programs_are_translated_even_when_misspelt() {
        assert_eq!(key("upstrem", &["service", "redirect"]), Some("service"));
        assert_eq!(key("upstream", &["redirect"]), None);
        assert_eq!(key("servce", &["service", "redirect"]), Some("service"));
        assert_eq!(key("zzz", &["service", "redirect"]), None);
    }
}
