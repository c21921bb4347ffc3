//! Accepts connections: PROXY protocol, TLS handshake, then the driver of the protocol that was negotiated.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    task::Poll,
};

use cardea_clock::Mono;
use cardea_guard::{AddressPrefix, ConnectionPermit, Counted, Handshake, TooMany};
use cardea_http::proxy_protocol::{self, ProxyHeader};
use cardea_tls::{HandshakeFacts, ServerTls};
use rustls::server::ClientHello;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

use crate::{
    accepting::{self, ACCEPT_PAUSE, Failed},
    buffer::Buffer,
    connections::Activity,
    exchange::{ConnectionFacts, Origin},
    gateway::Gateway,
    h1, h2,
    memory::charged,
    model::{ListenerModel, ProxyProtocol},
    preface::{self, Begun},
    streams,
    timer::Timer,
    transport::{Socket, TlsTransport, Transport, accept_by_greeting},
    warning_limit::WarningLimit,
    workers::{self, Workers},
};

/// Connections of one worker's sockets that have no permit yet. Beyond them, new ones wait in the kernel's queue.
const WAITING_MAX: usize = 256;

/// A socket that listens, not yet handed to a worker.
#[derive(Debug)]
pub enum ListenSocket {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
}

impl ListenSocket {
    /// The address that is listened on, where it is a TCP one.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Makes it one of the runtime that this is called within.
    fn register(self) -> io::Result<Registered> {
        Ok(match self {
            Self::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Registered::Tcp(TcpListener::from_std(listener)?)
            }
            Self::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Registered::Unix(UnixListener::from_std(listener)?)
            }
        })
    }
}

/// A socket that a worker watches.
enum Registered {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Registered {
    async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(tcp, peer)| (Socket::Tcp(tcp), Some(peer))),
            Self::Unix(listener) => listener.accept().await.map(|(unix, _)| (Socket::Unix(unix), None)),
        }
    }
}

impl AsFd for Registered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connection that was accepted.
struct Accepted {
    socket: Socket,
    peer: Option<SocketAddr>,
    /// The worker that it was accepted on.
    worker: usize,
}

impl Accepted {
    /// The socket as one of this worker's.
    fn registered(self) -> io::Result<Socket> {
        let socket =
            if self.worker == workers::current() { self.socket } else { self.socket.moved_here()? };
        if let Socket::Tcp(tcp) = &socket {
            let _ = tcp.set_nodelay(true);
        }
        Ok(socket)
    }
}

/// A listener that accepts.
#[derive(Debug)]
pub struct Serving(Vec<JoinHandle<()>>);

impl Serving {
    /// Accepts nothing more and closes the sockets; what was accepted goes on.
    pub fn stop(&self) {
        self.0.iter().for_each(JoinHandle::abort);
    }

    /// Returns once nothing is accepted any more.
    pub async fn ended(&mut self) {
        for acceptor in &mut self.0 {
            // An error means that it was stopped.
            let _ = acceptor.await;
        }
    }
}

/// The sockets of one listener, each watched by a worker of its own; nothing is accepted yet.
pub struct Watched(Vec<Registered>);

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("sockets", &self.0.len()).finish()
    }
}

/// Has `sockets`, which share an address, watched by the workers: all that can fail before a listener serves.
///
/// # Errors
/// If the operating system can't watch a socket. All of them are closed then.
pub fn watch(workers: &Workers, sockets: Vec<ListenSocket>) -> io::Result<Watched> {
    let watch = |(worker, socket): (usize, ListenSocket)| {
        let _entered = workers.runtime(worker).enter();
        socket.register()
    };
    Ok(Watched(sockets.into_iter().enumerate().map(watch).collect::<io::Result<_>>()?))
}

impl Watched {
    /// Accepts connections for the listener called `name` until the gateway stops. Where all listeners together have as many
    /// as they may have, `WAITING_MAX` new connections of each socket wait, and others in the kernel's queue.
    pub fn serve(self, gateway: &Arc<Gateway>, workers: &Arc<Workers>, name: &str) -> Serving {
        workers.overseer().spawn(workers::vital(streams::watch(Arc::downgrade(gateway))));
        let spawn = |(worker, socket)| {
            let acceptor = Acceptor {
                gateway: Arc::clone(gateway),
                workers: Arc::clone(workers),
                worker,
                name: name.to_owned(),
                waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            };
            workers.runtime(worker).spawn(workers::vital(async move {
                tokio::select! {
                    () = acceptor.accept_all(&socket) => {}
                    () = acceptor.gateway.stopping() => {}
                }
            }))
        };
        Serving(self.0.into_iter().enumerate().map(spawn).collect())
    }
}

/// Accepts on one worker.
struct Acceptor {
    gateway: Arc<Gateway>,
    workers: Arc<Workers>,
    worker: usize,
    name: String,
    /// For connections that were accepted and are not served yet.
    waiting: Arc<Semaphore>,
}

