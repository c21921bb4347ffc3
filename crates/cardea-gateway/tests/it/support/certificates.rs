//! An authority, listeners with its certificates, clients that trust it.

use std::{path::PathBuf, sync::Arc};

use cardea_clock::{ManualClock, Wall};
use cardea_tls::{
    CertificateConfig, ClientTlsConfig, Roots, ServerTls, ServerTlsConfig,
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
        let this = Self { folder, authority };
        this.issue(&["a.example", "b.example"]);
        this.issue(&["c.example"]);
        this.issue(&["d.example"]);
        this
    }

    fn end() -> Wall {
        Wall::from_unix_seconds(4_000_000_000)
    }

    /// Writes the files of a certificate, which are called by its first name.
    fn issue(&self, names: &[&str]) {
        let Issued { chain_pem, key_pem, .. } =
            self.authority.issue(names, Wall::from_unix_seconds(0), Self::end()).unwrap();
        std::fs::write(self.path(&format!("{}.pem", names[0])), chain_pem).unwrap();
        std::fs::write(self.path(&format!("{}.key", names[0])), key_pem.as_bytes()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The table of the certificate in the files of this name.
    fn table(&self, name: &str, trust_domain: &str) -> String {
        format!(
            "[[listener.tls.certificate]]\nchain = {:?}\nkey = {:?}\ntrust_domain = \"{trust_domain}\"\n",
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key"))
        )
    }

    /// TLS of the first listener: `a.example` and `b.example` in one trust domain, `c.example` in another.
    pub(crate) fn listener(&self) -> String {
        let header = "[[listener]]\nname = \"test\"\n";
        [header, &self.table("a.example", "one"), &self.table("c.example", "two")].concat()
    }

    /// The same with `d.example`, whose clients are asked for certificates.
    pub(crate) fn asking_listener(&self) -> String {
        let asking = "client_certificate = \"request\"\nclient_authorities = [\"test\"]\n";
        let authority =
            format!("[[client_authority]]\nname = \"test\"\nca_file = {:?}\n", self.path("ca.pem"));
        [&self.listener(), &*self.table("d.example", "three"), asking, &authority].concat()
    }

    /// TLS to the service, whose certificate must be for this name.
    pub(crate) fn service(&self, server_name: &str) -> String {
        let ca = self.path("ca.pem");
        format!(
            "[[service]]\nname = \"main\"\ntls = {{ ca_file = {ca:?}, server_name = \"{server_name}\" }}\n"
        )
    }

    /// TLS to the service, whose certificate must be for the name of the endpoint.
    pub(crate) fn named_service(&self) -> String {
        format!("[[service]]\nname = \"main\"\ntls = {{ ca_file = {:?} }}\n", self.path("ca.pem"))
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
        self.acceptor_of(&["h2", "http/1.1"])
    }

    /// The same, for these protocols.
    pub(crate) fn acceptor_of(&self, alpn: &[&str]) -> TlsAcceptor {
        let certificate = CertificateConfig {
            chain: self.path("a.example.pem"),
            key: self.path("a.example.key"),
            hosts: Vec::new(),
            managed: None,
            trust_domain: "one".into(),
            client_auth: None,
            ocsp: None,
        };
        let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = ServerTlsConfig { certificates: vec![certificate], alpn, ..ServerTlsConfig::default() };
        let clock = ManualClock::new(Wall::from_unix_seconds(2_000_000_000)).clock();
        TlsAcceptor::from(ServerTls::load(&config, &clock).unwrap().config())
    }

    pub(crate) async fn connect(&self, stream: TcpStream, sni: &str, alpn: &[&str]) -> TlsStream<TcpStream> {
        let connector = TlsConnector::from(self.client(alpn));
        connector.connect(server_name(sni).unwrap(), stream).await.unwrap()
    }
}
