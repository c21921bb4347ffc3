//! Connects to endpoints: TCP or Unix socket, TLS.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use cardea_clock::{Mono, Stopwatch};
use cardea_tls::{TlsError, server_name};
use cardea_upstream::{Address, Endpoint, FailureKind};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};

use super::{Offer, Spoken};
use crate::{
    model::ServiceTls,
    shortage::Shortage,
    timer::Timer,
    transport::{Socket, TlsTransport, Transport},
};

/// A connection that is made to measure a round trip is given up after this time.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// The endpoint could not be reached.
    Endpoint(FailureKind),
    /// The gateway has nothing to connect with. It says nothing of the endpoint.
    Own(Shortage),
}

/// A connection that was made.
pub(crate) struct Connected {
    pub(crate) transport: Transport,
    pub(crate) spoken: Spoken,
    /// How long the TCP handshake took, which is one round trip.
    pub(crate) round_trip: Option<Duration>,
}

/// The round trip to an endpoint, from a connection that is made for it and closed; none if it can't be made in time.
pub async fn measure_round_trip(address: &Address) -> Option<Duration> {
    tokio::time::timeout(MEASURE_TIMEOUT, open(address)).await.ok()?.ok()?.1
}

/// Opens a connection, with the TLS handshake where the service asks for it, by `deadline`. It speaks what was offered.
///
/// # Errors
/// At which step it failed.
pub(crate) async fn connect<C>(
    endpoint: &Endpoint<C>,
    tls: Option<&ServiceTls>,
    offer: Offer,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Connected, ConnectError> {
    let failed = |kind| Err(ConnectError::Endpoint(kind));
    let (socket, round_trip) = match timer.until(deadline, open(endpoint.address())).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(OpenError { error, shortage })) => {
            tracing::debug!(endpoint = endpoint.label(), %error, "can't connect");
            return shortage
                .map_or_else(|| failed(FailureKind::Connect), |shortage| Err(ConnectError::Own(shortage)));
        }
        Err(_) => return failed(FailureKind::ConnectTimeout),
    };
    let Some(tls) = tls else {
        let spoken = offer.spoken(false, None).unwrap_or(Spoken::Http1);
        return Ok(Connected { transport: socket.into_plain(), spoken, round_trip });
    };
    match timer.until(deadline, secure(socket, endpoint, tls, offer)).await {
        Ok(Ok((transport, spoken))) => Ok(Connected { transport, spoken, round_trip }),
        Ok(Err(error)) => {
            warn_of_handshake(endpoint.label(), &error, tls, timer.now());
            failed(FailureKind::Handshake)
        }
        Err(_) => failed(FailureKind::ConnectTimeout),
    }
}

/// Tells of a failed handshake. Each request can cause one, so warnings are limited for each service.
fn warn_of_handshake(endpoint: &str, error: &SecureError, tls: &ServiceTls, now: Mono) {
    match tls.handshake_warnings.admit(now) {
        Some(suppressed) => {
            tracing::warn!(endpoint, %error, suppressed, "TLS handshake with the service failed");
        }
        None => tracing::debug!(endpoint, %error, "TLS handshake with the service failed"),
    }
}

/// Why there is no socket.
struct OpenError {
    error: io::Error,
    /// What is short, where it is the gateway's own fault.
    shortage: Option<Shortage>,
}

impl OpenError {
    fn new(error: io::Error, shortage: impl FnOnce(&io::Error) -> Option<Shortage>) -> Self {
        let shortage = shortage(&error);
        Self { error, shortage }
    }
}

/// A socket, and over TCP how long the handshake took.
async fn open(address: &Address) -> Result<(Socket, Option<Duration>), OpenError> {
    match address {
        Address::Tcp(address) => tcp(*address).await,
        Address::Unix(path) => {
            let unix = UnixStream::connect(path).await;
            unix.map(|unix| (Socket::Unix(unix), None)).map_err(|error| OpenError::new(error, Shortage::of))
        }
    }
}

async fn tcp(address: SocketAddr) -> Result<(Socket, Option<Duration>), OpenError> {
    let failed = |error: io::Error| OpenError::new(error, |error| Shortage::of_tcp_connect(error, address));
    let mut stopwatch = Stopwatch::start();
    let tcp = TcpStream::connect(address).await.map_err(failed)?;
    let round_trip = stopwatch.lap();
    tcp.set_nodelay(true).map_err(failed)?;
    Ok((Socket::Tcp(tcp), Some(round_trip)))
}

/// Why a connection is not secured.
#[derive(Debug, thiserror::Error)]
enum SecureError {
    #[error("a Unix socket needs a server name for TLS")]
    NameMissing,
    #[error("the endpoint does not speak HTTP/2 (it did not choose \"h2\" by ALPN)")]
    Http2Missing,
    #[error(transparent)]
    NameInvalid(#[from] TlsError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Handshake(#[from] io::Error),
}

async fn secure<C>(
    socket: Socket,
    endpoint: &Endpoint<C>,
    tls: &ServiceTls,
    offer: Offer,
) -> Result<(Transport, Spoken), SecureError> {
    let name = match (&tls.server_name, endpoint.name(), endpoint.address()) {
        (Some(name), ..) => name.clone(),
        (None, Some(name), _) => server_name(name.verified())?,
        (None, None, Address::Tcp(address)) => ServerName::IpAddress(address.ip().into()),
        (None, None, Address::Unix(_)) => return Err(SecureError::NameMissing),
    };
    let config = if offer.has_http2() { tls.http2.as_ref().unwrap_or(&tls.config) } else { &tls.config };
    let mut tls = TlsTransport::client(socket, Arc::clone(config), name)?;
    std::future::poll_fn(|cx| tls.poll_handshake(cx)).await?;
    let spoken = offer.spoken(true, tls.alpn()).ok_or(SecureError::Http2Missing)?;
    Ok((Transport::Tls(Box::new(tls)), spoken))
}
