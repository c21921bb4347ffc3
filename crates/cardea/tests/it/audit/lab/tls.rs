//! TLS as an attacker speaks it: any server name or none, any certificate is accepted, and one's own is shown or not.

use std::{io, net::TcpStream, sync::Arc};

use cardea_tls::authority::Issued;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::Way;

/// What a client says in its handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello {
    /// The name that it asks for.
    pub(crate) sni: Option<&'static str>,
    /// Whether it shows its certificate.
    pub(crate) certificate: bool,
}

impl Hello {
    pub(crate) const fn to(name: &'static str) -> Self {
        Self { sni: Some(name), certificate: false }
    }

    pub(crate) const fn nameless() -> Self {
        Self { sni: None, certificate: false }
    }

    pub(crate) const fn with_certificate(self) -> Self {
        Self { certificate: true, ..self }
    }
}

/// Clients with a certificate.
pub(crate) struct Clients {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Clients {
    pub(crate) fn new(issued: &Issued) -> Self {
        let chain = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes()).map(Result::unwrap).collect();
        Self { chain, key: PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap() }
    }

    /// Shakes hands.
    pub(crate) fn connect(
        &self,
        mut stream: TcpStream,
        way: Way,
        hello: Hello,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let builder = ClientConfig::builder_with_provider(cardea_tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone));
        let mut config = if hello.certificate {
            builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key()).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![if way.is_h2() { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = hello.sni.is_some();
        let name = ServerName::try_from(hello.sni.unwrap_or("nobody.test")).unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

/// Accepts every certificate: an attacker does not mind.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        cardea_tls::provider().signature_verification_algorithms.supported_schemes()
    }
}