impl Acceptor {
    async fn accept_all(&self, socket: &Registered) {
        loop {
            let (socket, peer) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    match self.gateway.failed_to_accept(&self.name, socket, &error) {
                        Failed::OfOneConnection => {}
                        Failed::Pause | Failed::Short => accepting::pause().await,
                    }
                    continue;
                }
            };
            let Ok(waiting) = Arc::clone(&self.waiting).acquire_owned().await else { return };
            self.begin(Accepted { socket, peer, worker: self.worker }, waiting);
        }
    }

    fn begin(&self, accepted: Accepted, waiting: OwnedSemaphorePermit) {
        self.gateway.metrics.connection_attempts.increment();
        // A reload may have changed or removed the listener's model.
        let Some(listener) = self.gateway.model().listeners.get(&self.name).cloned() else { return };
        let gateway = Arc::clone(&self.gateway);
        let place = self.workers.place(self.worker);
        let entry = Box::new((accepted, waiting));
        place.runtime().spawn(async move {
            let activity = Arc::<Activity>::default();
            let guard = std::future::poll_fn(|cx| {
                Poll::Ready(gateway.enter(cx.waker().clone(), Arc::clone(&activity)))
            })
            .await;
            let account = Arc::clone(activity.account());
            charged(account, connect(Arc::clone(&gateway), listener, entry, activity)).await;
            drop(guard);
            drop(place);
        });
    }
}

/// The permit to serve a connection. Where there is none, the connection that has been idle for the longest is closed; where
/// none is idle, this waits, and the connection keeps its place among those that wait. To be asked only for a connection that
/// may come in: what it may not would cost others theirs.
async fn permit(gateway: &Gateway, place: OwnedSemaphorePermit) -> Option<ConnectionPermit> {
    let permits = &gateway.connection_permits;
    let permit = loop {
        if let Some(permit) = permits.try_take() {
            break Some(permit);
        }
        if gateway.is_stopping() {
            break None;
        }
        gateway.make_room();
        if let Ok(permit) = tokio::time::timeout(ACCEPT_PAUSE, permits.take()).await {
            break permit;
        }
    };
    drop(place);
    permit
}

/// Counts a connection against the limits of new connections and of the prefix that its client connects from. What it returns
/// is that address, none for a trusted proxy, and what is held to the end of the connection.
fn admit(gateway: &Gateway, facts: &ConnectionFacts, now: Mono) -> Option<(Option<IpAddr>, Counted)> {
    let model = gateway.model();
    // Trusted proxies are exempt from the limits of addresses, also where the PROXY protocol names no client: such a
    // connection may be the proxy's health check.
    let is_proxy = |address: IpAddr| model.trusted_proxies.iter().any(|prefix| prefix.contains(address));
    let from = facts.client().map(|client| client.ip()).filter(|address| !is_proxy(*address));
    let excess = &gateway.metrics.excess;
    if gateway.connection_rates.admit(from, model.limits.new_connections_per_second_max, now).is_err() {
        excess.new_connections_per_second.increment();
        return None;
    }
    let of_prefix = model.limits.connections_per_prefix();
    let under_pressure = gateway.pressure.connections_per_prefix(of_prefix);
    let Ok(share) = gateway.connection_shares.enter(from, under_pressure) else {
        let is_pressure = under_pressure < of_prefix;
        if is_pressure { &excess.pressure } else { &excess.connections_per_prefix }.increment();
        return None;
    };
    if let Some(from) = from {
        facts.activity.account().set_prefix(AddressPrefix::of(from));
    }
    Some((from, share))
}

