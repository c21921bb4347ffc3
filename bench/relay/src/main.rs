//! The bare relay: per request it reads, writes to a kept upstream connection, reads and writes back, on the
//! runtime that Cardea uses. It parses nothing but the end of a message, and knows only the two programs that it
//! stands between in a bench. Each worker has a runtime of its own, as in Cardea; or all share one, to see what that
//! costs. What a gateway costs beyond it is the gateway's own doing. With a certificate it
//! speaks TLS 1.3 to the client, by the library that Cardea uses.
#![forbid(unsafe_code)]

use std::env;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{ServerConfig, version::TLS13};

/// A head, and each piece of a body.
const BUFFER_BYTES: usize = 64 * 1024;
const BACKLOG: u32 = 4096;
const USAGE: &str =
    "usage: bench-relay [shared] LISTEN-ADDRESS ORIGIN-ADDRESS WORKERS [CERTIFICATE-FILE KEY-FILE]";

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (shared, arguments) = match arguments.as_slice() {
        ["shared", rest @ ..] => (true, rest),
        all => (false, all),
    };
    let (listen, origin, workers, certificate) = match arguments {
        [listen, origin, workers] => (listen, origin, workers, None),
        [listen, origin, workers, chain, key] => (listen, origin, workers, Some((chain, key))),
        _ => return Err(io::Error::other(USAGE)),
    };
    let listen: SocketAddr = listen.parse().map_err(io::Error::other)?;
    let origin: SocketAddr = origin.parse().map_err(io::Error::other)?;
    let workers: usize = workers.parse().map_err(io::Error::other)?;
    let acceptor = certificate.map(|(chain, key)| acceptor(chain, key)).transpose()?;
    if shared && workers > 1 {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_io().build()?;
        let serving = serve(listen, origin, acceptor);
        return runtime.block_on(async { tokio::spawn(serving).await.map_err(io::Error::other)? });
    }
    let threads: Vec<_> = (0..workers.max(1))
        .map(|_| {
            let acceptor = acceptor.clone();
            thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_io().build()?;
                runtime.block_on(serve(listen, origin, acceptor))
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| {
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker has panicked")))
    })
}

async fn serve(listen: SocketAddr, origin: SocketAddr, acceptor: Option<TlsAcceptor>) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    // The kernel spreads connections over the workers.
    socket.set_reuseport(true)?;
    socket.bind(listen)?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        let (client, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            client.set_nodelay(true)?;
            // A peer that goes away ends its connection; there is nobody to tell.
            match acceptor {
                None => connection(client, origin).await,
                Some(acceptor) => connection(acceptor.accept(client).await?, origin).await,
            }
        });
    }
}

fn acceptor(chain: &str, key: &str) -> io::Result<TlsAcceptor> {
    let chain: Result<_, _> = CertificateDer::pem_file_iter(chain).map_err(io::Error::other)?.collect();
    let chain = chain.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn connection(mut client: impl Stream, origin: SocketAddr) -> io::Result<()> {
    let mut upstream = TcpStream::connect(origin).await?;
    upstream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while message(&mut client, &mut upstream, &mut buffer).await? {
        if !message(&mut upstream, &mut client, &mut buffer).await? {
            break;
        }
    }
    Ok(())
}

/// Relays one message. `false` where the sender has closed.
async fn message(from: &mut impl Stream, to: &mut impl Stream, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    let total = loop {
        let length = from.read(&mut buffer[filled..]).await?;
        if length == 0 {
            return Ok(false);
        }
        filled += length;
        if let Some(end) = memmem::find(&buffer[..filled], b"\r\n\r\n") {
            break end + 4 + content_length(&buffer[..end]);
        }
    };
    to.write_all(&buffer[..filled]).await?;
    let mut left = total.checked_sub(filled).ok_or_else(|| io::Error::other("pipelining is not relayed"))?;
    while left > 0 {
        let piece = left.min(buffer.len());
        let length = from.read(&mut buffer[..piece]).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&buffer[..length]).await?;
        left -= length;
    }
    // A stream of TLS may have kept the end of it.
    to.flush().await?;
    Ok(true)
}

/// As the load generator and the origin of the benches spell it.
fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"\r\nContent-Length: ";
    let Some(start) = memmem::find(head, NAME) else { return 0 };
    let digits = head[start + NAME.len()..].iter().take_while(|octet| octet.is_ascii_digit());
    digits.fold(0, |value: usize, digit| value.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
}
