//! Microsoft Entra ID: issuers by tenant, and its own claims.
//!
//! Source: "Access token claims reference" and "Access tokens" of the Microsoft identity platform's documentation. Only
//! the public cloud is supported; the national clouds have other hosts.

use serde_json::{Map, Value};
use url::Url;

use crate::config::{IssuerConfig, KeySource, Preset};
use crate::error::{IdentityError, TokenError};
use crate::verdict::{CallerKind, ClientAuthentication};

const TENANTS_MAX: usize = 1000;

/// One accepted tenant of a preset.
pub(crate) struct Tenant {
    pub(crate) id: String,
    pub(crate) issuer: String,
}

impl Preset {
    fn tenants(&self) -> &[String] {
        match self {
            Self::EntraV1 { tenants } | Self::EntraV2 { tenants } => tenants,
        }
    }

    /// Expands the template: one exact `iss` per tenant.
    pub(crate) fn expand(&self, config: &IssuerConfig) -> Result<Vec<Tenant>, IdentityError> {
        let tenants = self.tenants();
        if tenants.is_empty() || tenants.len() > TENANTS_MAX {
            return Err(config.error("tenants: name 1 to 1,000 tenant ids"));
        }
        tenants
            .iter()
            .map(|tenant| {
                let id = tenant.to_ascii_lowercase();
                if !is_guid(&id) {
                    return Err(config.error(format!(
                        "tenant {tenant:?} is not a tenant id (a GUID); \"common\" and names are not accepted"
                    )));
                }
                let issuer = match self {
                    Self::EntraV1 { .. } => format!("https://sts.windows.net/{id}/"),
                    Self::EntraV2 { .. } => {
                        format!("https://login.microsoftonline.com/{id}/v2.0")
                    }
                };
                Ok(Tenant { id, issuer })
            })
            .collect()
    }

    /// The source of the keys: the tenant's own set if there is one tenant, else the common one, whose keys name their
    /// tenants.
    pub(crate) fn key_source(&self, config: &IssuerConfig) -> Result<KeySource, IdentityError> {
        let tenant = match self.tenants() {
            [only] => only.to_ascii_lowercase(),
            _ => "common".to_owned(),
        };
        let url = match self {
            Self::EntraV1 { .. } => {
                format!("https://login.microsoftonline.com/{tenant}/discovery/keys")
            }
            Self::EntraV2 { .. } => {
                format!("https://login.microsoftonline.com/{tenant}/discovery/v2.0/keys")
            }
        };
        Url::parse(&url).map(KeySource::Url).map_err(|_| config.error("the tenants give no address for keys"))
    }

    /// Checks that `tid` and `ver` agree with the issuer, which the signature alone doesn't prove.
    pub(crate) fn check(&self, claims: &Map<String, Value>, tenant: &str) -> Result<(), TokenError> {
        let version = match self {
            Self::EntraV1 { .. } => "1.0",
            Self::EntraV2 { .. } => "2.0",
        };
        let is = |name, value| claims.get(name).and_then(Value::as_str) == Some(value);
        if is("tid", tenant) && is("ver", version) { Ok(()) } else { Err(TokenError::TenantMismatch) }
    }

    /// The claim with the client id: `appid` in version 1.0, `azp` in 2.0.
    pub(crate) const fn client_id_claim(&self) -> &'static str {
        match self {
            Self::EntraV1 { .. } => "appid",
            Self::EntraV2 { .. } => "azp",
        }
    }

    /// How the client authenticated: `appidacr` or `azpacr`.
    pub(crate) fn client_authentication(&self, claims: &Map<String, Value>) -> Option<ClientAuthentication> {
        let name = match self {
            Self::EntraV1 { .. } => "appidacr",
            Self::EntraV2 { .. } => "azpacr",
        };
        match claims.get(name).and_then(Value::as_str) {
            Some("0") => Some(ClientAuthentication::None),
            Some("1") => Some(ClientAuthentication::Secret),
            Some("2") => Some(ClientAuthentication::Certificate),
            _ => None,
        }
    }
}

/// Application or user. The optional claim `idtyp` states it; delegated permissions (`scp`) always belong to a user.
pub(crate) fn caller_kind(claims: &Map<String, Value>) -> CallerKind {
    match claims.get("idtyp").and_then(Value::as_str) {
        Some("app") => CallerKind::Application,
        Some("user") => CallerKind::User,
        Some(_) => CallerKind::Unknown,
        None if claims.contains_key("scp") => CallerKind::User,
        None => CallerKind::Unknown,
    }
}

/// Whether the token omits groups because there are too many: `_claim_names` says where to request them, or `hasgroups`
/// says that there are some. A partial list is ignored.
pub(crate) fn groups_overage(claims: &Map<String, Value>) -> bool {
    let elsewhere = match claims.get("_claim_names") {
        None => false,
        Some(Value::Object(names)) => names.contains_key("groups"),
        Some(_) => true,
    };
    let has_groups = match claims.get("hasgroups") {
        None | Some(Value::Bool(false)) => false,
        Some(Value::String(text)) => text != "false",
        Some(_) => true,
    };
    elsewhere || has_groups
}

/// Whether a key of the common set may sign for `tenant`: its `issuer` is a template for all tenants, or names this
/// one.
pub(crate) fn key_serves(key_issuer: Option<&str>, tenant: &str) -> bool {
    key_issuer.is_none_or(|issuer| issuer.split('/').any(|part| part == "{tenantid}" || part == tenant))
}

fn is_guid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TENANT: &str = "11111111-2222-3333-4444-555555555555";

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn groups_overage_in_all_its_spellings() {
        for claims in [
            json!({"_claim_names": {"groups": "src1"}}),
            json!({"_claim_names": "odd"}),
            json!({"hasgroups": true}),
            json!({"hasgroups": "true"}),
            json!({"hasgroups": 1}),
        ] {
            assert!(groups_overage(&object(claims.clone())), "{claims}");
        }
        for claims in [
            json!({}),
            json!({"groups": ["a"]}),
            json!({"_claim_names": {"other": "src1"}}),
            json!({"hasgroups": false}),
        ] {
            assert!(!groups_overage(&object(claims.clone())), "{claims}");
        }
    }

    #[test]
    fn tenants_are_guids_and_templates_give_exact_issuers() {
        let config = IssuerConfig::default();
        let expand = |tenant: &str| Preset::EntraV2 { tenants: vec![tenant.to_owned()] }.expand(&config);
        let expanded = expand(&TENANT.to_ascii_uppercase()).unwrap();
        assert_eq!(
            expanded.first().unwrap().issuer,
            format!("https://login.microsoftonline.com/{TENANT}/v2.0")
        );
        for bad in ["common", "organizations", "", "contoso.onmicrosoft.com", "{tenantid}"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
        let v1 = Preset::EntraV1 { tenants: vec![TENANT.to_owned()] };
        assert_eq!(
            v1.expand(&config).unwrap().first().unwrap().issuer,
            format!("https://sts.windows.net/{TENANT}/")
        );
    }

    #[test]
    fn a_key_for_another_tenant_does_not_serve() {
        assert!(key_serves(None, TENANT));
        assert!(key_serves(Some("https://login.microsoftonline.com/{tenantid}/v2.0"), TENANT));
        assert!(key_serves(Some(&format!("https://login.microsoftonline.com/{TENANT}/v2.0")), TENANT));
        assert!(!key_serves(
            Some("https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0"),
            TENANT
        ));
    }
}
