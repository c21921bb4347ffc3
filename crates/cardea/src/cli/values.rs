//! Values on the command line.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
    time::Duration,
};

use cardea_kdf::stored::Target;
use clap::ValueEnum;
use zeroize::Zeroizing;

use crate::config;

/// The longest input that is read as a token: twice what the gateway accepts.
const TOKEN_BYTES_MAX: u64 = 32 << 10;

/// A duration in the syntax of the configuration: `"10s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationArgument(pub(crate) Duration);

impl FromStr for DurationArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        config::parse_duration(text).map(Self).map_err(|error| format!("{}; {}", error.message, error.remedy))
    }
}

impl fmt::Display for DurationArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&config::display_duration(self.0))
    }
}

/// The encoding of a client's id and secret in Basic authentication (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BasicEncoding {
    /// Both readings are tried; right for generated ids and secrets, for which they are equal.
    #[default]
    Auto,
    /// Form-encoded (RFC 6749 §2.3.1).
    Form,
    /// Not encoded, as many clients send them.
    Raw,
}

/// The format of a file of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// A JSON object on each line.
    JsonLines,
    /// Comma-separated values (RFC 4180), with the column names in the first line.
    Csv,
}

/// Parses an iteration count to the parameters of new hashes.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let count = text.parse().map_err(|_| "expected a number".to_owned())?;
    Target::new(count).map_err(|error| error.to_string())
}

/// A token, or its source. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct TokenArgument(Zeroizing<String>);

impl FromStr for TokenArgument {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for TokenArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.as_str() == "-" { "TokenArgument(-)" } else { "TokenArgument(redacted)" })
    }
}

impl TokenArgument {
    /// The token, without surrounding white space and without a copied `Bearer`.
    ///
    /// # Errors
    /// If it can't be read, or is longer than the longest token.
    pub(crate) fn read(&self, input: impl Read) -> io::Result<Zeroizing<String>> {
        let text = if self.0.as_str() == "-" {
            let mut text = Zeroizing::new(String::new());
            input.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text)?;
            if text.len() as u64 > TOKEN_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than the longest token"));
            }
            text
        } else {
            self.0.clone()
        };
        let trimmed = text.trim();
        let (scheme, rest) = trimmed.split_at_checked(7).unwrap_or(("", trimmed));
        let token = if scheme.eq_ignore_ascii_case("bearer ") { rest.trim_start() } else { trimmed };
        Ok(Zeroizing::new(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_from_the_argument_or_from_standard_input() {
        for (argument, input, expected) in [
            ("-", " a.b.c\n", "a.b.c"),
            ("-", "Bearer a.b.c", "a.b.c"),
            ("x.y.z", "a.b.c", "x.y.z"),
            ("bearer  x.y.z", "", "x.y.z"),
            ("-", "é", "é"),
        ] {
            let token: TokenArgument = argument.parse().unwrap();
            assert_eq!(token.read(input.as_bytes()).unwrap().as_str(), expected);
        }
        let token: TokenArgument = "-".parse().unwrap();
        assert!(token.read(io::repeat(b'a')).is_err());
    }

    #[test]
    fn tokens_are_redacted() {
        let token: TokenArgument = "secret.secret.secret".parse().unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }
}
