//! Microsoft Entra ID by preset.

use cardea_identity::{
    AccessRequirement, AccessRequirementError, Algorithm, Alternative, Authenticator, CallerKind,
    ClientAuthentication, IssuerConfig, KeySource, LocalKeys, Preset, TokenError, Verdict,
};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::support::{NOW, Network, Signer, at_once, no_network, now};

const TENANT: &str = "aaaaaaaa-1111-2222-3333-444444444444";
const SECOND: &str = "bbbbbbbb-1111-2222-3333-444444444444";
const STRANGER: &str = "cccccccc-1111-2222-3333-444444444444";

struct Entra {
    authenticator: Authenticator,
    signer: Signer,
    keys: LocalKeys,
}

impl Entra {
    fn new(preset: Preset) -> Self {
        let signer = Signer::new("entra", Algorithm::Rs256);
        let keys = LocalKeys::new();
        keys.publish(&signer.jwks()).unwrap();
        let mut config = IssuerConfig {
            name: "entra".to_owned(),
            audiences: vec!["app".to_owned()],
            keys: KeySource::Local(keys.clone()),
            preset: Some(preset),
            ..IssuerConfig::default()
        };
        config.claims.roles.push("groups".into());
        let authenticator = Authenticator::new(vec![config], None, no_network()).unwrap();
        Self { authenticator, signer, keys }
    }

    fn verify(&self, claims: &Value) -> Result<Verdict, TokenError> {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": "entra", "x5t": "entra"});
        let token = self.signer.with_header(&header, claims);
        at_once(self.authenticator.verify(token.as_bytes(), now())).map(|verdict| (*verdict).clone())
    }
}

fn v1(tenant: &str) -> Value {
    json!({
        "iss": format!("https://sts.windows.net/{tenant}/"), "tid": tenant, "ver": "1.0", "aud": "app",
        "iat": NOW, "nbf": NOW, "exp": NOW + 3599, "sub": "s", "appid": "client", "appidacr": "2",
        "idtyp": "app", "roles": ["Task.Read"],
    })
}

fn v2(tenant: &str) -> Value {
    json!({
        "iss": format!("https://login.microsoftonline.com/{tenant}/v2.0"), "tid": tenant, "ver": "2.0",
        "aud": "app", "iat": NOW, "nbf": NOW, "exp": NOW + 3599, "sub": "s", "azp": "client",
        "azpacr": "1", "scp": "Task.Read Task.Write",
    })
}

#[test]
fn tokens_of_both_versions_from_every_listed_tenant() {
    let tenants = || vec![TENANT.to_owned(), SECOND.to_owned()];
    let first = Entra::new(Preset::EntraV1 { tenants: tenants() });
    let second = Entra::new(Preset::EntraV2 { tenants: tenants() });
    for tenant in [TENANT, SECOND] {
        let caller = first.verify(&v1(tenant)).unwrap().caller;
        assert_eq!(&*caller.issuer, format!("https://sts.windows.net/{tenant}/"));
        assert_eq!(&*caller.issuer_name, "entra");
        assert_eq!(caller.client_id.as_deref(), Some("client"));
        assert_eq!(caller.client_authentication, Some(ClientAuthentication::Certificate));
        assert_eq!(caller.kind, CallerKind::Application);
        assert_eq!(caller.roles, ["Task.Read"]);

        let caller = second.verify(&v2(tenant)).unwrap().caller;
        assert_eq!(caller.client_id.as_deref(), Some("client"));
        assert_eq!(caller.client_authentication, Some(ClientAuthentication::Secret));
        assert_eq!(caller.kind, CallerKind::User);
        assert_eq!(caller.scopes, ["Task.Read", "Task.Write"]);
        // Each preset is for one version.
        assert_eq!(first.verify(&v2(tenant)).unwrap_err(), TokenError::IssuerUnknown);
        assert_eq!(second.verify(&v1(tenant)).unwrap_err(), TokenError::IssuerUnknown);
    }
    assert_eq!(first.verify(&v1(STRANGER)).unwrap_err(), TokenError::IssuerUnknown);
    assert_eq!(second.verify(&v2(STRANGER)).unwrap_err(), TokenError::IssuerUnknown);
}

