//! The configuration of the authorization server, and its checks.

use std::time::Duration;

use cardea_store::SigningAlgorithm;
use url::{Host, Url};

use crate::IssuerError;

mod secrets;

pub use secrets::SecretConfig;

/// The longest lifetime of an access token.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The largest difference between a verifier's clock and ours. Everything that must outlive a token outlives it by
/// this.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// The default lifetime of access tokens.
pub const ACCESS_TOKEN_LIFETIME_DEFAULT: Duration = Duration::from_secs(3_600);
/// The default time for which a key signs: 90 days.
pub const KEY_LIFETIME_DEFAULT: Duration = Duration::from_secs(90 * 86_400);
/// The default time for which a key is published before it signs: one day.
pub const KEY_PUBLISH_AHEAD_DEFAULT: Duration = Duration::from_secs(86_400);
/// The default time for which a key stays published after it last signed: two days.
pub const KEY_OVERLAP_DEFAULT: Duration = Duration::from_secs(2 * 86_400);

const TOKEN_LIFETIME_MIN: Duration = Duration::from_secs(60);
const KEY_TIME_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);
const PUBLISH_AHEAD_MIN: Duration = Duration::from_secs(60);
const KEY_SET_AGE_MIN: Duration = Duration::from_secs(1);
pub(crate) const KEY_SET_AGE_DEFAULT: Duration = Duration::from_secs(300);
const NAMES_MAX: usize = 1_024;
const NAME_BYTES_MAX: usize = 512;

/// The authorization server's configuration. [`AuthorizationServerConfig::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct AuthorizationServerConfig {
    /// The issuer: `https`, or `http` on a loopback host. It may have a path, but no query, fragment or user. The `iss`
    /// of tokens and the `issuer` of the metadata are this URL without a trailing slash.
    pub issuer: Url,
    /// The lifetime of access tokens, unless the client's record has one. Default [`ACCESS_TOKEN_LIFETIME_DEFAULT`]; 60
    /// s to 24 h, in whole seconds.
    pub access_token_lifetime: Duration,
    /// The algorithm of new signing keys. A change creates a new key at once, which signs after `key_publish_ahead`.
    pub algorithm: SigningAlgorithm,
    /// The `aud` of tokens whose request has no `resource` (RFC 9068 §3). Required.
    pub default_audience: String,
    /// The allowed values of `resource`: absolute URIs without fragment (RFC 8707 §2). The default audience is allowed
    /// too. At most 1,024.
    pub resources: Vec<String>,
    /// The existing scopes. If empty, clients may have any scope, and the metadata lists none. At most 1,024.
    pub scopes: Vec<String>,
    /// How long a key signs before the next one replaces it. Default [`KEY_LIFETIME_DEFAULT`]; at least twice
    /// `key_publish_ahead`, at most 10 years.
    pub key_lifetime: Duration,
    /// How long a key is published before it signs, so that verifiers that cache the key set know it in time. Default
    /// [`KEY_PUBLISH_AHEAD_DEFAULT`], at least 60 s.
    pub key_publish_ahead: Duration,
    /// How long the key set and the metadata may be cached. Default: half of `key_publish_ahead`, at most five minutes.
    /// Allowed: 1 s to half of `key_publish_ahead`, so that a verifier that fetched the set just before a key was
    /// published fetches it again before the key signs.
    pub key_set_max_age: Option<Duration>,
    /// How long a key stays published after it stopped signing. Default [`KEY_OVERLAP_DEFAULT`]; at least
    /// `access_token_lifetime` plus five minutes of clock skew. It limits the lifetime of every token, whatever a
    /// client's record says.
    pub key_overlap: Duration,
    /// The verification of client secrets.
    pub secrets: SecretConfig,
}

impl AuthorizationServerConfig {
    /// A configuration with every default.
    #[must_use]
    pub fn new(issuer: Url, default_audience: impl Into<String>) -> Self {
        Self {
            issuer,
            access_token_lifetime: ACCESS_TOKEN_LIFETIME_DEFAULT,
            algorithm: SigningAlgorithm::default(),
            default_audience: default_audience.into(),
            resources: Vec::new(),
            scopes: Vec::new(),
            key_lifetime: KEY_LIFETIME_DEFAULT,
            key_publish_ahead: KEY_PUBLISH_AHEAD_DEFAULT,
            key_set_max_age: None,
            key_overlap: KEY_OVERLAP_DEFAULT,
            secrets: SecretConfig::default(),
        }
    }

