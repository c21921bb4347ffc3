//! A sink that sends each line to a syslog server as a datagram of RFC 5424, over a Unix socket or UDP (RFC 5426).

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use cardea_clock::Clock;
use cardea_env::{Inline, Value};

/// How long a server that takes nothing holds the writer's thread for one line.
const SEND_WAIT_MAX: Duration = Duration::from_secs(1);

/// RFC 5424 §6.2.1, severity `Informational`.
const SEVERITY: u8 = 6;

/// Where a syslog server listens, and what it is told that lines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogConfig {
    /// The server.
    pub server: SyslogServer,
    /// The facility by its number (RFC 5424 §6.2.1), 0 to 23: 23 is `local7`.
    pub facility: u8,
    /// The name of this machine; nil where it isn't known.
    pub hostname: Option<String>,
}

/// The socket of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogServer {
    /// A Unix datagram socket, such as `/dev/log`.
    Unix(PathBuf),
    /// A UDP port.
    Udp(SocketAddr),
}

/// A socket that was opened. Neither kind is connected, so that a server that starts again gets what follows.
enum Socket {
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
}

/// Lines in, datagrams out: each call of `write` sends the first line of what it gets.
pub(super) struct Syslog {
    socket: Socket,
    clock: Clock,
    /// `<PRI>1 `, before the time.
    before_time: Vec<u8>,
    /// What stands between the time and the line.
    after_time: Vec<u8>,
    datagram: Vec<u8>,
}

impl Syslog {
    pub(super) fn open(config: &SyslogConfig, clock: Clock) -> io::Result<Self> {
        let socket = match &config.server {
            SyslogServer::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(SEND_WAIT_MAX))?;
                Socket::Unix(socket, path.clone())
            }
            SyslogServer::Udp(server) => {
                let any: IpAddr = if server.is_ipv4() {
                    Ipv4Addr::UNSPECIFIED.into()
                } else {
                    Ipv6Addr::UNSPECIFIED.into()
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.set_write_timeout(Some(SEND_WAIT_MAX))?;
                Socket::Udp(socket, *server)
            }
        };
        let priority = u16::from(config.facility.min(23)) * 8 + u16::from(SEVERITY);
        // RFC 5424 §6.2.4: printable ASCII, at most 255.
        let hostname: String = config.hostname.iter().flat_map(|name| name.chars()).take(255).collect();
        let printable = !hostname.is_empty() && hostname.bytes().all(|byte| byte.is_ascii_graphic());
        let hostname = if printable { hostname.as_str() } else { "-" };
        Ok(Self {
            socket,
            clock,
            before_time: format!("<{priority}>1 ").into_bytes(),
            after_time: format!(" {hostname} cardea {} access - ", std::process::id()).into_bytes(),
            datagram: Vec::new(),
        })
    }
}

impl Write for Syslog {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let end = memchr::memchr(b'\n', lines);
        let line = lines.get(..end.unwrap_or(lines.len())).unwrap_or_default();
        let taken = line.len() + usize::from(end.is_some());
        if line.is_empty() {
            return Ok(taken);
        }
        let now = Value::Time(self.clock.wall().unix_nanos());
        self.datagram.clear();
        self.datagram.extend_from_slice(&self.before_time);
        self.datagram.extend_from_slice(now.text(&mut Inline::new()).unwrap_or_default());
        self.datagram.extend_from_slice(&self.after_time);
        self.datagram.extend_from_slice(line);
        match &self.socket {
            Socket::Unix(socket, path) => socket.send_to(&self.datagram, path),
            Socket::Udp(socket, server) => socket.send_to(&self.datagram, server),
        }?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cardea_clock::{ManualClock, Wall};

    use super::*;

    fn config(server: SyslogServer) -> SyslogConfig {
        SyslogConfig { server, facility: 23, hostname: Some("edge-1".into()) }
    }

    fn expected(line: &str) -> String {
        format!("<190>1 2033-05-18T03:33:20.000Z edge-1 cardea {} access - {line}", std::process::id())
    }

    fn clock() -> ManualClock {
        ManualClock::new(Wall::from_unix_seconds(2_000_000_000))
    }

    #[test]
    fn each_line_is_a_datagram_of_rfc_5424_over_a_unix_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let clock = clock();
        let mut syslog = Syslog::open(&config(SyslogServer::Unix(path.clone())), clock.clock()).unwrap();
        syslog.write_all(b"one\n\n{\"two\":2}\n").unwrap();
        let mut buffer = [0; 512];
        for line in ["one", "{\"two\":2}"] {
            let count = server.recv(&mut buffer).unwrap();
            assert_eq!(String::from_utf8_lossy(&buffer[..count]), expected(line));
        }
        // One that was started again, as a rotation of the server does, gets what follows.
        drop(server);
        std::fs::remove_file(&path).unwrap();
        assert!(syslog.write(b"lost\n").is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        syslog.write_all(b"three\n").unwrap();
        let count = server.recv(&mut buffer).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..count]), expected("three"));
    }

    #[test]
    fn each_line_is_a_datagram_over_udp() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let clock = clock();
        let address = server.local_addr().unwrap();
        let mut syslog = Syslog::open(&config(SyslogServer::Udp(address)), clock.clock()).unwrap();
        syslog.write_all(b"a\nb\n").unwrap();
        let mut buffer = [0; 512];
        for line in ["a", "b"] {
            let (count, _) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(String::from_utf8_lossy(&buffer[..count]), expected(line));
        }
    }

    #[test]
    fn a_hostname_that_no_header_can_carry_is_nil() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        for hostname in [None, Some(String::new()), Some("a b".into()), Some("\u{e9}".into())] {
            let config = SyslogConfig { hostname, ..config(SyslogServer::Unix(path.clone())) };
            Syslog::open(&config, clock().clock()).unwrap().write_all(b"x\n").unwrap();
            let mut buffer = [0; 512];
            let count = server.recv(&mut buffer).unwrap();
            assert!(String::from_utf8_lossy(&buffer[..count]).contains("Z - cardea "));
        }
    }
}
