//! The bare relay: per request it reads, writes to a kept upstream connection, reads and writes back, on the
//! runtime that Cardea uses. It parses nothing but the end of a message, and knows only the two programs that it
//! stands between in a bench. What a gateway costs beyond it is the gateway's own doing.
#![forbid(unsafe_code)]

use std::env;
use std::io;
use std::net::SocketAddr;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// A head, and each piece of a body.
const BUFFER_BYTES: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let parsed = match arguments.as_slice() {
        [listen, origin, workers] => {
            listen.parse().ok().zip(origin.parse().ok()).zip(workers.parse::<usize>().ok())
        }
        _ => None,
    };
    let Some(((listen, origin), workers)) = parsed else {
        return Err(io::Error::other("usage: bench-relay LISTEN-ADDRESS ORIGIN-ADDRESS WORKERS"));
    };
    let runtime = match workers {
        0 | 1 => Builder::new_current_thread().enable_io().build()?,
        workers => Builder::new_multi_thread().worker_threads(workers).enable_io().build()?,
    };
    runtime.block_on(async { tokio::spawn(serve(listen, origin)).await.map_err(io::Error::other)? })
}

async fn serve(listen: SocketAddr, origin: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A peer that goes away ends its connection; there is nobody to tell.
            let _ = connection(client, origin).await;
        });
    }
}

async fn connection(mut client: TcpStream, origin: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
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
async fn message(from: &mut TcpStream, to: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
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
    Ok(true)
}

/// As the load generator and the origin of the benches spell it.
fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"\r\nContent-Length: ";
    let Some(start) = memmem::find(head, NAME) else { return 0 };
    let digits = head[start + NAME.len()..].iter().take_while(|octet| octet.is_ascii_digit());
    digits.fold(0, |value: usize, digit| value.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
}
