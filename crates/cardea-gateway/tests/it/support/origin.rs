//! An origin that follows a script and records every byte that it receives.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use super::client::headers;

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

/// What was received, by connection.
struct Record {
    connections: Mutex<Vec<Vec<u8>>>,
    changed: watch::Sender<u64>,
    ended: watch::Sender<usize>,
}

/// A connection from the gateway.
pub(crate) struct Visit {
    pub(crate) stream: TcpStream,
    /// Which of the origin's connections this is, from 0.
    pub(crate) index: usize,
    pub(crate) unread: Vec<u8>,
    record: Arc<Record>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Origin {
    /// Runs `script` for each connection.
    pub(crate) async fn start<F, R>(script: F) -> Self
    where
        F: Fn(Visit) -> R + Send + 'static,
        R: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Record {
            connections: Mutex::default(),
            changed: watch::Sender::new(0),
            ended: watch::Sender::new(0),
        });
        let shared = Arc::clone(&record);
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let _ = stream.set_nodelay(true);
                let index = {
                    let mut connections = shared.connections.lock().unwrap();
                    connections.push(Vec::new());
                    connections.len() - 1
                };
                shared.changed.send_modify(|version| *version += 1);
                let visit = Visit { stream, index, unread: Vec::new(), record: Arc::clone(&shared) };
                let script = script(visit);
                let record = Arc::clone(&shared);
                tokio::spawn(async move {
                    let _ = script.await;
                    record.ended.send_modify(|count| *count += 1);
                });
            }
        });
        Self { address, record, accepting }
    }

    /// Answers each request on a kept connection with `response`.
    pub(crate) async fn answering(response: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let response = Arc::new(response);
        Self::start(move |mut visit| {
            let response = Arc::clone(&response);
            async move {
                loop {
                    visit.request().await?;
                    visit.send(response.as_ref()).await?;
                }
            }
        })
        .await
    }

    pub(crate) async fn ok() -> Self {
        Self::answering(OK).await
    }

    /// Its first connection serves one request and is reset on the second, before a byte of an answer.
    pub(crate) async fn resetting() -> Self {
        Self::start(|mut visit| async move {
            visit.request().await?;
            visit.send(OK).await?;
            visit.request().await?;
            if visit.index == 0 {
                visit.reset();
                return Ok(());
            }
            visit.send(OK).await
        })
        .await
    }

    /// Reads a head on each connection, and says nothing until the gateway hangs up.
    pub(crate) async fn silent() -> Self {
        Self::start(|mut visit| async move {
            visit.head().await?;
            visit.closed().await;
            Ok(())
        })
        .await
    }

    /// Answers the first request of each connection with `response` and closes it then.
    pub(crate) async fn closing(response: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let response = Arc::new(response);
        Self::start(move |mut visit| {
            let response = Arc::clone(&response);
            async move {
                visit.request().await?;
                visit.send(response.as_ref()).await?;
                visit.stream.shutdown().await
            }
        })
        .await
    }

    /// All that was received, connection by connection.
    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        self.record.connections.lock().unwrap().clone()
    }

    /// All that was received, as text.
    pub(crate) fn text(&self) -> String {
        self.received().concat().iter().map(|byte| char::from(*byte)).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.record.connections.lock().unwrap().len()
    }

    /// How many connections have come to the end of their script.
    pub(crate) async fn ended(&self, count: usize) {
        self.record.ended.subscribe().wait_for(|ended| *ended >= count).await.unwrap();
    }

    /// Waits until what was received satisfies `condition`.
    pub(crate) async fn until(&self, condition: impl Fn(&str) -> bool) {
        let mut changed = self.record.changed.subscribe();
        while !condition(&self.text()) {
            changed.changed().await.unwrap();
        }
    }
}

/// A request as an origin sees it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
}

impl Request {
    pub(crate) fn line(&self) -> &str {
        self.head.split("\r\n").next().unwrap()
    }

    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        headers(&self.head, name)
    }
}

impl Visit {
    async fn more(&mut self) -> io::Result<()> {
        let mut space = [0; 16 * 1024];
        let count = self.stream.read(&mut space).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread.extend_from_slice(&space[..count]);
        self.record.connections.lock().unwrap()[self.index].extend_from_slice(&space[..count]);
        self.record.changed.send_modify(|version| *version += 1);
        Ok(())
    }

    pub(crate) async fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < count {
            self.more().await?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    async fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.unread, end) {
                return Ok(self.unread.drain(..at + end.len()).collect());
            }
            self.more().await?;
        }
    }

    pub(crate) async fn head(&mut self) -> io::Result<String> {
        Ok(self.until(b"\r\n\r\n").await?.iter().map(|byte| char::from(*byte)).collect())
    }

    /// A whole request, by its framing.
    pub(crate) async fn request(&mut self) -> io::Result<Request> {
        let head = self.head().await?;
        let mut request = Request { head, body: Vec::new(), trailers: String::new() };
        if request.headers("transfer-encoding") == ["chunked"] {
            self.chunked(&mut request).await?;
        } else if let [length] = request.headers("content-length")[..] {
            let length = length.parse().unwrap();
            request.body = self.bytes(length).await?;
        }
        Ok(request)
    }

    pub(crate) async fn chunked(&mut self, request: &mut Request) -> io::Result<()> {
        loop {
            let line = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            if size == 0 {
                break;
            }
            let data = self.bytes(size + 2).await?;
            request.body.extend_from_slice(&data[..size]);
        }
        loop {
            let line = self.until(b"\r\n").await?;
            if line == b"\r\n" {
                return Ok(());
            }
            request.trailers.push_str(&String::from_utf8_lossy(&line));
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// The connection, for a server that is not a script.
    pub(crate) fn into_stream(self) -> TcpStream {
        assert!(self.unread.is_empty());
        self.stream
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Waits until the gateway has ended the connection.
    pub(crate) async fn closed(&mut self) {
        while self.more().await.is_ok() {}
    }
}
