//! The HTTP client for the ACME authority: HTTPS only, one connection per request, with limits on everything.

use std::{
    error::Error as _,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cardea_clock::{Clock, Wall};
use cardea_tls::{ClientTlsConfig, Roots, TlsError, client_config, server_name};
use http::{HeaderValue, Request, Response, header, request::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::schedule::retry_after;

/// From the name resolution to the last byte of the response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest head of a response, in bytes, and the largest body: a certificate chain has some thousand.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 256 * 1024;

/// An error below HTTP: possibly not of the authority, but of the network.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unreachable(String);

/// Information in response fields that the protocol library does not pass on.
#[derive(Debug, Clone, Default)]
pub(super) struct Said(Arc<Mutex<Option<Wall>>>);

impl Said {
    /// Until when the authority wants no requests; returned once.
    pub(super) fn take_retry_after(&self) -> Option<Wall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Sends requests to the authority.
#[derive(Clone)]
pub(super) struct Client {
    tls: Arc<ClientConfig>,
    clock: Clock,
    said: Said,
}

impl Client {
    /// A client that trusts the system's CA certificates and those of `ca_file`. Reads files.
    ///
    /// # Errors
    /// The problem of the file, or that the system has no CA certificates.
    pub(super) async fn new(ca_file: Option<PathBuf>, clock: Clock, said: Said) -> Result<Self, TlsError> {
        // In a container without CA certificates, only those of the file are used.
        let load = move || {
            let with = |roots| client_config(&ClientTlsConfig { roots, ..ClientTlsConfig::default() });
            let Some(path) = ca_file else { return with(Roots::System) };
            match with(Roots::SystemAnd(path.clone())) {
                Err(TlsError::SystemRoots(_)) => with(Roots::File(path)),
                result => result,
            }
        };
        let tls = tokio::task::spawn_blocking(load)
            .await
            .unwrap_or_else(|error| Err(TlsError::SystemRoots(error.to_string())))?;
        Ok(Self { tls, clock, said })
    }

    async fn exchange(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (mut parts, body) = request.into_parts();
        let host = parts.uri.host().unwrap_or_default().to_owned();
        if parts.uri.scheme_str() != Some("https") {
            return Err(unreachable(format!("{} is not an https URL (RFC 8555 §6.1)", parts.uri)));
        }
        let port = parts.uri.port_u16().unwrap_or(443);
        direct(&mut parts)?;
        let name = server_name(&host).map_err(|error| unreachable(error.to_string()))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let tcp = TcpStream::connect((bare, port))
            .await
            .map_err(|error| unreachable(format!("connecting to {host}:{port}: {error}")))?;
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await;
        let tls = tls.map_err(|error| unreachable(format!("TLS with {host}:{port}: {error}")))?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|error| broken(&error))?;
        let answer = async {
            let response = sender
                .send_request(Request::from_parts(parts, body))
                .await
                .map_err(|error| broken(&error))?;
            self.read(response).await
        };
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            // The peer has closed the connection, which may end the body; received data can still be read.
            _ = connection => {}
        }
        answer.await
    }

    async fn read(&self, response: Response<Incoming>) -> Result<BytesResponse, Error> {
        let (mut parts, mut body) = response.into_parts();
        if let Some(value) = parts.headers.remove(header::RETRY_AFTER) {
            let now = self.clock.precise().wall;
            let until = value.to_str().ok().and_then(|value| retry_after(value, now));
            if !parts.status.is_success() {
                *self.said.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
            }
            // Normalised and bounded: the library adds any number here to the clock.
            if let Some(until) = until {
                let seconds = until.saturating_since(now).as_secs();
                parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            if data.len() > BODY_BYTES_MAX - bytes.len() {
                return Err(Error::Other(format!("a response of more than {BODY_BYTES_MAX} bytes").into()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(BytesResponse::from(Response::from_parts(parts, Full::new(Bytes::from(bytes)))))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let late = |_| unreachable(format!("no response within {} s", TIMEOUT.as_secs()));
            timeout(TIMEOUT, client.exchange(request)).await.map_err(late)?
        })
    }
}

/// Rewrites the request to origin form: only its path, with `Host`.
fn direct(parts: &mut Parts) -> Result<(), Error> {
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    parts.headers.insert(header::HOST, HeaderValue::try_from(authority).map_err(http::Error::from)?);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    // Required by RFC 8555 §6.1; the library's own value would name only the library.
    let agent = HeaderValue::from_static(concat!("cardea/", env!("CARGO_PKG_VERSION"), " instant-acme"));
    parts.headers.insert(header::USER_AGENT, agent);
    parts.uri = target.parse().map_err(http::Error::from)?;
    Ok(())
}

fn unreachable(message: String) -> Error {
    Error::Other(Box::new(Unreachable(message)))
}

fn broken(error: &hyper::Error) -> Error {
    let mut text = format!("HTTP: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    unreachable(text)
}

/// Whether the authority was not reached at all.
pub(super) fn is_unreachable(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.is::<Unreachable>() || error.is::<io::Error>()
}
