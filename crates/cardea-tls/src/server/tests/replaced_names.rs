//! What hosts require after files of certificates were replaced by those of other names.

use std::sync::Arc;

use super::*;
use crate::{
    Arrival, ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientAuthorityConfig, HostRequirements,
    RequirementUnmet,
};

#[test]
fn a_name_that_a_file_brings_opens_no_host_below_a_wildcard() {
    for (is_configured, expected) in [(false, Err(RequirementUnmet::CertificateUnasked)), (true, Ok(()))] {
        let mut bench =
            Bench::new().with("w", &["*.partners.example"]).with_domain("b", &["b.example"], "other");
        let settings = ClientAuthorityConfig {
            name: "staff".to_owned(),
            roots: bench.path().join("ca.pem"),
            crls: Vec::new(),
        };
        let authorities = vec![ClientAuthority::load(&settings).unwrap()];
        let require = ClientAuthConfig { mode: ClientAuthMode::Require, authorities };
        bench.config.certificates[0].client_auth = Some(require);
        bench.config.certificates[0].hosts = vec!["*.partners.example".to_owned()];
        let both = ["b.example", "a.partners.example"];
        if is_configured {
            bench.write("b", KeyType::Ecdsa, &both);
            bench.config.certificates[1].hosts = both.map(str::to_owned).to_vec();
        }
        let server = Arc::new(ServerTls::load(&bench.config, &clock()).unwrap());
        let requirements = HostRequirements::new([("t", Arc::clone(&server))]).unwrap();
        let check = |host, secure| {
            requirements.check(host, &Arrival { listener: "t", secure, certificate: None }, NOW)
        };
        assert_eq!(check("z.partners.example", false), Err(RequirementUnmet::CertificateUnasked));
        assert_eq!(check("b.example", true), Ok(()));
        if !is_configured {
            bench.write("b", KeyType::Ecdsa, &both);
            assert!(server.reload_if_changed(NOW).unwrap());
        }
        for secure in [false, true] {
            assert_eq!(check("a.partners.example", secure), expected, "configured: {is_configured}");
            assert_eq!(check("z.partners.example", secure), Err(RequirementUnmet::CertificateUnasked));
        }
        assert_eq!(check("b.example", true), Ok(()));
    }
}
