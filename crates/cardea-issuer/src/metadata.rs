//! The endpoints and the two metadata documents, derived from the configured issuer.

use std::sync::Arc;

use serde::Serialize;
use url::Url;

use crate::{AuthorizationServerConfig, IssuerError};

/// The paths at which the gateway serves the authorization server, on the issuer's host. They are normalised and
/// contain no escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The token endpoint, `POST` (RFC 6749 §3.2).
    pub token: String,
    /// The key set, `GET` (RFC 7517 §5).
    pub jwks: String,
    /// The authorization endpoint, which refuses all requests.
    pub authorize: String,
    /// The metadata of RFC 8414. The well-known part precedes the issuer's path (§3).
    pub oauth_metadata: String,
    /// The metadata of OpenID Connect Discovery. The well-known part follows the issuer's path (§4).
    pub openid_configuration: String,
}

impl Endpoints {
    pub(crate) fn of(config: &AuthorizationServerConfig) -> Self {
        Self::of_issuer(&config.issuer)
    }

    /// The endpoints of the authorization server with this issuer identifier.
    #[must_use]
    pub fn of_issuer(issuer: &Url) -> Self {
        let path = issuer.path().trim_end_matches('/');
        Self {
            token: format!("{path}/oauth2/token"),
            jwks: format!("{path}/oauth2/jwks"),
            authorize: format!("{path}/oauth2/authorize"),
            oauth_metadata: format!("/.well-known/oauth-authorization-server{path}"),
            openid_configuration: format!("{path}/.well-known/openid-configuration"),
        }
    }
}

/// Both documents.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) oauth: Arc<str>,
    pub(crate) openid: Arc<str>,
}

/// The metadata of RFC 8414 §2, with members of OpenID Connect Discovery 1.0 §3 where noted.
///
/// No response type is supported. Both documents require the member, RFC 8414 §3.2 forbids empty lists, and strict
/// clients refuse a document with one. So the list contains `none`, the registered type that returns nothing (OAuth 2.0
/// Multiple Response Type Encoding Practices §4).
#[derive(Serialize)]
struct Document<'a> {
    issuer: &'a str,
    /// Required by OpenID Connect Discovery. RFC 8414 requires it only if a grant uses it, and none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    jwks_uri: String,
    response_types_supported: [&'static str; 1],
    grant_types_supported: [&'static str; 1],
    token_endpoint_auth_methods_supported: [&'static str; 2],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    scopes_supported: &'a [String],
    /// Required by OpenID Connect Discovery, though there are no users to identify.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_types_supported: Option<[&'static str; 1]>,
    /// Required by OpenID Connect Discovery. It names the algorithm of new keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token_signing_alg_values_supported: Option<[&'static str; 1]>,
}

impl Metadata {
    /// Builds both documents.
    ///
    /// # Errors
    /// [`IssuerError::InvalidConfig`] if they can't be serialised, which can't happen with a valid configuration.
    pub(crate) fn of(config: &AuthorizationServerConfig, endpoints: &Endpoints) -> Result<Self, IssuerError> {
        let origin = config.issuer.origin().ascii_serialization();
        let document = |openid: bool| {
            let document = Document {
                issuer: config.issuer_text(),
                authorization_endpoint: openid.then(|| format!("{origin}{}", endpoints.authorize)),
                token_endpoint: format!("{origin}{}", endpoints.token),
                jwks_uri: format!("{origin}{}", endpoints.jwks),
                response_types_supported: ["none"],
                grant_types_supported: ["client_credentials"],
                token_endpoint_auth_methods_supported: ["client_secret_basic", "client_secret_post"],
                scopes_supported: &config.scopes,
                subject_types_supported: openid.then_some(["public"]),
                id_token_signing_alg_values_supported: openid.then(|| [config.algorithm.as_str()]),
            };
            serde_json::to_string(&document)
                .map(Arc::<str>::from)
                .map_err(|error| IssuerError::InvalidConfig { field: "issuer", problem: error.to_string() })
        };
        Ok(Self { oauth: document(false)?, openid: document(true)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use url::Url;

    use super::*;

    fn config(issuer: &str) -> AuthorizationServerConfig {
        AuthorizationServerConfig::new(Url::parse(issuer).unwrap(), "api")
    }

    #[test]
    fn well_known_paths_stand_where_each_specification_puts_them() {
        for (issuer, oauth, openid, token) in [
            (
                "https://id.example.com",
                "/.well-known/oauth-authorization-server",
                "/.well-known/openid-configuration",
                "/oauth2/token",
            ),
            (
                "https://id.example.com/tenants/one/",
                "/.well-known/oauth-authorization-server/tenants/one",
                "/tenants/one/.well-known/openid-configuration",
                "/tenants/one/oauth2/token",
            ),
        ] {
            let endpoints = Endpoints::of(&config(issuer));
            assert_eq!(endpoints.oauth_metadata, oauth);
            assert_eq!(endpoints.openid_configuration, openid);
            assert_eq!(endpoints.token, token);
        }
    }

    #[test]
    fn metadata_lists_only_supported_features() {
        let config = AuthorizationServerConfig {
            scopes: vec!["orders:read".into()],
            ..config("http://127.0.0.1:8443/one")
        };
        let metadata = Metadata::of(&config, &Endpoints::of(&config)).unwrap();
        let oauth: Value = serde_json::from_str(&metadata.oauth).unwrap();
        let expected = json!({
            "issuer": "http://127.0.0.1:8443/one",
            "token_endpoint": "http://127.0.0.1:8443/one/oauth2/token",
            "jwks_uri": "http://127.0.0.1:8443/one/oauth2/jwks",
            "response_types_supported": ["none"],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "scopes_supported": ["orders:read"],
        });
        assert_eq!(oauth, expected);
        let mut openid: Value = serde_json::from_str(&metadata.openid).unwrap();
        let members = openid.as_object_mut().unwrap();
        assert_eq!(
            members.remove("authorization_endpoint"),
            Some(json!("http://127.0.0.1:8443/one/oauth2/authorize"))
        );
        assert_eq!(members.remove("subject_types_supported"), Some(json!(["public"])));
        assert_eq!(members.remove("id_token_signing_alg_values_supported"), Some(json!(["ES256"])));
        assert_eq!(openid, expected);
    }

    #[test]
    fn no_scopes_are_listed_where_none_are_configured() {
        let config = config("https://id.example.com");
        let metadata = Metadata::of(&config, &Endpoints::of(&config)).unwrap();
        assert!(!metadata.oauth.contains("scopes_supported"));
        assert!(metadata.oauth.starts_with(r#"{"issuer":"https://id.example.com","token_endpoint""#));
    }
}