/// Takes a connection through its beginnings and serves it.
async fn connect(
    gateway: Arc<Gateway>,
    listener: Arc<ListenerModel>,
    entry: Box<(Accepted, OwnedSemaphorePermit)>,
    activity: Arc<Activity>,
) {
    let (accepted, place) = *entry;
    let mut timer = Timer::new(gateway.clock.clone());
    let peer = accepted.peer;
    let mut socket = match accepted.registered() {
        Ok(socket) => socket,
        Err(error) => {
            let _ = gateway.note_accept_failure(&listener.name, &error);
            return;
        }
    };
    let mut facts = ConnectionFacts {
        listener: Arc::clone(&listener),
        peer,
        local: match &socket {
            Socket::Tcp(tcp) => tcp.local_addr().ok(),
            Socket::Unix(_) => None,
        },
        origin: Origin::Peer,
        tls: None,
        token: Mutex::default(),
        activity,
    };
    let mut inbound = Buffer::new();
    if let Some(expected) = &listener.proxy_protocol
        && !attribute(&gateway, expected, &mut socket, &mut inbound, &mut facts, &mut timer).await
    {
        return;
    }
    // The share is held to the end of the connection.
    let Some((from, _share)) = admit(&gateway, &facts, timer.now()) else { return };
    // Boxed, since it is over at once for nearly all.
    let Some(_permit) = Box::pin(permit(&gateway, place)).await else { return };
    let (transport, inbound, begun) = match &listener.tls {
        None => {
            let mut transport = socket.into_plain();
            let begun = if listener.h2c {
                let recognise =
                    preface::recognise(&gateway, &mut transport, &mut inbound, &facts.activity, timer);
                Box::pin(recognise).await
            } else {
                Some(Begun::Http1)
            };
            let Some(begun) = begun else { return };
            (transport, inbound, begun)
        }
        Some(tls) => {
            // Boxed, since a connection is idle for longer than it shakes hands.
            let secured = Box::pin(secure(&gateway, socket, tls, inbound, from, &mut facts, timer)).await;
            let Some(transport) = secured else { return };
            let shaken = facts.tls.as_ref();
            if let Some(tls) = shaken {
                gateway.metrics.handshake(tls.resumed);
            }
            let speaks_h2 = shaken.is_some_and(|tls| tls.alpn == Some("h2"));
            let begun = if speaks_h2 { Begun::Http2 } else { Begun::Http1 };
            (Transport::Tls(transport), Buffer::new(), begun)
        }
    };
    let (metrics, facts) = (Arc::clone(&listener.metrics), Arc::new(facts));
    match begun {
        Begun::Http1 => {
            let _open = metrics.http1.enter(gateway.metrics.registry());
            h1::serve(gateway, transport, inbound, facts).await;
        }
        Begun::Http2 => {
            let _open = metrics.http2.enter(gateway.metrics.registry());
            // Boxed, so that connections of HTTP/1.1 do not pay for its size.
            Box::pin(h2::serve(gateway, transport, inbound, facts)).await;
        }
    }
}

/// Learns from the PROXY header whom the peer stands for; `false` where it may not say so, or does not.
async fn attribute(
    gateway: &Gateway,
    expected: &ProxyProtocol,
    socket: &mut Socket,
    inbound: &mut Buffer,
    facts: &mut ConnectionFacts,
    timer: &mut Timer,
) -> bool {
    let (listener, peer) = (&facts.listener.name, facts.peer);
    if !is_trusted(expected, peer) {
        // What it says of its address would be its own word, and the address of a client behind a balancer that is not
        // configured would be the balancer's.
        gateway.metrics.proxy_peers_refused.increment();
        report_refused_peer(listener, peer, gateway.clock.mono());
        return false;
    }
    let deadline = timer.now().saturating_add(gateway.connection_timeouts().tls_handshake);
    let Some(header) = read_proxy_header(socket, inbound, expected, timer, deadline).await else {
        gateway.metrics.proxy_header_failures.increment();
        tracing::debug!(%listener, ?peer, "invalid or missing PROXY header");
        return false;
    };
    apply(&header, facts);
    true
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("closed in favour of another connection")]
    Evicted,
    #[error("it took too long")]
    TimedOut,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Transport(#[from] io::Error),
}

/// The handshake within the limits for handshakes, noted in metrics and facts. None where the connection has ended.
async fn secure(
    gateway: &Gateway,
    socket: Socket,
    tls: &ServerTls,
    early: Buffer,
    from: Option<IpAddr>,
    facts: &mut ConnectionFacts,
    mut timer: Timer,
) -> Option<Box<TlsTransport>> {
    let (metrics, excess) = (&gateway.metrics, &gateway.metrics.excess);
    let Ok(mut handshake) = begin_handshake(gateway, from, timer.now()) else {
        excess.handshakes_per_prefix.increment();
        return None;
    };
    // What the connection has waited for others to go is no time of its own.
    let deadline = timer.now().saturating_add(gateway.connection_timeouts().tls_handshake);
    let listener = Arc::clone(&facts.listener);
    let _shaking_hands = listener.metrics.handshaking.enter(metrics.registry());
    let shaken = {
        let mut shaking = std::pin::pin!(shake_hands(gateway, socket, tls, early, &mut facts.tls));
        let either = std::future::poll_fn(|cx| match handshake.poll_evicted(cx) {
            Poll::Ready(()) => {
                excess.handshakes.increment();
                Poll::Ready(Err(HandshakeError::Evicted))
            }
            Poll::Pending => shaking.as_mut().poll(cx),
        });
        timer.until(deadline, either).await.unwrap_or(Err(HandshakeError::TimedOut))
    };
    let (listener, peer) = (&listener.name, facts.peer);
    match shaken {
        Ok(None) => None,
        Ok(Some(tls)) => {
            tracing::debug!(%listener, ?peer, facts = ?facts.tls, "TLS handshake completed");
            Some(tls)
        }
        Err(error) => {
            metrics.handshake_failures.increment();
            tracing::debug!(%listener, ?peer, %error, "TLS handshake failed");
            None
        }
    }
}

