//! Errors that are the gateway's own fault: the process or the machine has no descriptors, ports or memory left.
//!
//! They say nothing of the endpoint or the client that they were met with.

use std::{io, net::SocketAddr};

use cardea_clock::Mono;
use nix::errno::Errno;

use crate::warning_limit::WarningLimit;

/// What there is none left of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// File descriptors, of the process or of the system.
    Descriptors,
    /// Local ports for connections to one address.
    Ports,
    /// Memory of the kernel.
    Memory,
}

impl Shortage {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Descriptors, Self::Ports, Self::Memory];

    /// The name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Ports => "ports",
            Self::Memory => "memory",
        }
    }

    /// What the operator can do.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Descriptors => {
                "raise the limit of open descriptors (LimitNOFILE= of systemd, ulimit -n), or lower \
                 limits.connections_max"
            }
            Self::Ports => {
                "widen net.ipv4.ip_local_port_range, or give the service more endpoints: each address has its own ports"
            }
            Self::Memory => "give the machine more memory, or lower limits.connections_max",
        }
    }

    /// The shortage behind an error of a system call (connect(2), accept(2), socket(2), epoll_ctl(2)).
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        Some(match Errno::from_raw(error.raw_os_error()?) {
            Errno::EMFILE | Errno::ENFILE => Self::Descriptors,
            Errno::ENOBUFS | Errno::ENOMEM | Errno::ENOSPC => Self::Memory,
            _ => return None,
        })
    }

    /// The shortage behind an error of connect(2) over TCP to `address`.
    ///
    /// Where no port is left, it says `EADDRNOTAVAIL` or `EAGAIN`; over a Unix socket the latter means that the other side
    /// does not accept. `EADDRNOTAVAIL` also means that this machine has no address to connect from, as where there is no
    /// IPv6. Then datagrams can't be sent there either, for which ports are counted apart.
    pub(crate) fn of_tcp_connect(error: &io::Error, address: SocketAddr) -> Option<Self> {
        match Errno::from_raw(error.raw_os_error()?) {
            Errno::EAGAIN => Some(Self::Ports),
            Errno::EADDRNOTAVAIL => has_address_for(address).then_some(Self::Ports),
            _ => Self::of(error),
        }
    }
}

/// Whether this machine has an address from which `address` can be reached. Nothing is sent.
fn has_address_for(address: SocketAddr) -> bool {
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::DGRAM, None)?;
        socket.connect(&address.into())
    };
    connect().is_ok()
}

/// The warnings of shortages.
#[derive(Debug, Default)]
pub(crate) struct ShortageWarnings {
    of_system: [WarningLimit; Shortage::ALL.len()],
    buffers: WarningLimit,
}

impl ShortageWarnings {
    /// Tells the operator of a shortage.
    pub(crate) fn tell(&self, shortage: Shortage, operation: &'static str, closed: usize, now: Mono) {
        let limit = self.of_system.get(shortage as usize);
        if let Some(suppressed) = limit.and_then(|limit| limit.admit(now)) {
            let made_room = if closed > 0 { "; idle connections were closed to make room" } else { "" };
            tracing::warn!(
                shortage = shortage.as_str(),
                operation,
                closed,
                suppressed,
                remedy = shortage.remedy(),
                "a limit of the system is reached{made_room}"
            );
        }
    }

    /// Tells the operator that more is held for messages under way than may be.
    pub(crate) fn tell_of_buffers(&self, held: usize, ended: usize, now: Mono) {
        if let Some(suppressed) = self.buffers.admit(now) {
            tracing::warn!(
                held,
                ended,
                suppressed,
                "limits.buffered_bytes_max is reached; the connections that have held the most for the longest are closed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_shortages_are_distinguished_from_endpoint_failures() {
        let here = SocketAddr::from(([127, 0, 0, 1], 9));
        let of = |errno: Errno| Shortage::of_tcp_connect(&io::Error::from_raw_os_error(errno as i32), here);
        for errno in [Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(of(errno), Some(Shortage::Descriptors));
        }
        for errno in [Errno::EADDRNOTAVAIL, Errno::EAGAIN] {
            assert_eq!(of(errno), Some(Shortage::Ports));
        }
        for errno in [Errno::ENOBUFS, Errno::ENOMEM, Errno::ENOSPC] {
            assert_eq!(of(errno), Some(Shortage::Memory));
        }
        for errno in
            [Errno::ECONNREFUSED, Errno::ETIMEDOUT, Errno::EHOSTUNREACH, Errno::EACCES, Errno::ENOENT]
        {
            assert_eq!(of(errno), None, "{errno}");
        }
        let unavailable = io::Error::from_raw_os_error(Errno::EADDRNOTAVAIL as i32);
        // A link-local address without its link: there is no way there, whatever addresses this machine has.
        let nowhere: SocketAddr = "[fe80::1]:9".parse().unwrap();
        assert_eq!(Shortage::of_tcp_connect(&unavailable, nowhere), None, "no address to connect from");
        let busy = io::Error::from_raw_os_error(Errno::EAGAIN as i32);
        assert_eq!(Shortage::of(&busy), None, "of a Unix socket, it is the other side's");
    }
}
