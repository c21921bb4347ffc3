//! Where a route leads: to a service, to the gateway itself, or elsewhere; and the path that a service gets.

use std::sync::Arc;

use cardea_env::Template;
use cardea_gateway::model::PathPart;

use super::{
    super::{
        document::Cursor,
        model::{BuiltIn, Destination, SourceText},
        raw::{RawRedirect, RawRespond, RawShare},
        suggest,
    },
    Names, Resolver,
    rules::is_field_value,
};

/// Attributes that clients write as they like.
const CHOSEN_BY_CLIENT: [&str; 4] =
    ["request.query", "request.headers", "request.first_header", "request.cookies"];

/// Where a route leads, as written.
pub(super) struct WrittenDestination {
    pub(super) service: Option<String>,
    pub(super) split: Option<Vec<RawShare>>,
    pub(super) split_key: Option<String>,
    pub(super) redirect: Option<RawRedirect>,
    pub(super) respond: Option<RawRespond>,
    pub(super) builtin: Option<BuiltIn>,
}

impl Resolver<'_> {
    pub(super) fn destination(
        &mut self,
        WrittenDestination { service, split, split_key, redirect, respond, builtin }: WrittenDestination,
        name: &str,
        names: &Names<'_>,
        at: Cursor<'_>,
    ) -> Option<Destination> {
        let written = [
            ("service", service.is_some()),
            ("split", split.is_some()),
            ("redirect", redirect.is_some()),
            ("respond", respond.is_some()),
            ("builtin", builtin.is_some()),
        ];
        if self.only_one(&written, at, "a route has one destination", "keep one of them").is_none()
            && !at.lost_any(&written.map(|(key, _)| key))
        {
            self.error(
                at,
                format!("the route {name:?} does not say where requests go"),
                "add service = \"…\", split, redirect, respond or builtin",
            );
        }
        if split.is_none() && split_key.is_some() && !at.lost_any(&["split"]) {
            self.error(
                at.key("split_key"),
                "split_key without split: there is nothing to choose from",
                "add [[route.split]] tables, or remove it",
            );
        }
        if let Some(service) = service {
            let index = self.service_index(&service, names, at.key("service"))?;
            return Some(Destination::Service { index });
        }
        if let Some(split) = split {
            return self.split(split, split_key, names, at);
        }
        if let Some(redirect) = redirect {
            return self.redirect(redirect, name, at.key("redirect"));
        }
        if let Some(respond) = respond {
            return Some(self.respond(respond, at.key("respond")));
        }
        let builtin = builtin?;
        if builtin != BuiltIn::Health && !names.has_authorization_server {
            self.error(
                at.key("builtin"),
                "this built-in service is a part of the authorization server, which is not configured",
                "add the section [authorization_server]",
            );
        }
        Some(Destination::BuiltIn(builtin))
    }

    /// The index of a service, by its name.
    pub(super) fn service_index(&mut self, name: &str, names: &Names<'_>, at: Cursor<'_>) -> Option<usize> {
        let found = names.service_indices.get(name).copied();
        if found.is_none() {
            self.unknown("service", name, names.service_indices.keys().copied(), at);
        }
        found
    }

    fn redirect(&mut self, raw: RawRedirect, route: &str, at: Cursor<'_>) -> Option<Destination> {
        if !matches!(raw.status, 301 | 302 | 303 | 307 | 308) {
            self.error(
                at.key("status"),
                format!("{} is not the status of a redirect", raw.status),
                "write 301, 302, 303, 307 or 308 (RFC 9110 §15.4)",
            );
        }
        let is_absolute = raw.to.starts_with("https://") || raw.to.starts_with("http://");
        // `//host` would be another host's root (RFC 3986 §4.2), and browsers read `/\host` as that.
        let is_path = raw.to.starts_with('/') && !raw.to.starts_with("//") && !raw.to.starts_with("/\\");
        let is_clean = raw.to.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_clean || !(is_absolute || is_path) {
            let to = at.key("to");
            self.error(
                to,
                format!("{:?} is not a place to redirect to", to.shown(&raw.to)),
                "write a URL, or a path that begins with one slash",
            );
        }
        if let Some(reference) = self.host_by_client(&raw.to) {
            self.problems.warn(
                at.key("to").location(),
                format!("the redirect of the route {route:?} leads wherever the client says: {reference} is part of the host"),
                "write the host, or choose it by an attribute with a map",
            );
        }
        let to = self.raw_template(&SourceText { text: raw.to, at: at.key("to").location() })?;
        let reads_query = to.references().any(|reference| self.reads(reference, is_query));
        Some(Destination::Redirect { to, keep_query: raw.keep_query && !reads_query, status: raw.status })
    }

    /// The reference by which the client chooses the host of a place. What is computed of the client's words, as by a map, is
    /// the configuration's choice.
    fn host_by_client<'t>(&self, to: &'t str) -> Option<&'t str> {
        // `//host` is another host too (RFC 3986 §4.2).
        let (mut rest, is_url) = match to.split_once("://") {
            Some((_, rest)) => (rest, true),
            None => (to.strip_prefix('/')?, false),
        };
        let mut is_begun = false;
        loop {
            if !rest.starts_with('{') || rest.starts_with("{{") {
                let first =
                    rest.chars().next().filter(|first| is_url && !matches!(first, '/' | '?' | '#'))?;
                rest = rest.get(first.len_utf8()..)?;
                is_begun = true;
                continue;
            }
            let (reference, behind) = rest.split_at_checked(reference_len(rest))?;
            let template = Template::compile_raw(reference, &self.names).ok()?;
            let computed = self.names.computed_from(&template);
            let sources = template.references().flat_map(|reference| self.names.sources(reference));
            let shown: Vec<String> = sources.filter(|source| !computed.contains(source)).collect();
            let begins_path = shown.iter().any(|source| source == "request.path");
            // A path ends the host, where there is one; a parameter of a path begins with no slash.
            if begins_path && is_begun {
                return None;
            }
            let is_chosen = |source: &String| {
                CHOSEN_BY_CLIENT.iter().any(|family| source.starts_with(family))
                    || is_url && source.starts_with("route.parameters")
            };
            if begins_path || shown.iter().any(is_chosen) {
                return Some(reference);
            }
            if !is_url {
                return None;
            }
            (rest, is_begun) = (behind, true);
        }
    }

    fn respond(&mut self, raw: RawRespond, at: Cursor<'_>) -> Destination {
        let body: Arc<[u8]> = match (raw.body, raw.file) {
            (Some(_), Some(_)) => {
                self.error(at.key("file"), "a response has one body", "keep body or file");
                Arc::default()
            }
            (Some(body), None) => body.into_bytes().into(),
            (None, Some(file)) => self.file(at.key("file"), &file).1.unwrap_or_default().into(),
            (None, None) => Arc::default(),
        };
        // RFC 9110 §15.3.5 and §15.4.5: these have no content.
        if matches!(raw.status, 204 | 205 | 304) && !body.is_empty() {
            self.error(
                at.key("status"),
                format!("a response with {} has no body", raw.status),
                "remove the body",
            );
        }
        if !is_field_value(&raw.content_type) || !raw.content_type.contains('/') {
            let content_type = at.key("content_type");
            self.error(
                content_type,
                format!("{:?} is not a media type", content_type.shown(&raw.content_type)),
                "write it as in \"text/html; charset=utf-8\"",
            );
        }
        Destination::Respond { status: raw.status, content_type: raw.content_type, body }
    }

    /// The parts of `/v2/{id}/x`: literals and parameters. Without `known`, any parameter may be meant.
    pub(super) fn rewrite_path(
        &mut self,
        written: &str,
        known: Option<&[String]>,
        at: Cursor<'_>,
    ) -> Vec<PathPart> {
        let is_clean = written.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'));
        if !written.starts_with('/') || !is_clean {
            self.error(
                at,
                format!("{:?} is not a path", at.shown(written)),
                "begin with a slash, and leave query and fragment away",
            );
        }
        let mut parts = Vec::new();
        let mut rest = written;
        while let Some((literal, tail)) = rest.split_once('{') {
            let Some((name, after)) = tail.split_once('}') else {
                self.error(at, format!("{:?} has a brace that is not closed", at.shown(written)), "close it");
                break;
            };
            if known.is_some_and(|known| !known.iter().any(|parameter| parameter == name)) {
                let known = known.unwrap_or_default().iter().map(String::as_str);
                let remedy = match suggest::nearest(name, known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => {
                        "use the parameters of path_pattern; attributes are not filled in here".to_owned()
                    }
                };
                self.error(
                    at,
                    format!("{:?} names a parameter that the route does not have", at.shown(written)),
                    remedy,
                );
            }
            if !literal.is_empty() {
                parts.push(PathPart::Literal(literal.to_owned()));
            }
            parts.push(PathPart::Parameter(name.trim_start_matches('*').to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(PathPart::Literal(rest.to_owned()));
        }
        parts
    }
}

/// Whether this is the name of the query, or of a part of it.
fn is_query(source: &str) -> bool {
    source.starts_with("request.query")
}

/// The length of the reference or expression that a text of a template begins with, braces included.
fn reference_len(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}