fn begin_handshake(gateway: &Gateway, from: Option<IpAddr>, now: Mono) -> Result<Handshake, TooMany> {
    let limits = &gateway.model().limits;
    gateway.handshakes.begin(from, limits.handshakes_max, limits.handshakes_per_prefix_max, now)
}

/// The handshake, by the configuration for the name that the client asks for. Where an authority asks for the answer to a
/// challenge, the connection ends with it (RFC 8737 §3), and there is none.
async fn shake_hands(
    gateway: &Gateway,
    socket: Socket,
    tls: &ServerTls,
    early: Buffer,
    facts: &mut Option<HandshakeFacts>,
) -> Result<Option<Box<TlsTransport>>, HandshakeError> {
    let mut is_challenge = false;
    let mut transport = Box::new(if tls.asks_by_name() || gateway.challenges.has_tls() {
        let choose = |hello: &ClientHello<'_>| match gateway.challenges.handshake(hello) {
            Some(answer) => {
                tracing::info!(host = hello.server_name(), "an ACME authority requests a TLS challenge");
                is_challenge = true;
                answer
            }
            None => tls.config_for(hello.server_name()),
        };
        accept_by_greeting(socket, choose, early).await?
    } else {
        TlsTransport::server(socket, tls.config(), early)?
    });
    std::future::poll_fn(|cx| transport.poll_negotiated(cx)).await?;
    if is_challenge {
        std::future::poll_fn(|cx| transport.poll_shutdown(cx)).await?;
        return Ok(None);
    }
    // Before anything more is sent: a client whose certificate no longer holds must not get another ticket.
    let session = transport.server_session().ok_or_else(|| io::Error::from(io::ErrorKind::Other))?;
    *facts = Some(tls.handshake_facts(session).map_err(io::Error::other)?);
    std::future::poll_fn(|cx| transport.poll_flush(cx)).await?;
    Ok(Some(transport))
}

/// Tells of a peer that may not speak the PROXY protocol. Anybody can connect, so warnings are limited; a metric counts all.
fn report_refused_peer(listener: &str, peer: Option<SocketAddr>, now: Mono) {
    static WARNINGS: WarningLimit = WarningLimit::new();
    match WARNINGS.admit(now) {
        Some(suppressed) => {
            tracing::warn!(listener, ?peer, suppressed, "a peer outside proxy_protocol_from was refused");
        }
        None => tracing::debug!(listener, ?peer, "a peer outside proxy_protocol_from was refused"),
    }
}

fn is_trusted(expected: &ProxyProtocol, peer: Option<SocketAddr>) -> bool {
    // The peer of a Unix socket has the permission to write to it: that is its trust.
    peer.is_none_or(|peer| expected.trusted.iter().any(|prefix| prefix.contains(peer.ip())))
}

/// Reads the header that must come first. What follows it stays in `inbound`.
async fn read_proxy_header(
    socket: &mut Socket,
    inbound: &mut Buffer,
    expected: &ProxyProtocol,
    timer: &mut Timer,
    deadline: Mono,
) -> Option<ProxyHeader> {
    let read = std::future::poll_fn(|cx| {
        loop {
            if !inbound.is_empty() {
                let v2 = inbound.filled().first() == Some(&b'\r');
                if !(if v2 { expected.v2 } else { expected.v1 }) {
                    return Poll::Ready(None);
                }
                match proxy_protocol::decode(inbound.filled()) {
                    Ok(Some((consumed, header))) => {
                        inbound.consume(consumed);
                        return Poll::Ready(Some(header));
                    }
                    Ok(None) if !inbound.is_full() => {}
                    Ok(None) | Err(_) => return Poll::Ready(None),
                }
            }
            match std::task::ready!(socket.poll_recv(cx, inbound)) {
                Ok(count) if count > 0 => {}
                _ => return Poll::Ready(None),
            }
        }
    });
    timer.until(deadline, read).await.ok().flatten()
}

fn apply(header: &ProxyHeader, facts: &mut ConnectionFacts) {
    match header {
        ProxyHeader::Proxied { source, destination } => {
            facts.origin = Origin::Client(*source);
            facts.local = Some(*destination);
        }
        // A health check, or somebody whose address the proxy does not tell.
        ProxyHeader::Local | ProxyHeader::Unix => facts.origin = Origin::Unattributed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every idle connection costs beside its socket and its TLS session.
    #[test]
    fn a_connections_future_is_small() {
        fn size<F: Future>(
            _: impl FnOnce(
                Arc<Gateway>,
                Arc<ListenerModel>,
                Box<(Accepted, OwnedSemaphorePermit)>,
                Arc<Activity>,
            ) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let bytes = size(connect);
        println!("{bytes} bytes");
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
