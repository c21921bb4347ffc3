//! Connects to endpoints: TCP or Unix socket, name resolution, TLS.

use std::{io, net::SocketAddr, sync::Arc};

use cardea_clock::Mono;
use cardea_tls::{TlsError, server_name};
use cardea_upstream::{Address, FailureKind};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};

use crate::{
    model::ServiceTls,
    shortage::Shortage,
    timer::Timer,
    transport::{Socket, TlsTransport, Transport},
};

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 8;

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// The endpoint could not be reached.
    Endpoint(FailureKind),
    /// The gateway has nothing to connect with. It says nothing of the endpoint.
    Own(Shortage),
}

/// Opens a connection, with the TLS handshake where the service asks for it, by `deadline`.
///
/// # Errors
/// At which step it failed.
pub(crate) async fn connect(
    address: &Address,
    tls: Option<&ServiceTls>,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Transport, ConnectError> {
    let failed = |kind| Err(ConnectError::Endpoint(kind));
    let socket = match timer.until(deadline, open(address)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(OpenError { error, shortage })) => {
            tracing::debug!(endpoint = %address, %error, "can't connect");
            return shortage
                .map_or_else(|| failed(FailureKind::Connect), |shortage| Err(ConnectError::Own(shortage)));
        }
        Err(_) => return failed(FailureKind::ConnectTimeout),
    };
    let Some(tls) = tls else {
        return Ok(socket.into_plain());
    };
    match timer.until(deadline, secure(socket, address, tls)).await {
        Ok(Ok(transport)) => Ok(transport),
        Ok(Err(error)) => {
            tracing::warn!(endpoint = %address, %error, "TLS handshake with the service failed");
            failed(FailureKind::Handshake)
        }
        Err(_) => failed(FailureKind::ConnectTimeout),
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

async fn open(address: &Address) -> Result<Socket, OpenError> {
    match address {
        Address::Tcp(address) => tcp(*address).await.map(Socket::Tcp),
        Address::Unix(path) => {
            let unix = UnixStream::connect(path).await;
            unix.map(Socket::Unix).map_err(|error| OpenError::new(error, Shortage::of))
        }
        Address::Name { host, port } => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            let found = found.map_err(|error| OpenError::new(error, Shortage::of_lookup))?;
            let nothing = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            let mut last = OpenError { error: nothing, shortage: None };
            for address in found.take(ADDRESSES_MAX) {
                match tcp(address).await {
                    Ok(tcp) => return Ok(Socket::Tcp(tcp)),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

async fn tcp(address: SocketAddr) -> Result<TcpStream, OpenError> {
    let failed = |error: io::Error| OpenError::new(error, |error| Shortage::of_tcp_connect(error, address));
    let tcp = TcpStream::connect(address).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    Ok(tcp)
}

/// Why a connection is not secured.
#[derive(Debug, thiserror::Error)]
enum SecureError {
    #[error("a Unix socket needs a server name for TLS")]
    NameMissing,
    #[error(transparent)]
    NameInvalid(#[from] TlsError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Handshake(#[from] io::Error),
}

async fn secure(socket: Socket, address: &Address, tls: &ServiceTls) -> Result<Transport, SecureError> {
    let name = match (&tls.server_name, address) {
        (Some(name), _) => name.clone(),
        (None, Address::Name { host, .. }) => server_name(host)?,
        (None, Address::Tcp(address)) => ServerName::IpAddress(address.ip().into()),
        (None, Address::Unix(_)) => return Err(SecureError::NameMissing),
    };
    let mut tls = TlsTransport::client(socket, Arc::clone(&tls.config), name)?;
    std::future::poll_fn(|cx| tls.poll_handshake(cx)).await?;
    Ok(Transport::Tls(Box::new(tls)))
}
