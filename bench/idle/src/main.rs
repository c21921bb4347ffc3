//! Opens many connections, makes one request on each, says `ready`, and holds them. A line on standard input
//! makes one more request on each and is answered with `alive`; the end of standard input ends the program.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Connections that are being opened, or used, at a time: the server is to be idle, not in a rush.
const CONCURRENT: usize = 32;
/// Of one source address, below the ports that the kernel gives out.
const PER_SOURCE: usize = 5_000;
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HEAD_BYTES_MAX: usize = 16 * 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
type BoxedStream = Box<dyn Stream>;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, count, authority) = match arguments.as_slice() {
        [address, count] => (address, count, None),
        [address, count, authority] => (address, count, Some(authority)),
        _ => return Err(io::Error::other("usage: bench-idle ADDRESS COUNT [CERTIFICATE-FILE]")),
    };
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let count: usize = count.parse().map_err(io::Error::other)?;
    let connector = authority.map(|file| connector(file)).transpose()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;

    let mut open = runtime.block_on(each(0..count, |index| {
        let connector = connector.clone();
        async move {
            let mut stream = connect(address, index, connector).await?;
            request(&mut stream).await?;
            Ok(stream)
        }
    }))?;
    say("ready", open.len())?;
    for line in io::stdin().lock().lines() {
        line?;
        open = runtime.block_on(each(open.into_iter(), |mut stream| async move {
            request(&mut stream).await?;
            Ok(stream)
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
async fn each<I, F, W>(items: impl Iterator<Item = I>, work: W) -> io::Result<Vec<BoxedStream>>
where
    W: Fn(I) -> F,
    F: Future<Output = io::Result<BoxedStream>> + Send + 'static,
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
) -> io::Result<BoxedStream> {
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
    let Some(connector) = connector else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    Ok(Box::new(connector.connect(name, stream).await?))
}

/// One request whose whole response is read; anything but 200 is an error.
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
    if response.starts_with(b"HTTP/1.1 200 ") {
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

fn connector(authority: &str) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).map_err(io::Error::other)?;
    roots.add(certificate).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&tokio_rustls::rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
