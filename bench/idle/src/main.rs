//! Opens many connections, makes one request on each, says `ready`, and holds them. A line on standard input
//! makes one more request on each and is answered with `alive`; the end of standard input ends the program. Plaintext
//! is HTTP/1.1; over TLS it is what is asked for, and a server that negotiates anything else is an error.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// Connections that are being opened, or used, at a time: the server is to be idle, not in a rush.
const CONCURRENT: usize = 32;
/// Of one source address, below the ports that the kernel gives out.
const PER_SOURCE: usize = 5_000;
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";
const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// How the origin's answer ends (`peers/origin.conf`).
const BODY_END: &[u8] = b"0123456789";
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Of a response's body.
const BODY_BYTES_MAX: usize = 16 * 1024;
const USAGE: &str = "usage: bench-idle ADDRESS COUNT [CERTIFICATE-FILE http/1.1|h2]";

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
type BoxedStream = Box<dyn Stream>;

/// A connection that is held.
enum Connection {
    Http1(BoxedStream),
    /// A task of its own reads and writes what HTTP/2 says beside requests.
    Http2(SendRequest<Bytes>),
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, count, tls) = match arguments.as_slice() {
        [address, count] => (address, count, None),
        [address, count, authority, protocol] => (address, count, Some((authority, protocol))),
        _ => return Err(io::Error::other(USAGE)),
    };
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let count: usize = count.parse().map_err(io::Error::other)?;
    let connector = tls.map(|(authority, protocol)| connector(authority, protocol)).transpose()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;

    let mut open = runtime.block_on(each(0..count, |index| {
        let connector = connector.clone();
        async move {
            let mut connection = connect(address, index, connector).await?;
            connection.request().await?;
            Ok(connection)
        }
    }))?;
    say("ready", open.len())?;
    for line in io::stdin().lock().lines() {
        line?;
        open = runtime.block_on(each(open.into_iter(), |mut connection| async move {
            connection.request().await?;
            Ok(connection)
        }))?;
        say("alive", open.len())?;
    }
    Ok(())
}

fn say(what: &str, count: usize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{what} {count}")?;
    output.flush()
}

/// Does `work` for each item, a bounded number at a time.
async fn each<I, F, W>(items: impl Iterator<Item = I>, work: W) -> io::Result<Vec<Connection>>
where
    W: Fn(I) -> F,
    F: Future<Output = io::Result<Connection>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut done = Vec::new();
    for item in items {
        let work = work(item);
        running.spawn(async move { timeout(REQUEST_LIMIT, work).await? });
        if running.len() >= CONCURRENT
            && let Some(finished) = running.join_next().await
        {
            done.push(finished??);
        }
    }
    while let Some(finished) = running.join_next().await {
        done.push(finished??);
    }
    Ok(done)
}

async fn connect(
    address: SocketAddr,
    index: usize,
    connector: Option<TlsConnector>,
) -> io::Result<Connection> {
    let socket = TcpSocket::new_v4()?;
    // Closed by a reset, a connection leaves no port behind that waits for a minute.
    socket.set_zero_linger()?;
    if address.ip().is_loopback() {
        // Not 127.0.0.1, whose ports others need.
        let host = u8::try_from(index / PER_SOURCE + 1).map_err(io::Error::other)?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 1, host), 0)))?;
    }
    let stream: TcpStream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    let Some(connector) = connector else { return Ok(Connection::Http1(Box::new(stream))) };
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let stream = connector.connect(name, stream).await?;
    let offered = connector.config().alpn_protocols.first().map(Vec::as_slice);
    // A server that speaks HTTP/1.1 alone may say nothing.
    if stream.get_ref().1.alpn_protocol().unwrap_or(HTTP_1) != offered.unwrap_or(HTTP_1) {
        return Err(io::Error::other("another protocol was negotiated"));
    }
    if offered != Some(HTTP_2) {
        return Ok(Connection::Http1(Box::new(stream)));
    }
    let (requests, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    // What ends it fails the next request on it.
    tokio::spawn(connection);
    Ok(Connection::Http2(requests))
}

impl Connection {
    /// One request whose whole response is read; anything but 200 is an error.
    async fn request(&mut self) -> io::Result<()> {
        match self {
            Self::Http1(stream) => request(stream).await,
            Self::Http2(requests) => request_http2(requests).await.map_err(io::Error::other),
        }
    }
}

async fn request_http2(requests: &mut SendRequest<Bytes>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut requests = requests.clone().ready().await?;
    let request = Request::get("https://localhost/small").version(Version::HTTP_2).body(())?;
    let (response, _) = requests.send_request(request, true)?;
    let response = response.await?;
    if response.status() != StatusCode::OK {
        return Err(response.status().to_string().into());
    }
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        if whole.len() + data.len() > BODY_BYTES_MAX {
            return Err("no end of a response".into());
        }
        whole.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    if whole.ends_with(BODY_END) { Ok(()) } else { Err("the body is not the origin's".into()) }
}

async fn request(stream: &mut BoxedStream) -> io::Result<()> {
    stream.write_all(REQUEST).await?;
    let mut response = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let length = stream.read(&mut chunk).await?;
        if length == 0 || response.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("closed, or no end, before the end of a response"));
        }
        response.extend_from_slice(&chunk[..length]);
        if let Some(total) = length_of(&response)
            && response.len() >= total
        {
            break;
        }
    }
    // Whatever else says 200 is not the origin.
    if response.starts_with(b"HTTP/1.1 200 ") && response.ends_with(BODY_END) {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&response).into_owned()))
    }
}

/// The length of a message with its head, once the head is there.
fn length_of(message: &[u8]) -> Option<usize> {
    let end = message.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some(end + 4 + length.unwrap_or(0_usize))
}

fn connector(authority: &str, protocol: &str) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).map_err(io::Error::other)?;
    roots.add(certificate).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&tokio_rustls::rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