    /// Checks all fields, without access to the store.
    ///
    /// # Errors
    /// [`IssuerError::InvalidConfig`] for the first field that is wrong.
    pub fn check(&self) -> Result<(), IssuerError> {
        self.check_issuer()?;
        check_lifetime(self.access_token_lifetime)
            .map_err(|problem| invalid("access_token_lifetime", problem))?;
        if self.default_audience.is_empty() || !is_visible_ascii(&self.default_audience) {
            return Err(invalid("default_audience", "expected a name or a URI in visible ASCII".into()));
        }
        if self.default_audience.len() > NAME_BYTES_MAX {
            return Err(invalid("default_audience", format!("expected at most {NAME_BYTES_MAX} bytes")));
        }
        if self.resources.len() > NAMES_MAX {
            return Err(invalid("resources", format!("expected at most {NAMES_MAX}")));
        }
        for resource in &self.resources {
            check_resource(resource).map_err(|problem| invalid("resources", problem))?;
        }
        check_scopes(&self.scopes).map_err(|problem| invalid("scopes", problem))?;
        self.check_key_times()?;
        self.secrets.check()
    }

    /// The exact spelling of the issuer, which `iss` contains and verifiers compare.
    #[must_use]
    pub fn issuer_text(&self) -> &str {
        self.issuer.as_str().trim_end_matches('/')
    }

    /// How long the key set may be cached.
    pub(crate) fn key_set_max_age(&self) -> Duration {
        self.key_set_max_age.unwrap_or_else(|| (self.key_publish_ahead / 2).min(KEY_SET_AGE_DEFAULT))
    }

    /// The longest lifetime of a token. The key that signed it stays published until the token has expired.
    pub(crate) fn token_lifetime_max(&self) -> Duration {
        self.key_overlap.saturating_sub(CLOCK_SKEW_MAX).min(TOKEN_LIFETIME_MAX)
    }

    fn check_issuer(&self) -> Result<(), IssuerError> {
        let wrong = |problem: &str| Err(invalid("issuer", problem.into()));
        let issuer = &self.issuer;
        let loopback = match issuer.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => return wrong("expected a URL with a host"),
        };
        match issuer.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return wrong("http is for loopback hosts only; use https"),
            _ => return wrong("expected an https URL"),
        }
        if issuer.query().is_some() || issuer.fragment().is_some() {
            return wrong("a query or a fragment is not allowed (RFC 8414 section 2)");
        }
        if !issuer.username().is_empty() || issuer.password().is_some() {
            return wrong("a user or a password is not allowed");
        }
        let path = issuer.path().trim_end_matches('/');
        if path.contains("//") || path.contains('%') || path.contains('\\') {
            return wrong("the path must be plain: no empty segments and no escapes");
        }
        Ok(())
    }

    fn check_key_times(&self) -> Result<(), IssuerError> {
        if self.key_publish_ahead < PUBLISH_AHEAD_MIN || self.key_publish_ahead > KEY_TIME_MAX {
            return Err(invalid("key_publish_ahead", "expected 60 s to 10 years".into()));
        }
        if self.key_lifetime < self.key_publish_ahead.saturating_mul(2) || self.key_lifetime > KEY_TIME_MAX {
            let least = self.key_publish_ahead.saturating_mul(2).as_secs();
            return Err(invalid(
                "key_lifetime",
                format!("expected at least twice key_publish_ahead ({least} s) and at most 10 years"),
            ));
        }
        let most = self.key_publish_ahead / 2;
        if self.key_set_max_age.is_some_and(|age| age < KEY_SET_AGE_MIN || age > most) {
            return Err(invalid(
                "key_set_max_age",
                format!("expected 1 s to half of key_publish_ahead ({} s)", most.as_secs()),
            ));
        }
        let least = self.access_token_lifetime.saturating_add(CLOCK_SKEW_MAX);
        if self.key_overlap < least || self.key_overlap > KEY_TIME_MAX {
            return Err(invalid(
                "key_overlap",
                format!(
                    "expected at least access_token_lifetime and {} s of clock skew ({} s), at most 10 years",
                    CLOCK_SKEW_MAX.as_secs(),
                    least.as_secs()
                ),
            ));
        }
        Ok(())
    }
}

fn invalid(field: &'static str, problem: String) -> IssuerError {
    IssuerError::InvalidConfig { field, problem }
}

/// Checks the lifetime of a token.
pub(crate) fn check_lifetime(lifetime: Duration) -> Result<(), String> {
    if lifetime < TOKEN_LIFETIME_MIN || lifetime > TOKEN_LIFETIME_MAX || lifetime.subsec_nanos() != 0 {
        return Err("expected 60 s to 24 h in whole seconds".into());
    }
    Ok(())
}

/// Checks a list of scopes: each is a scope-token of RFC 6749 §3.3, and none is repeated.
pub(crate) fn check_scopes(scopes: &[String]) -> Result<(), String> {
    if scopes.len() > NAMES_MAX {
        return Err(format!("expected at most {NAMES_MAX}"));
    }
    for (index, scope) in scopes.iter().enumerate() {
        if !is_scope_token(scope) || scope.len() > NAME_BYTES_MAX {
            return Err(format!(
                "{scope:?} is not a scope: visible ASCII without space, quote and backslash"
            ));
        }
        if scopes.iter().take(index).any(|earlier| earlier == scope) {
            return Err(format!("{scope:?} is listed twice"));
        }
    }
    Ok(())
}

/// RFC 6749 §3.3: `scope-token = 1*( %x21 / %x23-5B / %x5D-7E )`.
pub(crate) fn is_scope_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5B | 0x5D..=0x7E))
}

