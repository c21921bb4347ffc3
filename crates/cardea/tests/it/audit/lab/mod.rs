//! Where the attacks run: a gateway with every kind of listener, an origin that is easily fooled, and clients that send
//! what they like.

pub(crate) mod h2;
pub(crate) mod origin;
pub(crate) mod request;
mod tls;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
};

use cardea_clock::Wall;
use cardea_tls::authority::Authority;
use socket2::{Domain, Socket, Type};

pub(crate) use self::{
    origin::{Lengths, Record, Recorder},
    request::Request,
    tls::Hello,
};
use crate::support::{
    Folder, Server, WAIT_MAX,
    client::HOST,
    folder::{AUDIENCE, Settings},
    wire::{read_body, read_head},
};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

/// What a token (RFC 9110 §5.6.2) may consist of beside letters and digits.
pub(crate) const PUNCTUATION: [char; 15] =
    ['-', '_', '.', '!', '#', '$', '%', '&', '\'', '*', '+', '^', '`', '|', '~'];

/// Who the PROXY protocol says is calling.
pub(crate) const PROXIED: &str = "203.0.113.9";

/// How a request gets to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Tls,
    TlsH2,
    Plain,
    Unix,
    Proxy,
    ProxyTls,
    ProxyTlsH2,
}

impl Way {
    pub(crate) const ALL: [Self; 7] =
        [Self::Tls, Self::TlsH2, Self::Plain, Self::Unix, Self::Proxy, Self::ProxyTls, Self::ProxyTlsH2];

    /// Those over HTTP/1.1.
    pub(crate) const H1: [Self; 5] = [Self::Tls, Self::Plain, Self::Unix, Self::Proxy, Self::ProxyTls];

    /// One for each protocol.
    pub(crate) const BOTH: [Self; 2] = [Self::Plain, Self::TlsH2];

    pub(crate) const fn is_h2(self) -> bool {
        matches!(self, Self::TlsH2 | Self::ProxyTlsH2)
    }

    pub(crate) const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsH2 | Self::ProxyTls | Self::ProxyTlsH2)
    }

    pub(crate) const fn has_proxy(self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyTls | Self::ProxyTlsH2)
    }

    /// The name of its listener.
    const fn listener(self) -> &'static str {
        match self {
            Self::Tls | Self::TlsH2 => "https",
            Self::Plain => "http",
            Self::Unix => "unix",
            Self::Proxy => "proxy",
            Self::ProxyTls | Self::ProxyTlsH2 => "proxies",
        }
    }
}

/// An answer; status 0 where there is none.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The first line and the fields, in HTTP/1.1.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What a connection runs over.
pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection.
pub(crate) enum Wire {
    H1(BufReader<Box<dyn Stream>>),
    H2(h2::Client<Box<dyn Stream>>),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// Sends a request, and reads the answer if there is one.
    pub(crate) fn send(&mut self, request: &Request) -> Answer {
        match self {
            Self::H2(client) => client.send(request).unwrap_or_default(),
            Self::H1(_) => self.raw(&request.encode(), request.method == "HEAD"),
        }
    }

    /// Sends bytes in HTTP/1.1, and reads the answer if there is one.
    pub(crate) fn raw(&mut self, bytes: &[u8], is_head: bool) -> Answer {
        let Self::H1(stream) = self else { panic!("not over HTTP/2") };
        // The gateway may have refused what came before the end.
        let _ = stream.get_mut().write_all(bytes).and_then(|()| stream.get_mut().flush());
        read_answer(stream, is_head).unwrap_or_default()
    }

    /// Sends bytes in HTTP/1.1, and reads all that comes until the end.
    pub(crate) fn transcript(&mut self, bytes: &[u8]) -> String {
        let Self::H1(stream) = self else { panic!("not over HTTP/2") };
        let mut read = Vec::new();
        let sent = stream.get_mut().write_all(bytes).and_then(|()| stream.get_mut().flush());
        // However it ends: TLS without a close, or a reset.
        let _ = sent.and_then(|()| stream.read_to_end(&mut read));
        String::from_utf8_lossy(&read).into_owned()
    }
}

