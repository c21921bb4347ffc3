//! Splits a URL into the parts that a request sends, as they are written: what they mean is for the gateway's codec to say.
//!
//! Parsers of browsers change spellings before a request is sent: they lower the case of hosts, encode international names,
//! and read `0x7f.1` as an address. Other clients do not.

use cardea_http::Scheme;

/// A URL of `http` or `https` (RFC 3986 §3). The parts are not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Url<'a> {
    pub(super) scheme: Scheme,
    /// Host and port, which `Host` has. Not empty.
    pub(super) authority: &'a str,
    /// The path, and the query with its `?`. Empty, or with `/` or `?` at its start.
    path_and_query: &'a str,
}

/// Why a text is not a URL that can be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("character {column}: {message}")]
pub(super) struct UrlError {
    /// The place, in characters from 1.
    column: usize,
    message: &'static str,
}

impl<'a> Url<'a> {
    /// Splits a URL. Its fragment is left out, as clients do not send it (RFC 9110 §7.1).
    ///
    /// # Errors
    /// [`UrlError`] if it has no scheme or another one, no authority, or the end of a line.
    pub(super) fn parse(text: &'a str) -> Result<Self, UrlError> {
        let error = |at: usize, message| {
            let before = text.get(..at).unwrap_or(text);
            Err(UrlError { column: before.chars().count() + 1, message })
        };
        if let Some(at) = text.find(['\r', '\n']) {
            return error(at, "a URL has no line ends");
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return error(0, "the URL has no scheme; write https:// before the host");
        };
        let scheme = [Scheme::Http, Scheme::Https].into_iter().find(|known| {
            // RFC 3986 §3.1: in any case.
            known.as_str().eq_ignore_ascii_case(scheme)
        });
        let Some(scheme) = scheme else {
            return error(0, "the scheme is not http or https");
        };
        let start = text.len() - rest.len();
        let Some(rest) = rest.strip_prefix("//") else {
            return error(start, "two slashes are missing after the scheme");
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return error(start + "//".len(), "the URL has no host");
        }
        let path_and_query = rest.split_once('#').map_or(rest, |(before, _)| before);
        Ok(Self { scheme, authority, path_and_query })
    }

    /// The request target in origin form (RFC 9112 §3.2.1): an empty path is sent as `/`.
    pub(super) fn target(&self) -> String {
        let slash = if self.path_and_query.starts_with('/') { "" } else { "/" };
        format!("{slash}{}", self.path_and_query)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_stay_as_they_were_written() {
        use Scheme::{Http, Https};
        for (text, scheme, authority, target) in [
            ("https://a.example/x/../y?q=%41#f", Https, "a.example", "/x/../y?q=%41"),
            ("https://a.example", Https, "a.example", "/"),
            ("https://a.example?q", Https, "a.example", "/?q"),
            ("https://a.example?q/#/", Https, "a.example", "/?q/"),
            ("https://a.example#f", Https, "a.example", "/"),
            ("http://a.example:80/", Http, "a.example:80", "/"),
            ("HTTP://A.Example./", Http, "A.Example.", "/"),
            ("http://b\u{fc}cher.example/\u{e9}", Http, "b\u{fc}cher.example", "/\u{e9}"),
            ("http://0x7f.1/", Http, "0x7f.1", "/"),
            ("http://%61/", Http, "%61", "/"),
            ("http://u:p@a/", Http, "u:p@a", "/"),
            ("http://a\\b/", Http, "a\\b", "/"),
            ("http://[::1]:8080//x", Http, "[::1]:8080", "//x"),
            ("http:// a/ b\t", Http, " a", "/ b\t"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (url.scheme, url.authority, url.target().as_str()),
                (scheme, authority, target),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_have_the_place() {
        for (text, column, message) in [
            ("", 1, "no scheme"),
            ("a.example/x", 1, "no scheme"),
            ("a.example:80/x", 1, "not http or https"),
            ("ftp://a", 1, "not http or https"),
            (" https://a", 1, "not http or https"),
            ("https:/a", 7, "two slashes"),
            ("http:a", 6, "two slashes"),
            ("https:\\\\a", 7, "two slashes"),
            ("https:///x", 9, "no host"),
            ("https://", 9, "no host"),
            ("https://?q", 9, "no host"),
            ("https://\u{e9}/a\r\nb", 12, "line ends"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert_eq!(error.column, column, "{text}: {error}");
            assert!(error.to_string().contains(message), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parts_make_the_url_again(text in "https?:/{1,2}[a-z.:@\\[%é /?#]{0,12}") {
            if let Ok(url) = Url::parse(&text) {
                let parts = format!("{}://{}{}", url.scheme, url.authority, url.path_and_query);
                prop_assert!(text.strip_prefix(&parts).is_some_and(|rest| rest.is_empty() || rest.starts_with('#')));
                prop_assert!(!url.authority.is_empty() && !url.authority.contains(['/', '?', '#']));
                prop_assert!(url.target().starts_with('/'));
            }
        }
    }
}
