//! A client that sends exact bytes and reads one response after another.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Client {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) unread: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head as it came, with its last empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Fields behind the last chunk.
    pub(crate) trailers: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).into_iter().next()
    }

    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        headers(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The reason code of a refusal.
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no problem document: {}{}", self.head, self.text()));
        document["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}

/// The values of a field of a head.
pub(crate) fn headers<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    head.split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect()
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Says that nothing more will come.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Sends, not minding if the other side has closed meanwhile.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    async fn more(&mut self) -> io::Result<usize> {
        let mut space = vec![0; 64 * 1024];
        let count = self.stream.read(&mut space).await?;
        self.unread.extend_from_slice(&space[..count]);
        Ok(count)
    }

    /// The first `count` bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < count {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.drain(..count).collect())
    }

    async fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut looked_at = 0;
        loop {
            let from = looked_at.min(self.unread.len());
            if let Some(at) = memchr::memmem::find(&self.unread[from..], end) {
                return Ok(self.unread.drain(..from + at + end.len()).collect());
            }
            looked_at = self.unread.len().saturating_sub(end.len());
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Everything up to a clean end.
    pub(crate) async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.more().await? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    pub(crate) async fn head(&mut self) -> io::Result<Response> {
        let head = latin1(&self.until(b"\r\n\r\n").await?);
        let status = head.get(9..12).and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(Response { status, head, ..Response::default() })
    }

    pub(crate) async fn try_response(&mut self, to_head: bool) -> io::Result<Response> {
        let mut response = self.head().await?;
        if to_head || response.status < 200 || matches!(response.status, 204 | 304) {
            return Ok(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = self.until(b"\r\n").await?;
                let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
                if size == 0 {
                    break;
                }
                let data = self.bytes(size + 2).await?;
                response.body.extend_from_slice(&data[..size]);
            }
            loop {
                let line = self.until(b"\r\n").await?;
                if line == b"\r\n" {
                    return Ok(response);
                }
                response.trailers.push_str(&latin1(&line));
            }
        }
        response.body = match response.header("content-length") {
            Some(length) => {
                let length = length.parse().unwrap();
                self.bytes(length).await?
            }
            None => self.rest().await?,
        };
        Ok(response)
    }

    /// The next response, whole.
    pub(crate) async fn response(&mut self) -> Response {
        self.try_response(false).await.unwrap()
    }

    pub(crate) async fn exchange(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request).await;
        self.response().await
    }

    /// Asserts that the connection ends in order and that nothing more comes before.
    pub(crate) async fn ended(&mut self) {
        let rest = self.rest().await.expect("a clean end");
        assert!(rest.is_empty(), "more came: {}", latin1(&rest));
    }
}
