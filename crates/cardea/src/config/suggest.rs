//! Near misses: the key or name that was probably meant.

/// The candidate nearest to `written` by edit distance, if it is near enough to be meant.
pub(super) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (written.chars().count() / 3).clamp(1, 3);
    let written = written.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&written, &candidate.to_lowercase()), candidate))
        .filter(|&(distance, candidate)| distance <= limit && distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Keys that other programs use for what a key of ours says.
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

/// The key that was probably meant: a near miss, or our word for another program's.
pub(super) fn key<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(written, known.iter().copied()).or_else(|| {
        let available = SYNONYMS.iter().filter(|(_, ours)| known.contains(ours));
        let theirs = nearest(written, available.clone().map(|&(theirs, _)| theirs))?;
        let (_, ours) = available.clone().find(|&&(other, _)| other == theirs)?;
        known.iter().copied().find(|known| known == ours)
    })
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, &other) in right.iter().enumerate() {
            let substituted = last[column] + usize::from(letter != other);
            let mut best = substituted.min(last[column + 1] + 1).min(current[column] + 1);
            if column > 0 && previous == Some(other) && right[column - 1] == letter {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        previous = Some(letter);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (left, right, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("adress", "address", 1),
            ("hsots", "hosts", 1),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn keys_of_other_programs_are_translated_even_when_misspelt() {
        assert_eq!(key("upstrem", &["service", "redirect"]), Some("service"));
        assert_eq!(key("upstream", &["redirect"]), None);
        assert_eq!(key("servce", &["service", "redirect"]), Some("service"));
        assert_eq!(key("zzz", &["service", "redirect"]), None);
    }
}
