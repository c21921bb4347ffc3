//! An authority, listeners with its certificates, clients that trust it.

use std::sync::Arc;

use cardea_clock::{ManualClock, Wall};
use cardea_tls::{
    CertificateConfig, ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientAuthorityConfig,
    ClientTlsConfig, Roots, ServerTls, ServerTlsConfig,
    authority::{Authority, Issued},
    client_config, server_name,
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

pub(crate) struct Certificates {
    folder: TempDir,
    authority: Authority,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test", Wall::from_unix_seconds(0), Self::end()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.certificate_pem()).unwrap();
        Self { folder, authority }
    }

    fn end() -> Wall {
        Wall::from_unix_seconds(4_000_000_000)
    }

    fn issue(&self, names: &[&str], trust_domain: &str) -> CertificateConfig {
        let Issued { chain_pem, key_pem, .. } =
            self.authority.issue(names, Wall::from_unix_seconds(0), Self::end()).unwrap();
        let chain = self.folder.path().join(format!("{}.pem", names[0]));
        let key = self.folder.path().join(format!("{}.key", names[0]));
        std::fs::write(&chain, chain_pem).unwrap();
        std::fs::write(&key, key_pem.as_bytes()).unwrap();
        CertificateConfig {
            chain,
            key,
            hosts: Vec::new(),
            managed: None,
            trust_domain: trust_domain.into(),
            client_auth: None,
            ocsp: None,
        }
    }

    /// `a.example` and `b.example` in one trust domain, `c.example` in another.
    pub(crate) fn server(&self) -> Arc<ServerTls> {
        self.server_with(ServerTlsConfig::default())
    }

    /// A host whose clients are asked for certificates.
    pub(crate) fn asking(&self, host: &str) -> CertificateConfig {
        let roots = self.folder.path().join("ca.pem");
        let config = ClientAuthorityConfig { name: "test".into(), roots, crls: Vec::new() };
        let authorities = vec![ClientAuthority::load(&config).unwrap()];
        let client_auth = Some(ClientAuthConfig { mode: ClientAuthMode::Request, authorities });
        CertificateConfig { client_auth, ..self.issue(&[host], "three") }
    }

    /// The same with other settings, and more certificates.
    pub(crate) fn server_with(&self, settings: ServerTlsConfig) -> Arc<ServerTls> {
        let mut certificates =
            vec![self.issue(&["a.example", "b.example"], "one"), self.issue(&["c.example"], "two")];
        certificates.extend(settings.certificates);
        let config = ServerTlsConfig { certificates, ..settings };
        let clock = ManualClock::new(Wall::from_unix_seconds(2_000_000_000)).clock();
        Arc::new(ServerTls::load(&config, &clock).unwrap())
    }

    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<rustls::ClientConfig> {
        client_config(&ClientTlsConfig {
            roots: Roots::File(self.folder.path().join("ca.pem")),
            alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            ..ClientTlsConfig::default()
        })
        .unwrap()
    }

    /// For an origin that speaks TLS as `a.example`.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.server().config())
    }

    pub(crate) async fn connect(&self, stream: TcpStream, sni: &str, alpn: &[&str]) -> TlsStream<TcpStream> {
        let connector = TlsConnector::from(self.client(alpn));
        connector.connect(server_name(sni).unwrap(), stream).await.unwrap()
    }
}
