//! Fetches key sets and discovery documents: GET over HTTPS, to a checked address, with limits.

pub(crate) mod ocsp;

use std::{
    collections::HashMap,
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use cardea_identity::{Fetch, FetchError, FetchRequest, is_private_address};
use cardea_tls::{ClientTlsConfig, Roots, TlsError, client_config, server_name};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use url::{Host, Url};

/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// The largest head of a response, in bytes, and the limit of data read ahead of its body.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most cached CA files; a configuration has at most one for each issuer.
const AUTHORITIES_MAX: usize = 1_000;

/// The `User-Agent` of requests.
const USER_AGENT: &str = concat!("cardea/", env!("CARGO_PKG_VERSION"));

/// Fetches over the network. Each fetch has its own connection, because key sets are fetched minutes apart.
#[derive(Default)]
pub(crate) struct HttpFetch {
    /// The TLS configuration for each CA file; parsing the system's roots takes milliseconds.
    authorities: Mutex<HashMap<Option<PathBuf>, Authorities>>,
}

#[derive(Clone)]
struct Authorities {
    /// The modification time of the file when it was read.
    changed_at: Option<SystemTime>,
    config: Arc<ClientConfig>,
}

impl HttpFetch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    async fn get(&self, request: FetchRequest<'_>) -> Result<Vec<u8>, FetchError> {
        let (tcp, address) = connect(request).await?;
        tracing::debug!(url = %request.url, %address, "fetching");
        if request.url.scheme() == "http" {
            return exchange(tcp, message(request.url)?, request.bytes_max).await;
        }
        let host = request.url.host_str().unwrap_or_default();
        let name = server_name(host).map_err(|error| FetchError::Io(error.to_string()))?;
        let config = self.client_config(request.ca_file).await?;
        let tls = TlsConnector::from(config).connect(name, tcp).await;
        exchange(tls.map_err(|error| failed("TLS", &error))?, message(request.url)?, request.bytes_max).await
    }

    /// The TLS configuration that trusts the system's roots and those of `ca_file`, which is reloaded when it has
    /// changed.
    async fn client_config(&self, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, FetchError> {
        let path = ca_file.map(Path::to_owned);
        let known = self.lock().get(&path).cloned();
        let key = path.clone();
        // Reading and parsing files must not run on the runtime's threads.
        let load = move || -> Result<Authorities, TlsError> {
            let changed_at = path.as_deref().and_then(changed_at);
            match known {
                Some(known) if known.changed_at == changed_at => Ok(known),
                _ => Ok(Authorities { changed_at, config: authorities(path)? }),
            }
        };
        let loaded = tokio::task::spawn_blocking(load)
            .await
            .map_err(|error| FetchError::Io(error.to_string()))?
            .map_err(|error| FetchError::Io(error.to_string()))?;
        let mut authorities = self.lock();
        if authorities.len() >= AUTHORITIES_MAX {
            authorities.clear();
        }
        let config = Arc::clone(&loaded.config);
        authorities.insert(key, loaded);
        Ok(config)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Option<PathBuf>, Authorities>> {
        self.authorities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetch for HttpFetch {
    fn fetch<'a>(
        &'a self,
        request: FetchRequest<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send + 'a>> {
        Box::pin(async move {
            let limit = tokio::time::timeout(request.timeout, self.get(request));
            limit.await.unwrap_or(Err(FetchError::Timeout))
        })
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn authorities(ca_file: Option<PathBuf>) -> Result<Arc<ClientConfig>, TlsError> {
    let with = |roots| client_config(&ClientTlsConfig { roots, ..ClientTlsConfig::default() });
    let Some(path) = ca_file else { return with(Roots::System) };
    match with(Roots::SystemAnd(path.clone())) {
        // In a container without system roots, only the file is used.
        Err(TlsError::SystemRoots(_)) => with(Roots::File(path)),
        result => result,
    }
}

/// Connects to a checked address. The name is resolved once, so that nothing can change between the check and the
/// connection.
async fn connect(request: FetchRequest<'_>) -> Result<(TcpStream, SocketAddr), FetchError> {
    let addresses = resolve(request.url).await?;
    let plain = match request.url.scheme() {
        "https" => false,
        "http" if request.danger_allow_http_loopback => true,
        _ => return Err(FetchError::AddressRefused),
    };
    for address in &addresses {
        let ip = address.ip().to_canonical();
        // One forbidden address refuses them all: a name with both internal and public addresses is suspicious.
        if (plain && !ip.is_loopback()) || (!request.allow_private_addresses && is_private_address(ip)) {
            return Err(FetchError::AddressRefused);
        }
    }
    connect_to_one(addresses, request.timeout).await
}

async fn connect_to_one(
    addresses: Vec<SocketAddr>,
    timeout: Duration,
) -> Result<(TcpStream, SocketAddr), FetchError> {
    // An unreachable address must leave time for the others.
    let attempts = addresses.len().min(ADDRESSES_MAX);
    let limit = timeout / u32::try_from(attempts + 1).unwrap_or(u32::MAX);
    let mut last = FetchError::Io("the name has no address".to_owned());
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        match tokio::time::timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok((tcp, address)),
            Ok(Err(error)) => last = failed(&format!("connecting to {address}"), &error),
            Err(_) => last = FetchError::Timeout,
        }
    }
    Err(last)
}

async fn resolve(url: &Url) -> Result<Vec<SocketAddr>, FetchError> {
    let port = url.port_or_known_default().unwrap_or(443);
    let one = |ip: IpAddr| Ok(vec![SocketAddr::new(ip, port)]);
    match url.host() {
        Some(Host::Ipv4(ip)) => one(ip.into()),
        Some(Host::Ipv6(ip)) => one(ip.into()),
        Some(Host::Domain(name)) => {
            let found = tokio::net::lookup_host((name, port)).await;
            Ok(found.map_err(|error| failed("resolving the name", &error))?.collect())
        }
        None => Err(FetchError::Io("the URL has no host".to_owned())),
    }
}

/// Sends the request and reads the response. The connection ends with this future.
async fn exchange<S>(
    stream: S,
    message: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Vec<u8>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed("HTTP", &error))?;
    let answer = async {
        let response = sender.send_request(message).await.map_err(|error| failed("HTTP", &error))?;
        match response.status() {
            StatusCode::OK => read(response.into_body(), bytes_max).await,
            status if status.is_redirection() => Err(FetchError::Redirect),
            status => Err(FetchError::Status(status.as_u16())),
        }
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

fn message(url: &Url) -> Result<Request<Full<Bytes>>, FetchError> {
    let (authority, target) = origin_form(url);
    Request::get(target)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Full::default())
        .map_err(|error| FetchError::Io(error.to_string()))
}

/// The host with its port, and the path with the query.
fn origin_form(url: &Url) -> (String, String) {
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    (authority, target)
}

async fn read(mut body: hyper::body::Incoming, bytes_max: usize) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed("HTTP", &error))?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > bytes_max - bytes.len() {
            return Err(FetchError::TooLarge);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// An error with its causes, for the operator.
fn failed(what: &str, error: &(dyn Error + 'static)) -> FetchError {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // An `io::Error` already includes the error that it wraps.
        let shown = error.to_string();
        if !text.ends_with(&shown) {
            text.push_str(": ");
            text.push_str(&shown);
        }
        cause = error.source();
    }
    if let Some(io) = error.downcast_ref::<io::Error>()
        && io.kind() == io::ErrorKind::TimedOut
    {
        return FetchError::Timeout;
    }
    FetchError::Io(text)
}

#[cfg(test)]
mod tests;
