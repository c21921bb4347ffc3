//! Answers to challenges in handshakes in memory, and certificate requests read by another parser.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, ServerConnection, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::FromDer as _;

use super::*;
use crate::testing::carry;

/// As an authority does it: the content of the certificate matters, not its issuer.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

fn ask(host: &str, alpn: &[&[u8]]) -> Result<Vec<u8>, rustls::Error> {
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    client.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(challenge_config("a.test", "token.thumb").unwrap()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        carry(&mut client, &mut server)?;
        carry(&mut server, &mut client)?;
    }
    assert_eq!(server.alpn_protocol(), Some(ALPN));
    Ok(client.peer_certificates().unwrap()[0].to_vec())
}

#[test]
fn the_answer_holds_the_digest_in_a_critical_extension() {
    let der = ask("a.test", &[ALPN]).unwrap();
    let (_, certificate) = parse_x509_certificate(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names.len(), 1, "that host alone (RFC 8737 §3)");
    let identifier = certificate
        .extensions()
        .iter()
        .find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
    let identifier = identifier.unwrap();
    assert!(identifier.critical);
    let digest = digest::digest(&digest::SHA256, b"token.thumb");
    assert_eq!(identifier.value, [&[4, 32], digest.as_ref()].concat(), "an octet string");
}

#[test]
fn a_challenge_needs_a_client_that_offers_only_acme_tls() {
    for (host, alpn) in [
        ("b.test", &[ALPN][..]),
        ("a.test", &[ALPN, b"http/1.1"]),
        ("a.test", &[b"http/1.1", ALPN]),
        ("a.test", &[b"http/1.1"]),
        ("a.test", &[]),
        ("127.0.0.1", &[ALPN]),
    ] {
        assert!(ask(host, alpn).is_err(), "{host} {alpn:?}");
    }
    ask("A.Test", &[ALPN]).unwrap();
}

#[test]
fn a_request_names_all_hosts_and_is_signed_with_its_key() {
    let hosts = ["a.test".to_owned(), "b.test".to_owned()];
    for kind in [RequestedKey::EcdsaP256, RequestedKey::EcdsaP384, RequestedKey::Rsa2048] {
        let made = request(&hosts, kind).unwrap();
        let (rest, parsed) = X509CertificationRequest::from_der(&made.request).unwrap();
        assert!(rest.is_empty());
        let extensions: Vec<_> =
            parsed.requested_extensions().unwrap().map(|found| format!("{found:?}")).collect();
        let names = extensions.join(" ");
        assert!(hosts.iter().all(|host| names.contains(host.as_str())), "{names}");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.key.to_vec()));
        let key = provider().key_provider.load_private_key(key).unwrap();
        let public = key.public_key().unwrap();
        assert_eq!(public.as_ref(), parsed.certification_request_info.subject_pki.raw, "{kind:?}");
    }
    assert!(request(&["é.test".to_owned()], RequestedKey::EcdsaP256).is_err());
}
