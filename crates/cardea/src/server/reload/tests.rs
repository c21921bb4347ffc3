//! Tests of configurations that come from no file.

use std::path::Path;

use cardea_clock::Wall;
use cardea_gateway::workers::Workers;
use cardea_tls::{ManagedCertificate, ServerTlsConfig, authority::Authority};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};

use super::*;
use crate::{
    config::{Certificate, CertificateSource, Draft, KeyFiles, ListenerTls, Located, Location},
    server::bind,
};

const TEXT: &str = "[admin]\naddress = \"off\"\nsocket = \"off\"\n[access_log]\nenabled = false\n\
    [process]\nworkers = 1\n[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n";

/// A configuration that is not in a file.
fn parsed(more: &str) -> Result<Config> {
    let text = format!("key_cache = \"off\"\n{TEXT}{more}");
    let draft = Draft::parse(text, Path::new("/api/configuration"), &|_| None, KeyFiles::Read);
    draft.into_config().map_err(|problems| anyhow!("{problems}"))
}

/// A certificate for a host in memory.
fn in_memory(host: &str) -> Arc<ManagedCertificate> {
    let (from, to) = (Wall::from_unix_seconds(0), Wall::from_unix_seconds(32_000_000_000));
    let issued = Authority::new("test", from, to).unwrap().issue(&[host], from, to).unwrap();
    let key = PrivatePkcs8KeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let place = ManagedCertificate::new("api", vec![host.to_owned()]);
    let now = Wall::from_unix_seconds(1_800_000_000);
    place.put(issued.chain_pem.as_bytes(), key.secret_pkcs8_der(), now).unwrap();
    place
}

fn with_certificate(mut config: Config, place: &Arc<ManagedCertificate>) -> Config {
    let certificate = Certificate {
        source: CertificateSource::Memory(Arc::clone(place)),
        hosts: place.hosts().to_vec(),
        trust_domain: "default".to_owned(),
        ocsp: None,
        client_certificate: None,
        client_authorities: Vec::new(),
    };
    let certificates = vec![Located { value: certificate, at: Location::default(), is_sound: true }];
    config.listeners[0].tls = Some(ListenerTls { settings: ServerTlsConfig::default(), certificates });
    config
}

/// The hosts that the listener serves.
fn served(server: &Server) -> Vec<String> {
    let model = server.gateway.model();
    let tls = model.listeners["main"].tls.as_ref();
    tls.into_iter().flat_map(|tls| tls.certificates().to_vec()).flat_map(|info| info.hosts).collect()
}

#[tokio::test]
async fn a_configuration_from_memory_is_put_in_force_with_its_certificates() {
    let workers = Workers::start(1).unwrap();
    let config = parsed("").unwrap();
    let sockets = bind(&config, &mut Inherited::default(), 1).unwrap();
    let server = Server::start(config, "".into(), sockets, None, Arc::clone(&workers)).await.unwrap();
    assert!(served(&server).is_empty());

    let (one, two) = (in_memory("one.example"), in_memory("two.example"));
    let route = "[[route]]\nname = \"hello\"\nauth = \"public\"\nrespond = { body = \"hello\" }\n";
    let next = with_certificate(parsed(route).unwrap(), &one);
    let reloaded = server.apply(async { Ok(next) }).await.unwrap();
    let changed = |reloaded: &Reloaded| -> Vec<(String, String, String)> {
        let changes = reloaded.changes.iter();
        changes.map(|one| (one.happened.clone(), one.kind.clone(), one.name.clone())).collect()
    };
    let change = |happened: &str, kind: &str, name: &str| (happened.into(), kind.into(), name.into());
    assert_eq!(
        changed(&reloaded),
        [change("added", "route", "hello"), change("added", "certificate", "one.example (api)")]
    );
    assert_eq!(served(&server), ["one.example"]);

    // An invalid one changes nothing, and its problem has a location.
    let error = server.apply(async { parsed("[limits]\nfields_max = 1\n") }).await.unwrap_err().to_string();
    assert!(error.starts_with("/api/configuration:13:14: "), "{error}");
    assert_eq!(served(&server), ["one.example"]);

    // The same slot is the same certificate, so sessions continue; another slot is another certificate.
    let before = server.gateway.model().listeners["main"].tls.clone().unwrap();
    server.apply(async { Ok(with_certificate(parsed(route)?, &one)) }).await.unwrap();
    assert!(Arc::ptr_eq(&before, server.gateway.model().listeners["main"].tls.as_ref().unwrap()));
    let reloaded = server.apply(async { Ok(with_certificate(parsed("")?, &two)) }).await.unwrap();
    assert_eq!(served(&server), ["two.example"]);
    assert_eq!(
        changed(&reloaded),
        [
            change("removed", "route", "hello"),
            change("added", "certificate", "two.example (api)"),
            change("removed", "certificate", "one.example (api)"),
        ]
    );
    server.drain(false).await;
    workers.stop();
}