#[test]
fn tenant_and_version_must_match_the_issuer() {
    let entra = Entra::new(Preset::EntraV2 { tenants: vec![TENANT.to_owned(), SECOND.to_owned()] });
    assert!(entra.verify(&v2(TENANT)).is_ok());
    for (name, value) in
        [("tid", json!(SECOND)), ("tid", Value::Null), ("ver", json!("1.0")), ("ver", json!(2.0))]
    {
        let mut claims = v2(TENANT);
        claims[name] = value;
        assert_eq!(entra.verify(&claims).unwrap_err(), TokenError::TenantMismatch, "{name}");
    }
}

#[test]
fn a_key_of_another_tenant_does_not_sign() {
    let entra = Entra::new(Preset::EntraV2 { tenants: vec![TENANT.to_owned()] });
    let publish = |issuer: String| {
        let mut jwk = entra.signer.jwk();
        jwk["issuer"] = json!(issuer);
        entra.keys.publish(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
        entra.verify(&v2(TENANT)).map(|_| ())
    };
    let issuer = |tenant: &str| format!("https://login.microsoftonline.com/{tenant}/v2.0");
    assert_eq!(publish(issuer("{tenantid}")), Ok(()));
    assert_eq!(publish(issuer(TENANT)), Ok(()));
    assert_eq!(publish(issuer(STRANGER)), Err(TokenError::KeyMismatch));
}

#[test]
fn groups_overage_fails_closed_where_groups_are_asked_for() {
    let entra = Entra::new(Preset::EntraV2 { tenants: vec![TENANT.to_owned()] });
    let requirement = |roles: &[&str]| AccessRequirement {
        alternatives: vec![Alternative {
            issuer: "entra".to_owned(),
            audiences: vec!["app".to_owned()],
            scopes: Vec::new(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
        }],
    };
    let mut claims = v2(TENANT);
    claims["groups"] = json!(["admins"]);
    let verdict = entra.verify(&claims).unwrap();
    assert_eq!(requirement(&["admins"]).check(&verdict), Ok(()));

    for (name, value) in [("_claim_names", json!({"groups": "src1"})), ("hasgroups", json!(true))] {
        let mut over = claims.clone();
        over[name] = value;
        let verdict = entra.verify(&over).unwrap();
        assert_eq!(requirement(&["admins"]).check(&verdict), Err(AccessRequirementError::GroupsOverage));
        assert_eq!(requirement(&[]).check(&verdict), Ok(()));
    }
}

#[test]
fn tenants_must_be_named() {
    for tenants in [vec![], vec!["common".to_owned()], vec![TENANT.to_owned(), "x".to_owned()]] {
        let config = IssuerConfig {
            name: "entra".to_owned(),
            audiences: vec!["app".to_owned()],
            preset: Some(Preset::EntraV2 { tenants }),
            ..IssuerConfig::default()
        };
        assert!(Authenticator::new(vec![config], None, no_network()).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn keys_come_from_the_tenant_or_from_the_common_set() {
    let fetched = async |preset: Preset| {
        let network = Arc::new(Network::default());
        let config = IssuerConfig {
            name: "entra".to_owned(),
            audiences: vec!["app".to_owned()],
            preset: Some(preset),
            ..IssuerConfig::default()
        };
        let authenticator = Authenticator::new(vec![config], None, network.clone()).unwrap();
        authenticator.maintain(now()).await;
        network.urls()
    };
    let one = || vec![TENANT.to_owned()];
    let two = || vec![TENANT.to_owned(), SECOND.to_owned()];
    let base = "https://login.microsoftonline.com";
    for (preset, path) in [
        (Preset::EntraV1 { tenants: one() }, format!("{TENANT}/discovery/keys")),
        (Preset::EntraV1 { tenants: two() }, "common/discovery/keys".to_owned()),
        (Preset::EntraV2 { tenants: one() }, format!("{TENANT}/discovery/v2.0/keys")),
        (Preset::EntraV2 { tenants: two() }, "common/discovery/v2.0/keys".to_owned()),
    ] {
        assert_eq!(fetched(preset).await, [format!("{base}/{path}")]);
    }
}
