//! A client for the demo's own requests: HTTP/1.1 over TLS, verified with the demo's authority.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, body::Bytes, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) challenge: Option<String>,
    pub(super) body: String,
}

impl Answer {
    /// One line of the response.
    pub(super) fn summary(&self) -> String {
        let challenge =
            self.challenge.as_ref().map(|value| format!(" (WWW-Authenticate: {value})")).unwrap_or_default();
        format!("{}{challenge} {}", self.status, self.body.trim_end())
    }

    /// A string member of the JSON body.
    pub(super) fn member(&self, name: &str) -> Option<String> {
        let body: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        Some(body.get(name)?.as_str()?.to_owned())
    }
}

/// Opens a connection per request, as curl does.
pub(super) struct HttpClient {
    address: SocketAddr,
    tls: TlsConnector,
}

impl HttpClient {
    pub(super) fn new(address: SocketAddr, ca_pem: &[u8]) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem).context("the demo's authority")?)?;
        let mut config = rustls::ClientConfig::builder_with_provider(cardea_tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Sends a `GET` request with an optional token.
    pub(super) async fn get(&self, path: &str, token: Option<&str>) -> Result<Answer> {
        let mut request = Request::builder().method(Method::GET).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send(request.body(Full::default())?).await
    }

    /// Sends a `POST` request with a form and Basic credentials.
    pub(super) async fn post_form(
        &self,
        path: &str,
        credentials: (&str, &str),
        form: &str,
    ) -> Result<Answer> {
        let basic = STANDARD.encode(format!("{}:{}", credentials.0, credentials.1));
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("authorization", format!("Basic {basic}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(form.to_owned())))?;
        self.send(request).await
    }

    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer> {
        let host = self.address.to_string().parse()?;
        request.headers_mut().insert(hyper::header::HOST, host);
        let tcp = TcpStream::connect(self.address).await.context("connecting to the gateway")?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = self.tls.connect(name, tcp).await.context("the TLS handshake with the gateway")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        let exchange = async {
            let response: Response<Incoming> = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let challenge = response
                .headers()
                .get("www-authenticate")
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(Answer { status, challenge, body: String::from_utf8_lossy(&body).into_owned() })
        };
        tokio::pin!(connection);
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => {
                ended?;
                exchange.await
            }
        }
    }
}