pub(crate) fn is_visible_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, 0x21..=0x7E))
}

/// RFC 8707 §2: an absolute URI without a fragment.
fn check_resource(resource: &str) -> Result<(), String> {
    if resource.len() > NAME_BYTES_MAX || !is_visible_ascii(resource) {
        return Err(format!("{resource:?} is not a URI of at most {NAME_BYTES_MAX} bytes"));
    }
    match Url::parse(resource) {
        Ok(url) if url.fragment().is_none() => Ok(()),
        Ok(_) => Err(format!("{resource:?} has a fragment (RFC 8707 section 2)")),
        Err(_) => Err(format!("{resource:?} is not an absolute URI (RFC 8707 section 2)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AuthorizationServerConfig {
        AuthorizationServerConfig::new(
            Url::parse("https://id.example.com").unwrap(),
            "https://api.example.com",
        )
    }

    #[test]
    fn the_defaults_are_valid() {
        config().check().unwrap();
    }

    #[test]
    fn issuers_are_https_or_loopback_and_plain() {
        for (issuer, valid) in [
            ("https://id.example.com", true),
            ("https://id.example.com:8443/tenants/one/", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://localhost:8080", true),
            ("http://id.example.com", false),
            ("http://localhost.example.com", false),
            ("ftp://id.example.com", false),
            ("https://id.example.com?x", false),
            ("https://id.example.com#x", false),
            ("https://user@id.example.com", false),
            ("https://id.example.com/a//b", false),
            ("https://id.example.com/a%2fb", false),
            ("urn:example:issuer", false),
        ] {
            let config = AuthorizationServerConfig { issuer: Url::parse(issuer).unwrap(), ..config() };
            assert_eq!(config.check().is_ok(), valid, "{issuer}");
        }
    }

    #[test]
    fn the_issuers_text_has_no_trailing_slash() {
        for (issuer, text) in [
            ("https://id.example.com", "https://id.example.com"),
            ("https://id.example.com/", "https://id.example.com"),
            ("https://ID.example.com:443/one/", "https://id.example.com/one"),
        ] {
            let config = AuthorizationServerConfig { issuer: Url::parse(issuer).unwrap(), ..config() };
            assert_eq!(config.issuer_text(), text);
        }
    }

    #[test]
    fn each_limit_holds_and_its_neighbour_passes() {
        type Change = fn(&mut AuthorizationServerConfig);
        let seconds = Duration::from_secs;
        let cases: [(&str, Change, bool); 23] = [
            ("lifetime 59 s", |c| c.access_token_lifetime = Duration::from_secs(59), false),
            ("lifetime 60 s", |c| c.access_token_lifetime = Duration::from_secs(60), true),
            ("lifetime 24 h", |c| c.access_token_lifetime = TOKEN_LIFETIME_MAX, true),
            ("lifetime 1.5 s", |c| c.access_token_lifetime = Duration::from_millis(61_500), false),
            ("no audience", |c| c.default_audience.clear(), false),
            ("audience with space", |c| c.default_audience = "a b".into(), false),
            ("audience that is a name", |c| c.default_audience = "orders".into(), true),
            ("a relative resource", |c| c.resources = vec!["/orders".into()], false),
            ("a resource with fragment", |c| c.resources = vec!["https://a.example#x".into()], false),
            ("a urn", |c| c.resources = vec!["urn:example:orders".into()], true),
            ("a scope with space", |c| c.scopes = vec!["a b".into()], false),
            ("a scope with quote", |c| c.scopes = vec!["a\"b".into()], false),
            ("a scope twice", |c| c.scopes = vec!["a".into(), "a".into()], false),
            ("an empty scope", |c| c.scopes = vec![String::new()], false),
            ("a scope that is a URI", |c| c.scopes = vec!["https://a.example/read".into()], true),
            ("overlap too short", |c| c.key_overlap = Duration::from_secs(3_899), false),
            ("overlap just enough", |c| c.key_overlap = Duration::from_secs(3_900), true),
            ("publish-ahead too short", |c| c.key_publish_ahead = Duration::from_secs(59), false),
            ("key set kept too long", |c| c.key_set_max_age = Some(c.key_publish_ahead), false),
            ("key set kept just long enough", |c| c.key_set_max_age = Some(c.key_publish_ahead / 2), true),
            ("key set not kept", |c| c.key_set_max_age = Some(Duration::ZERO), false),
            ("key lifetime too short", |c| c.key_lifetime = Duration::from_secs(47 * 3_600), false),
            ("key lifetime just enough", |c| c.key_lifetime = Duration::from_secs(48 * 3_600), true),
        ];
        for (what, change, valid) in cases {
            let mut config = config();
            change(&mut config);
            assert_eq!(config.check().is_ok(), valid, "{what}");
        }
        let config = AuthorizationServerConfig { key_overlap: seconds(4_000), ..config() };
        assert_eq!(config.token_lifetime_max(), seconds(3_700));
    }
}