fn read_answer(stream: &mut impl BufRead, is_head: bool) -> io::Result<Answer> {
    loop {
        let head = read_head(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.first.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let mut answer = Answer { status, head: format!("{head:?}"), body: Vec::new() };
        if !is_head && !matches!(status, 101 | 204 | 304) {
            read_body(stream, &head, |piece| answer.body.extend_from_slice(piece))?;
        }
        return Ok(answer);
    }
}

/// A gateway and an origin.
pub(crate) struct Lab {
    pub(crate) folder: Folder,
    pub(crate) server: Server,
    pub(crate) origin: Recorder,
    clients: tls::Clients,
}

impl Lab {
    /// A gateway with these sections, whose routes may name the service `origin`.
    pub(crate) fn new(sections: &str) -> Self {
        Self::with(Recorder::start(Lengths::Octal), "", sections)
    }

    /// The same with an origin of its own, and with more certificates on its TLS listeners.
    pub(crate) fn with(origin: Recorder, certificates: &str, sections: &str) -> Self {
        let folder = Folder::new(&Settings::default());
        let staff = Authority::new("staff", FROM, TO).unwrap();
        folder.write("staff.pem", &staff.certificate_pem());
        let web = Authority::new("web", FROM, TO).unwrap();
        let issued = web.issue(&["*.partners.test"], FROM, TO).unwrap();
        folder.write("partners.pem", &issued.chain_pem);
        folder.write("partners.key", &issued.key_pem);
        folder.write("zones.json", "{\"admin.test\": \"inner\", \"/mapped/admin\": \"inner\"}");
        let clients = tls::Clients::new(&staff.issue_client("erp", &[], FROM, TO).unwrap());
        let text = configuration(&folder, origin.address, certificates, sections);
        folder.write("cardea.toml", &text);
        let server = Server::start(&folder);
        Self { folder, server, origin, clients }
    }

    /// Puts other sections in force.
    pub(crate) fn reload(&self, certificates: &str, sections: &str) {
        let text = configuration(&self.folder, self.origin.address, certificates, sections);
        self.folder.write("cardea.toml", &text);
        let (taken, line) = self.server.reload();
        assert!(taken, "{line}");
    }

    /// Connects.
    pub(crate) fn connect(&self, way: Way, hello: Hello) -> io::Result<Wire> {
        self.connect_from(Ipv4Addr::LOCALHOST, way, way.has_proxy(), hello)
    }

    /// Connects from an address, with or without a PROXY header.
    pub(crate) fn connect_from(
        &self,
        from: Ipv4Addr,
        way: Way,
        header: bool,
        hello: Hello,
    ) -> io::Result<Wire> {
        if way == Way::Unix {
            let stream = UnixStream::connect(self.folder.file("http.sock"))?;
            stream.set_read_timeout(Some(WAIT_MAX))?;
            return Ok(Wire::H1(BufReader::new(Box::new(stream))));
        }
        let mut stream = tcp(from, self.server.listener(way.listener()))?;
        if header {
            stream.write_all(format!("PROXY TCP4 {PROXIED} 127.0.0.1 4711 443\r\n").as_bytes())?;
        }
        let stream: Box<dyn Stream> =
            if way.is_tls() { Box::new(self.clients.connect(stream, way, hello)?) } else { Box::new(stream) };
        Ok(if way.is_h2() { Wire::H2(h2::Client::new(stream)?) } else { Wire::H1(BufReader::new(stream)) })
    }

    /// Sends a request over a connection of its own, as a client does that means well.
    pub(crate) fn send(&self, way: Way, request: &Request) -> Answer {
        self.connect(way, Hello::to(HOST)).unwrap().send(request)
    }

    /// What reached the origin, if the request was let in.
    pub(crate) fn reach(&self, way: Way, request: &Request) -> Option<Record> {
        self.arrived(&self.send(way, request))
    }

    /// What reached the origin, if this says that the request was let in. If it was not and something has reached the
    /// origin all the same, the next call will find it.
    pub(crate) fn arrived(&self, answer: &Answer) -> Option<Record> {
        (answer.status == 200).then(|| self.origin.take())
    }

    /// A token of a client that may read, and the client's name.
    pub(crate) fn token(&self) -> (String, String) {
        let (id, secret) = self.folder.create_client("billing");
        let answer = self.server.connect().token(&id, &secret).unwrap();
        (answer.member("access_token").unwrap(), id)
    }

    /// Shows that nothing has reached the origin that was not looked at, by a request for `target`, and stops.
    pub(crate) fn finish(self, target: &str) {
        let record = self.reach(Way::Plain, &Request::get(HOST, target));
        record.unwrap_or_else(|| panic!("{target}: the last control")).assert_canonical();
        self.server.stop();
    }
}

fn tcp(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((IpAddr::V4(from), 0)).into())?;
    socket.connect_timeout(&to.into(), WAIT_MAX)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    Ok(stream)
}

fn configuration(folder: &Folder, origin: SocketAddr, certificates: &str, sections: &str) -> String {
    let unix = folder.file("http.sock");
    let unix = unix.display();
    let certificate = "[[listener.tls.certificate]]\nchain = \"gateway.pem\"\nkey = \"gateway.key\"\n";
    let proxy = "proxy_protocol = \"any\"\nproxy_protocol_from = [\"127.0.0.1/32\"]\n";
    format!(
        r#"
[log]
format = "json"

[access_log]
path = "access.log"

[admin]
address = "127.0.0.1:0"
socket = "admin.sock"

[drain]
delay = "0s"

[[client_authority]]
name = "staff"
ca_file = "staff.pem"

[[listener]]
name = "https"
address = "127.0.0.1:0"

{certificate}
{certificates}

[[listener]]
name = "http"
address = "127.0.0.1:0"

[[listener]]
name = "unix"
address = "unix:{unix}"

[[listener]]
name = "proxy"
address = "127.0.0.1:0"
{proxy}

[[listener]]
name = "proxies"
address = "127.0.0.1:0"
{proxy}
{certificate}
{certificates}

[authorization_server]
issuer = "https://{HOST}"
wrapping_key = {{ file = "wrapping.key" }}
default_audience = "{AUDIENCE}"
scopes = ["read", "write"]

[[issuer]]
name = "own"
local = true
audiences = ["{AUDIENCE}"]

[[service]]
name = "origin"

[[service.endpoint]]
address = "{origin}"

{sections}
"#
    )
}
