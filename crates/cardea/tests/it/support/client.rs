//! A client that shows every byte and every end: HTTP/1.1, with TLS or without.

use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use super::{
    WAIT_MAX, until,
    wire::{Head, read_body, read_head},
};

/// The name of the gateway in its certificate, and the host of most requests.
pub(crate) const HOST: &str = "gateway.test";

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A string of the JSON body.
    pub(crate) fn member(&self, name: &str) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        body.get(name)?.as_str().map(str::to_owned)
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A connection.
pub(crate) struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects in the clear.
    pub(crate) fn plain(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(64 * 1024, Stream::Plain(tcp(address)?)) })
    }

    /// Connects with TLS, and makes the handshake.
    pub(crate) fn tls(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        Self::tls_for(HOST, address, config)
    }

    /// The same for another name.
    pub(crate) fn tls_for(
        name: &'static str,
        address: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let name = ServerName::try_from(name).unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, tcp(address)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream: BufReader::with_capacity(64 * 1024, Stream::Tls(Box::new(stream))) })
    }

    /// The certificate that the server has shown.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        let Stream::Tls(stream) = self.stream.get_ref() else { panic!("no TLS") };
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)?;
        self.stream.get_mut().flush()
    }

    /// Reads a head; `None` where the server has closed instead.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        read_head(&mut self.stream)
    }

    pub(crate) fn body(&mut self, head: &Head, piece: impl FnMut(&[u8])) -> io::Result<()> {
        read_body(&mut self.stream, head, piece)
    }

    /// Reads a whole answer; `None` where the server has closed instead.
    pub(crate) fn answer(&mut self) -> io::Result<Option<Answer>> {
        let Some(head) = self.head()? else { return Ok(None) };
        let status = head.first.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {}", head.first)))?;
        let mut body = Vec::new();
        self.body(&head, |piece| body.extend_from_slice(piece))?;
        Ok(Some(Answer { status, head, body }))
    }

    /// Sends a request whose head has these further lines, each with its end.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        lines: &str,
        body: &str,
    ) -> io::Result<Answer> {
        self.request_at(HOST, method, path, lines, body)
    }

    /// The same at another host.
    pub(crate) fn request_at(
        &mut self,
        host: &str,
        method: &str,
        path: &str,
        lines: &str,
        body: &str,
    ) -> io::Result<Answer> {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.send(
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}{length}\r\n{body}").as_bytes(),
        )?;
        self.answer()?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.request("GET", path, "", "")
    }

    pub(crate) fn get_with_token(&mut self, path: &str, token: &str) -> io::Result<Answer> {
        self.request("GET", path, &format!("Authorization: Bearer {token}\r\n"), "")
    }

    /// Asks the token endpoint.
    pub(crate) fn token(&mut self, id: &str, secret: &str) -> io::Result<Answer> {
        self.token_at(HOST, id, secret)
    }

    /// The same, again for as long as the server has too much to do, which it tells clients to.
    pub(crate) fn token_patiently(&mut self, id: &str, secret: &str) -> io::Result<Answer> {
        until("a server that has time", || match self.token(id, secret) {
            Ok(answer) if answer.status == 503 => None,
            answer => Some(answer),
        })
    }

    /// The same at another host.
    pub(crate) fn token_at(&mut self, host: &str, id: &str, secret: &str) -> io::Result<Answer> {
        let basic = STANDARD.encode(format!("{id}:{secret}"));
        let lines =
            format!("Authorization: Basic {basic}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
        self.request_at(host, "POST", "/oauth2/token", &lines, "grant_type=client_credentials")
    }

    /// Whether the server closes this connection in order, without a byte more.
    pub(crate) fn is_closed(&mut self) -> io::Result<bool> {
        Ok(self.stream.fill_buf()?.is_empty())
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(WAIT_MAX))?;
    tcp.set_write_timeout(Some(WAIT_MAX))?;
    Ok(tcp)
}
