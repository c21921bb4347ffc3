//! The addresses from which keys may be fetched.

use std::net::IpAddr;

use url::{Host, Url};

use crate::config::IssuerConfig;
use crate::error::IdentityError;
use crate::fetch::is_private_address;

/// Refuses URLs that keys must not be fetched from. Resolved addresses are checked again at the fetch.
///
/// # Errors
/// [`IdentityError::Address`] with the rule that is violated.
pub(crate) fn check(url: &Url, config: &IssuerConfig) -> Result<(), IdentityError> {
    let refuse = |rule| Err(IdentityError::Address(rule));
    let Some(host) = url.host() else {
        return refuse("it has no host");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it carries credentials");
    }
    if url.fragment().is_some() {
        return refuse("it has a fragment");
    }
    let address: Option<IpAddr> = match host {
        Host::Ipv4(v4) => Some(v4.into()),
        Host::Ipv6(v6) => Some(v6.into()),
        Host::Domain(_) => None,
    };
    let loopback = match host {
        Host::Domain(name) => name == "localhost",
        _ => address.is_some_and(|address| address.is_loopback()),
    };
    match url.scheme() {
        "https" => {}
        "http" if config.danger_allow_http_loopback && loopback => {}
        "http" if loopback => return refuse("http is allowed for loopback only by configuration"),
        _ => return refuse("it is not https"),
    }
    if !config.allow_private_addresses && (loopback || address.is_some_and(is_private_address)) {
        return refuse("it is private, which the issuer's configuration does not allow");
    }
    Ok(())
}

/// Refuses a `jwks_uri` of a discovery document on another host than the issuer's, unless it is configured.
///
/// # Errors
/// As [`check`], and if the host is neither the issuer's nor listed.
pub(crate) fn check_discovered(url: &Url, issuer: &Url, config: &IssuerConfig) -> Result<(), IdentityError> {
    check(url, config)?;
    let host = url.host_str().unwrap_or_default();
    let own =
        issuer.host_str() == Some(host) && issuer.port_or_known_default() == url.port_or_known_default();
    if own || config.key_hosts.iter().any(|listed| listed.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(IdentityError::Address("it is neither on the issuer's host and port nor on a listed key host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str, private: bool, http: bool) -> bool {
        let config = IssuerConfig {
            allow_private_addresses: private,
            danger_allow_http_loopback: http,
            ..IssuerConfig::default()
        };
        check(&url.parse().unwrap(), &config).is_ok()
    }

    #[test]
    fn only_https_to_public_addresses_unless_configured() {
        assert!(allowed("https://id.example/keys", false, false));
        assert!(allowed("https://8.8.8.8/keys", false, false));
        for url in [
            "http://id.example/keys",
            "ftp://id.example/keys",
            "file:///etc/passwd",
            "data:text/plain,x",
            "https://user@id.example/",
            "https://user:pass@id.example/",
            "https://id.example/#x",
        ] {
            assert!(!allowed(url, true, true), "{url}");
        }
        for url in [
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://localhost/",
            "https://169.254.169.254/latest",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
        ] {
            assert!(!allowed(url, false, true), "{url}");
            assert!(allowed(url, true, false), "{url}");
        }
        assert!(allowed("http://127.0.0.1:8080/", true, true));
        assert!(!allowed("http://127.0.0.1:8080/", true, false));
        assert!(!allowed("http://10.0.0.1/", true, true));
    }

    #[test]
    fn discovered_keys_stay_on_the_issuers_host_or_a_listed_one() {
        let config = IssuerConfig { key_hosts: vec!["Keys.example".into()], ..IssuerConfig::default() };
        let issuer: Url = "https://id.example/tenant".parse().unwrap();
        let check = |url: &str| check_discovered(&url.parse().unwrap(), &issuer, &config).is_ok();
        assert!(check("https://id.example/keys"));
        assert!(check("https://id.example:443/keys"));
        assert!(check("https://keys.example/x"));
        assert!(!check("https://id.example:8443/keys"));
        assert!(!check("https://id.example.evil.example/keys"));
        assert!(!check("https://sub.id.example/keys"));
        assert!(!check("https://sub.keys.example/x"));
        assert!(!check("http://id.example/keys"));
    }
}
