//! `${NAME}` and `${NAME:-default}` in strings; `$$` stands for a dollar sign.

use super::Environment;

/// The errors of a reference to the environment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The variable is not set, and there is no default.
    Unset(String),
    /// `${` without `}`, or an invalid name of a variable.
    Malformed,
}

/// Replaces references to the environment; `None` if there are none.
pub(super) fn expand(written: &str, environment: Environment<'_>) -> Result<Option<String>, ExpandError> {
    if !written.contains('$') {
        return Ok(None);
    }
    let mut out = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(dollar) = rest.find('$') {
        let (literal, from_dollar) = rest.split_at(dollar);
        out.push_str(literal);
        let after = &from_dollar[1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(reference) = after.strip_prefix('{') {
            let (reference, after) = reference.split_once('}').ok_or(ExpandError::Malformed)?;
            let (name, default) = match reference.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (reference, None),
            };
            if !is_name(name) {
                return Err(ExpandError::Malformed);
            }
            // As in a shell, `:-` also replaces an empty value.
            match (environment(name), default) {
                (Some(value), None) => out.push_str(&value),
                (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
                (_, Some(default)) => out.push_str(default),
                (None, None) => return Err(ExpandError::Unset(name.to_owned())),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// Whether a variable can have this name (POSIX.1-2024 §8.1, either case).
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_once() {
        for (written, expected) in [
            ("plain", None),
            ("${HOST}", Some("example.com")),
            ("https://${HOST}:443/", Some("https://example.com:443/")),
            ("${NONE:-fallback}", Some("fallback")),
            ("${NONE:-}", Some("")),
            ("${EMPTY:-fallback}", Some("fallback")),
            ("${EMPTY}", Some("")),
            ("${NESTED}", Some("${HOST}")),
            ("$${HOST}", Some("${HOST}")),
            ("5 $ each", Some("5 $ each")),
            ("$", Some("$")),
        ] {
            assert_eq!(expand(written, &environment).unwrap().as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn unset_and_malformed_references_are_errors() {
        assert_eq!(expand("${NONE}", &environment), Err(ExpandError::Unset("NONE".to_owned())));
        for written in ["${", "${HOST", "${}", "${A B}", "${1A}"] {
            assert_eq!(expand(written, &environment), Err(ExpandError::Malformed), "{written}");
        }
    }
}
