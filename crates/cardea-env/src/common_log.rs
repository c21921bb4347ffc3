//! The common and the combined log format, as written by Apache, for tools that read nothing else.
//!
//! ```text
//! 203.0.113.9 - ada [10/Oct/2026:13:55:36 +0000] "GET /a?b HTTP/1.1" 200 2326 "https://a.example/" "curl/8"
//! ```
//!
//! Absent values are `-`. Quotes and backslashes are escaped with a backslash, control characters as in C, and bytes
//! that are not printable ASCII as `\xhh`. Unlike in Apache, a space in an unquoted field is `\x20`, so that nobody can
//! add fields through a user name.

use std::fmt;

use crate::escape::Escape;
use crate::json::RecordError;
use crate::lookup::Lookup;
use crate::overrides::HasOverrides;
use crate::redaction::Hide;
use crate::reference::Reference;
use crate::value::{Value, format};
use crate::write::{Written, push_text};

#[cfg(test)]
mod tests;

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonForm {
    /// The common format: `%h %l %u %t "%r" %>s %b`.
    Common,
    /// The combined format, which adds the referrer and the user agent.
    Combined,
}

/// The attributes of the fields. The defaults are the gateway's names.
#[derive(Clone, Debug)]
pub struct CommonFields<'n> {
    /// `%h`: the client.
    pub host: &'n str,
    /// `%u`: the user.
    pub user: &'n str,
    /// `%t`: the time.
    pub time: &'n str,
    /// The first part of `%r`.
    pub method: &'n str,
    /// The second part of `%r`, up to the query.
    pub path: &'n str,
    /// The query, if there is one.
    pub query: &'n str,
    /// The last part of `%r`.
    pub protocol: &'n str,
    /// `%>s`.
    pub status: &'n str,
    /// `%b`: the octets of the response's body.
    pub size: &'n str,
    /// `%{Referer}i`.
    pub referrer: &'n str,
    /// `%{User-agent}i`.
    pub agent: &'n str,
}

impl Default for CommonFields<'static> {
    fn default() -> Self {
        Self {
            host: "source.address",
            user: "token.sub",
            time: "request.time",
            method: "request.method",
            path: "request.path",
            query: "request.query",
            protocol: "request.protocol",
            status: "response.status",
            size: "response.size",
            referrer: "request.headers.referer",
            agent: "request.headers.user-agent",
        }
    }
}

/// A compiled line of the common or the combined log format.
pub struct CommonLog<R: 'static> {
    host: Reference<R>,
    user: Reference<R>,
    time: Reference<R>,
    method: Reference<R>,
    path: Reference<R>,
    query: Reference<R>,
    protocol: Reference<R>,
    status: Reference<R>,
    size: Reference<R>,
    /// The referrer and the user agent of the combined format.
    last: Option<[Reference<R>; 2]>,
}

impl<R: HasOverrides> CommonLog<R> {
    /// Compiles a line. Secrets are written as `[redacted]`.
    ///
    /// # Errors
    ///
    /// [`RecordError::Attribute`] with the position of the field in [`CommonFields`].
    pub fn compile(
        form: CommonForm,
        fields: &CommonFields<'_>,
        names: &impl Lookup<R>,
    ) -> Result<Self, RecordError> {
        let resolve = |index: usize, name: &str| {
            names.resolve(name).map_err(|source| RecordError::Attribute { index, source })
        };
        let last = match form {
            CommonForm::Common => None,
            CommonForm::Combined => Some([resolve(9, fields.referrer)?, resolve(10, fields.agent)?]),
        };
        Ok(Self {
            host: resolve(0, fields.host)?,
            user: resolve(1, fields.user)?,
            time: resolve(2, fields.time)?,
            method: resolve(3, fields.method)?,
            path: resolve(4, fields.path)?,
            query: resolve(5, fields.query)?,
            protocol: resolve(6, fields.protocol)?,
            status: resolve(7, fields.status)?,
            size: resolve(8, fields.size)?,
            last,
        })
    }

    /// Appends one line and its line feed; the line contains no other line feed. It allocates only in `out`.
    pub fn write(&self, request: &R, out: &mut Vec<u8>) {
        bare(&self.host, request, out);
        out.extend_from_slice(b" - ");
        bare(&self.user, request, out);
        match self.time.read(request) {
            Value::Time(nanos) => {
                out.extend_from_slice(b" [");
                out.extend_from_slice(&format::common_log(nanos));
                out.extend_from_slice(b" +0000] \"");
            }
            _ => out.extend_from_slice(b" - \""),
        }
        self.request_line(request, out);
        out.extend_from_slice(b"\" ");
        bare(&self.status, request, out);
        out.push(b' ');
        match self.size.read(request) {
            // `%b`, unlike `%B`.
            Value::Int(0) => out.push(b'-'),
            _ => bare(&self.size, request, out),
        }
        for field in self.last.iter().flatten() {
            out.extend_from_slice(b" \"");
            push(field, request, Escape::Apache, out);
            out.push(b'"');
        }
        out.push(b'\n');
    }

    /// A request that was refused before its method was known is a single `-`.
    fn request_line(&self, request: &R, out: &mut Vec<u8>) {
        if self.method.read(request).is_absent() {
            return out.push(b'-');
        }
        push(&self.method, request, Escape::Apache, out);
        out.push(b' ');
        push(&self.path, request, Escape::Apache, out);
        if !self.query.read(request).is_absent() {
            out.push(b'?');
            push(&self.query, request, Escape::Apache, out);
        }
        out.push(b' ');
        push(&self.protocol, request, Escape::Apache, out);
    }
}

/// Writes an unquoted field, which must not be empty.
fn bare<R: HasOverrides>(reference: &Reference<R>, request: &R, out: &mut Vec<u8>) {
    let start = out.len();
    push(reference, request, Escape::ApacheBare, out);
    if out.len() == start {
        out.push(b'-');
    }
}

fn push<R: HasOverrides>(reference: &Reference<R>, request: &R, escape: Escape, out: &mut Vec<u8>) {
    let hide: Option<&Hide> = reference.hide.as_ref();
    if push_text(reference.read(request), hide, escape, out) == Written::Nothing {
        out.push(b'-');
    }
}

impl<R> fmt::Debug for CommonLog<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.last.is_some() { "CommonLog(Combined)" } else { "CommonLog(Common)" })
    }
}
