//! Listening sockets: inherited through socket activation, or bound here.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use cardea_gateway::listener::ListenSocket;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::socket_file::SocketFile;
use crate::config::{BindAddress, Config, Listener};

/// The length of the accept queue; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Sockets that were passed to this process (systemd's `LISTEN_FDS`), matched by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<ListenSocket>,
}

impl Inherited {
    /// The sockets that the environment names.
    pub(crate) fn from_environment() -> Result<Self> {
        let mut passed = listenfd::ListenFd::from_env();
        let mut sockets = Vec::with_capacity(passed.len());
        for index in 0..passed.len() {
            // Of either kind: a socket of the wrong kind is refused below.
            if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
                sockets.push(ListenSocket::Tcp(listener));
            } else if let Ok(Some(listener)) = passed.take_unix_listener(index) {
                sockets.push(ListenSocket::Unix(listener));
            } else {
                bail!("inherited socket {index} is not a listening stream socket");
            }
        }
        Ok(Self { sockets })
    }

    /// Exactly these sockets.
    pub(crate) fn of(sockets: Vec<ListenSocket>) -> Self {
        Self { sockets }
    }

    fn take(&mut self, address: &BindAddress) -> Option<ListenSocket> {
        let wanted = |socket: &ListenSocket| match (socket, address) {
            (ListenSocket::Tcp(listener), BindAddress::Tcp(wanted)) => {
                listener.local_addr().is_ok_and(|address| address == *wanted)
            }
            (ListenSocket::Unix(listener), BindAddress::Unix(wanted)) => {
                listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(wanted))
            }
            _ => false,
        };
        let index = self.sockets.iter().position(wanted)?;
        Some(self.sockets.swap_remove(index))
    }

    /// The sockets that no listener uses, as text.
    pub(crate) fn unused(&self) -> Vec<String> {
        self.sockets.iter().map(|socket| format!("{socket:?}")).collect()
    }
}

/// The sockets of a listener, which share its address: one for each worker if the kernel can distribute connections
/// over them, else one.
pub(crate) struct Sockets {
    pub(super) sockets: Vec<ListenSocket>,
    /// The file of a Unix socket that was bound here. The file of an inherited one belongs to its creator.
    pub(super) file: Option<SocketFile>,
}

/// Binds every listener of `config` for this many `workers`, and uses inherited sockets.
pub(crate) fn bind(
    config: &Config,
    inherited: &mut Inherited,
    workers: usize,
) -> Result<Vec<(String, Sockets)>> {
    config
        .listeners
        .iter()
        .map(|listener| Ok((listener.name.clone(), bind_one(config, listener, inherited, workers)?)))
        .collect()
}

/// Binds one listener.
pub(crate) fn bind_one(
    config: &Config,
    listener: &Listener,
    inherited: &mut Inherited,
    workers: usize,
) -> Result<Sockets> {
    let bound = match inherited.take(&listener.address) {
        Some(socket) => Sockets { sockets: vec![socket], file: None },
        None => bind_anew(listener, workers)?,
    };
    for socket in &bound.sockets {
        if let ListenSocket::Tcp(socket) = socket {
            notice_unreachable(SockRef::from(socket), config.general.connections.client_unreachable)
                .with_context(|| {
                    format!("listener \"{}\": setting timeouts.client_unreachable", listener.name)
                })?;
        }
    }
    Ok(bound)
}

/// Closes connections whose client has been unreachable for this long. Connections inherit the options of the
/// listening socket (tcp(7)), so no connection costs a system call.
fn notice_unreachable(socket: SockRef<'_>, after: Duration) -> io::Result<()> {
    // `TCP_USER_TIMEOUT` closes a connection whose probes get no reply, not their number.
    let keepalive = TcpKeepalive::new().with_time(after / 4).with_interval(after / 12);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(after))
}

fn bind_anew(listener: &Listener, workers: usize) -> Result<Sockets> {
    match &listener.address {
        BindAddress::Tcp(address) => {
            let sockets =
                spread(*address, workers).map_err(|error| explain(error, &listener.name, *address))?;
            Ok(Sockets { sockets: sockets.into_iter().map(ListenSocket::Tcp).collect(), file: None })
        }
        BindAddress::Unix(path) => {
            let (socket, file) = unix(path, listener.mode).with_context(|| {
                format!("listener \"{}\" cannot listen on unix:{}", listener.name, path.display())
            })?;
            Ok(Sockets { sockets: vec![ListenSocket::Unix(socket)], file: Some(file) })
        }
    }
}

/// A listening TCP socket.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bound(address, false)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// TCP sockets that listen on one address, over which the kernel distributes connections (`SO_REUSEPORT`, socket(7)).
fn spread(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // The first without the option: a process that already listens there must cause an error, even if it is another
    // gateway.
    let first = bound(address, false)?;
    first.set_reuse_port(true)?;
    // If the port is 0, the others need the selected one.
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(bound(address, true)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

fn bound(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a previous process in TIME-WAIT must not prevent listening.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn explain(error: io::Error, name: &str, address: SocketAddr) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "another process listens there: find it with `ss -ltnp 'sport = :{}'`, or choose another port",
                address.port()
            )
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: run under the systemd unit, or choose another port"
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => "see the error of the operating system".to_owned(),
    };
    anyhow::Error::new(error).context(format!("listener \"{name}\" cannot listen on {address}; {remedy}"))
}

fn unix(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let message = "the path exists and is not a socket; move the file, or configure another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        // The file of a dead process.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Bound under another name and renamed after its mode was set, so that it never has a wider one.
    let mut staging = path.as_os_str().to_owned();
    staging.push(".new");
    let staging = PathBuf::from(staging);
    remove(&staging)?;
    let listener = UnixListener::bind(&staging)?;
    std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(mode))?;
    let file = SocketFile::new(&staging, path, mode)?;
    std::fs::rename(&staging, path)?;
    Ok((listener, file))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_the_options_of_the_socket_that_they_are_accepted_from() {
        let listener = tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        notice_unreachable(SockRef::from(&listener), Duration::from_secs(120)).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(accepted.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_secs(120)));
    }
}
