//! Request targets (RFC 9112 §3.2): their form and their parts.

#[cfg(test)]
mod tests;

use crate::chars::{self, HOST, PATH, QUERY, hex_value};
use crate::{Method, Scheme};

/// The four forms of a request target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`.
    Origin,
    /// `http://authority/path?query`.
    Absolute,
    /// `host:port`, with CONNECT only.
    Authority,
    /// `*`, with OPTIONS only.
    Asterisk,
}

/// The parts of a request target as received: valid, not normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The form of the target.
    pub form: TargetForm,
    /// The scheme of the absolute form.
    pub scheme: Option<Scheme>,
    /// The authority of the absolute and the authority form; [`crate::Authority`] parses it.
    pub authority: Option<&'a [u8]>,
    /// The path: `/` if the absolute form has none, `*` in the asterisk form, empty in the authority form.
    pub path: &'a [u8],
    /// The part after the first `?`.
    pub query: Option<&'a [u8]>,
}

/// Why bytes are not a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// None of the four forms.
    #[error("the target has none of the four forms")]
    FormInvalid,
    /// A form that is not allowed with this method (RFC 9112 §3.2.3, §3.2.4).
    #[error("the target's form does not fit the method")]
    FormNotAllowed,
    /// A scheme other than `http` and `https`.
    #[error("the target's scheme is neither http nor https")]
    SchemeUnknown,
    /// The authority is missing, or contains a byte that is not allowed in authorities.
    #[error("the target's authority is malformed")]
    AuthorityInvalid,
    /// User information in the authority (RFC 9110 §4.2.4).
    #[error("the target has user information")]
    UserInfo,
    /// A fragment, which no form has (RFC 9112 §3.2).
    #[error("the target has a fragment")]
    Fragment,
    /// A byte that must be percent-encoded: white space, a control, non-ASCII, `"`, `<`, `>` …
    #[error("the target has a byte that must be percent-encoded")]
    ByteInvalid,
    /// A `%` in the path that is not followed by two hexadecimal digits.
    #[error("the target has a bad percent-encoding")]
    EscapeInvalid,
}

/// Splits and validates a request target.
///
/// # Errors
/// [`TargetError`] if it is malformed or does not fit the method.
pub fn parse_target(method: Method, target: &[u8]) -> Result<Target<'_>, TargetError> {
    if method == Method::Connect {
        return authority_form(target);
    }
    match target {
        [b'/', ..] => {
            let (path, query) = path_and_query(target)?;
            Ok(Target { form: TargetForm::Origin, scheme: None, authority: None, path, query })
        }
        b"*" if method == Method::Options => Ok(Target {
            form: TargetForm::Asterisk,
            scheme: None,
            authority: None,
            path: target,
            query: None,
        }),
        b"*" => Err(TargetError::FormNotAllowed),
        _ => absolute_form(target),
    }
}

impl TargetError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::FormInvalid => "target_form_invalid",
            Self::FormNotAllowed => "target_form_not_allowed",
            Self::SchemeUnknown => "target_scheme_unknown",
            Self::AuthorityInvalid => "target_authority_invalid",
            Self::UserInfo => "target_user_info",
            Self::Fragment => "target_fragment",
            Self::ByteInvalid => "target_byte_invalid",
            Self::EscapeInvalid => "target_escape_invalid",
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        400
    }
}

fn absolute_form(target: &[u8]) -> Result<Target<'_>, TargetError> {
    let colon = memchr::memchr(b':', target).ok_or(TargetError::FormInvalid)?;
    let (name, rest) = target.split_at_checked(colon).ok_or(TargetError::FormInvalid)?;
    let Some(rest) = rest.strip_prefix(b"://") else {
        return Err(TargetError::FormInvalid);
    };
    let scheme = if name.eq_ignore_ascii_case(b"http") {
        Scheme::Http
    } else if name.eq_ignore_ascii_case(b"https") {
        Scheme::Https
    } else {
        return Err(TargetError::SchemeUnknown);
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).ok_or(TargetError::FormInvalid)?;
    check_authority(authority)?;
    let (path, query) = path_and_query(rest)?;
    let path = if path.is_empty() { b"/" } else { path };
    Ok(Target { form: TargetForm::Absolute, scheme: Some(scheme), authority: Some(authority), path, query })
}

/// `host:port` with a mandatory port (RFC 9112 §3.2.3).
fn authority_form(target: &[u8]) -> Result<Target<'_>, TargetError> {
    if target.first() == Some(&b'/') || target == b"*" {
        return Err(TargetError::FormNotAllowed);
    }
    check_authority(target)?;
    match target.rsplit(|&byte| byte == b':').next() {
        Some(port)
            if port.len() < target.len() && !port.is_empty() && port.iter().all(u8::is_ascii_digit) =>
        {
            Ok(Target {
                form: TargetForm::Authority,
                scheme: None,
                authority: Some(target),
                path: b"",
                query: None,
            })
        }
        _ => Err(TargetError::AuthorityInvalid),
    }
}

/// A basic check of the authority; [`crate::Authority::parse`] does the rest.
fn check_authority(authority: &[u8]) -> Result<(), TargetError> {
    if authority.contains(&b'@') {
        return Err(TargetError::UserInfo);
    }
    let valid = |&byte: &u8| chars::is(byte, HOST) || matches!(byte, b':' | b'[' | b']');
    if authority.is_empty() || !authority.iter().all(valid) {
        return Err(TargetError::AuthorityInvalid);
    }
    Ok(())
}

type PathAndQuery<'a> = (&'a [u8], Option<&'a [u8]>);

fn path_and_query(target: &[u8]) -> Result<PathAndQuery<'_>, TargetError> {
    let plain =
        target.iter().position(|&byte| byte != b'/' && !chars::is(byte, PATH)).unwrap_or(target.len());
    let Some((path, rest)) = target.split_at_checked(plain) else {
        return Err(TargetError::ByteInvalid);
    };
    match rest {
        [] => Ok((path, None)),
        [b'?', query @ ..] => {
            check(query, QUERY)?;
            Ok((path, Some(query)))
        }
        _ => {
            let end = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
            let (path, rest) = target.split_at_checked(end).unwrap_or((target, b""));
            check(path, PATH)?;
            let query = rest.strip_prefix(b"?");
            check(query.unwrap_or_default(), QUERY)?;
            Ok((path, query))
        }
    }
}

fn check(bytes: &[u8], class: u8) -> Result<(), TargetError> {
    let mut rest = bytes;
    while let [byte, after @ ..] = rest {
        rest = match (*byte, after) {
            (b'/', _) => after,
            (b'%', [high, low, after @ ..]) if hex_value(*high).is_some() && hex_value(*low).is_some() => {
                after
            }
            // In a query it is unambiguous. In a path, decoders differ.
            (b'%', _) if class == QUERY => after,
            (b'%', _) => return Err(TargetError::EscapeInvalid),
            (b'#', _) => return Err(TargetError::Fragment),
            (byte, _) if chars::is(byte, class) => after,
            _ => return Err(TargetError::ByteInvalid),
        };
    }
    Ok(())
}
