//! Paths that some origins read as another path than the one that was routed.

use super::{Found, Outcome, RequestView, Router};

impl<T> Router<T> {
    /// Whether an origin that drops path parameters (`/admin;x/a` is `/admin/a` to servlet containers) may
    /// see a path that belongs to another route than `found`, or to none: then the guards of `found` are not
    /// those of what the origin serves. Such a request is refused unless its route allows parameters.
    ///
    /// Takes what [`Router::find`] took. False, at the cost of a scan, for paths without `;` and `%3B`.
    pub fn is_disguised(
        &self,
        host: &str,
        path: &[u8],
        request: &impl RequestView,
        found: &Found<'_, T>,
    ) -> bool {
        if !path.contains(&b';') && !path.windows(3).any(|bytes| bytes == b"%3B") {
            return false;
        }
        match self.find(host, &without_parameters(path), request) {
            Outcome::Found(other) => other.index() != found.index(),
            Outcome::MethodNotAllowed { .. } | Outcome::NotFound => true,
        }
    }
}

/// The path with each segment cut at its first `;` or `%3B`, and without the empty segments this makes
/// before a slash.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let semicolon = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
        let escaped = segment.windows(3).position(|bytes| bytes == b"%3B").unwrap_or(segment.len());
        let name = segment.get(..semicolon.min(escaped)).unwrap_or_default();
        if !name.is_empty() || segments.peek().is_none() {
            plain.push(b'/');
            plain.extend_from_slice(name);
        }
    }
    plain
}
