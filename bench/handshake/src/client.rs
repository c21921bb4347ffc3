//! One TLS client: a session with one request, and the check of what was negotiated.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::{ClientConnection, Resumption, Tls12Resumption};
use tokio_rustls::rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, Error, HandshakeKind, NamedGroup, ProtocolVersion, RootCertStore, SupportedCipherSuite,
};

use crate::Kind;
use crate::hello::{Offer, offer};

/// For a whole session, so that a server which hangs is reported.
const SESSION_LIMIT: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
const RESPONSE_BYTES_MAX: usize = 16 * 1024;
const SESSIONS_KEPT: usize = 8;

/// Why a session is no measurement.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server does not do it, or in another way than asked for.
    NotOffered(String),
    Broken(io::Error),
}

/// A client that offers exactly one version, one group and one cipher suite.
pub(crate) struct Client {
    pub(crate) kind: Kind,
    address: SocketAddr,
    version: ProtocolVersion,
    group: NamedGroup,
    suite: SupportedCipherSuite,
    config: Arc<ClientConfig>,
}

impl Client {
    pub(crate) fn new(
        address: SocketAddr,
        certificate: &str,
        version: &str,
        group: &str,
        kind: Kind,
    ) -> io::Result<Self> {
        let (versions, suite) = match version {
            "1.3" => (&TLS13, cipher_suite::TLS13_AES_128_GCM_SHA256),
            "1.2" => (&TLS12, cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
            other => return Err(io::Error::other(format!("no TLS {other}"))),
        };
        let group: &'static dyn SupportedKxGroup = match group {
            "p256" => kx_group::SECP256R1,
            "x25519" => kx_group::X25519,
            "x25519mlkem768" => kx_group::X25519MLKEM768,
            other => return Err(io::Error::other(format!("no group {other}"))),
        };
        let provider = CryptoProvider {
            cipher_suites: vec![suite],
            kx_groups: vec![group],
            ..aws_lc_rs::default_provider()
        };
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(certificate).map_err(io::Error::other)?;
        roots.add(authority).map_err(io::Error::other)?;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[versions])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Self {
            kind,
            address,
            version: versions.version,
            group: group.name(),
            suite,
            config: Arc::new(config),
        };
        Ok(client.with_own_sessions())
    }

    /// The same with an empty store of sessions.
    pub(crate) fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        let kept = Resumption::in_memory_sessions(SESSIONS_KEPT);
        config.resumption = match self.kind {
            Kind::Full => Resumption::disabled(),
            Kind::Ticket => kept.tls12_resumption(Tls12Resumption::SessionIdOrTickets),
            Kind::Cache => kept.tls12_resumption(Tls12Resumption::SessionIdOnly),
        };
        Self { config: Arc::new(config), ..*self }
    }

    /// One connection with one request. The first one of a store can't resume, and isn't expected to.
    pub(crate) async fn session(&self, first: bool) -> Result<(), Failure> {
        let limit = timeout(SESSION_LIMIT, self.exchange(first)).await;
        limit.unwrap_or_else(|_| Err(Failure::Broken(io::ErrorKind::TimedOut.into())))
    }

    async fn exchange(&self, first: bool) -> Result<(), Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = Recorded { stream, hello: Vec::new() };
        let name =
            ServerName::try_from("localhost").map_err(|error| Failure::Broken(io::Error::other(error)))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut stream = connector.connect(name, stream).await.map_err(refusal)?;
        let resumes = self.kind != Kind::Full && !first;
        {
            let (recorded, connection) = stream.get_ref();
            self.check(connection, &recorded.hello, resumes)?;
        }
        stream.write_all(REQUEST).await?;
        let mut response = Vec::with_capacity(1024);
        while !is_whole(&response) {
            let length = stream.read_buf(&mut response).await?;
            if length == 0 || response.len() > RESPONSE_BYTES_MAX {
                return Err(broken("closed, or no end, before the end of a response"));
            }
        }
        if !response.starts_with(b"HTTP/1.1 200 ") {
            return Err(broken(format!("the response is {:?}", String::from_utf8_lossy(&response))));
        }
        // The client ends the session, as clients do. What the server does then is part of its work.
        stream.shutdown().await?;
        match stream.read(&mut [0; 64]).await {
            Ok(0) => Ok(()),
            Ok(_) => Err(broken("something follows the response")),
            // Some servers close without a word within TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn check(&self, connection: &ClientConnection, hello: &[u8], resumes: bool) -> Result<(), Failure> {
        let refuse = |what: String| Err(Failure::NotOffered(what));
        if connection.protocol_version() != Some(self.version) {
            return refuse(format!("the version is {:?}", connection.protocol_version()));
        }
        if connection.negotiated_cipher_suite() != Some(self.suite) {
            return refuse(format!("the suite is {:?}", connection.negotiated_cipher_suite()));
        }
        let group = connection.negotiated_key_exchange_group().map(SupportedKxGroup::name);
        // A session of TLS 1.2 is resumed without any key exchange.
        let exchanges = !(resumes && self.version == ProtocolVersion::TLSv1_2);
        if exchanges && group != Some(self.group) {
            return refuse(format!("the group is {group:?}"));
        }
        let (wanted, offered) = if resumes {
            (HandshakeKind::Resumed, self.kind.offer())
        } else {
            (HandshakeKind::Full, Offer::Nothing)
        };
        let found = offer(hello).map_err(|error| Failure::Broken(io::Error::other(error)))?;
        if found != offered {
            let what = match found {
                Offer::Nothing => "it offers no resumption",
                Offer::Ticket => "its ticket contains the session",
                Offer::Identifier => "its ticket refers to a session in its cache",
            };
            return refuse(what.to_owned());
        }
        match connection.handshake_kind() {
            Some(kind) if kind == wanted => Ok(()),
            kind => refuse(format!("the handshake is {kind:?}")),
        }
    }
}

impl Kind {
    fn offer(self) -> Offer {
        match self {
            Self::Full => Offer::Nothing,
            Self::Ticket => Offer::Ticket,
            Self::Cache => Offer::Identifier,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

fn broken(what: impl Into<String>) -> Failure {
    Failure::Broken(io::Error::other(what.into()))
}

/// Whether a message is there with its head and as many octets as that says.
fn is_whole(message: &[u8]) -> bool {
    let Some(end) = message.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    message.len() >= end + 4 + length.unwrap_or(0_usize)
}

/// A server that wants nothing of what the client offers says so by an alert.
fn refusal(error: io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(reason @ (Error::AlertReceived(_) | Error::PeerIncompatible(_))) => {
            Failure::NotOffered(reason.to_string())
        }
        _ => Failure::Broken(error),
    }
}

/// A connection that remembers its first write, which is the client's first message.
struct Recorded {
    stream: TcpStream,
    hello: Vec<u8>,
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        if self.hello.is_empty()
            && let Poll::Ready(Ok(length)) = written
        {
            self.hello.extend_from_slice(&octets[..length]);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
