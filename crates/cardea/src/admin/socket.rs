//! The Unix socket for changes of the running server: private from the start, bounded, one command at a time per
//! connection.

use std::{
    fs, io,
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cardea_gateway::{
    accepting::{self, Failed, Reserve},
    workers,
};
use nix::unistd::geteuid;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use zeroize::Zeroizing;

use super::{
    Control, execute,
    idle::IdleConnections,
    import::Staged,
    protocol::{AdminError, Answer, Code, REQUEST_BYTES_MAX, Reply, Request},
    tarpit,
};

/// The most connections. For another one, a connection is closed that waits for a request or the rest of one; while there is
/// none, it waits.
const CONNECTIONS_MAX: usize = 16;

/// How long a connection may be idle while no other needs its place, and how long sending a reply may take.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a request may take from its first byte to its last, and the first request from its connection. Programs
/// send a request at once, and a half-open connection must not block others.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the socket can't be bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// A server answers on it.
    #[error("a running server listens there; stop it first, or configure another socket")]
    InUse,
    /// Another file is in the way.
    #[error("the path exists and is not a socket; move the file, or configure another path")]
    NotASocket,
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// The listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that another server's socket is never removed.
    file: (u64, u64),
}

impl AdminSocket {
    /// Listens at `path`, with mode 0600. To be called on the runtime.
    ///
    /// The socket is created in a folder that nobody else can enter and renamed when its mode is set. So others can
    /// never connect, and the process's umask, which threads share, is not changed. The socket of a dead server is
    /// replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(crate) fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |what| move |source| SocketError::Io { what, source };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket),
            Ok(_) => {
                if is_answered(path).map_err(failed("connecting to it"))? {
                    return Err(SocketError::InUse);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("reading its metadata")(error)),
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let private = private_folder(folder).map_err(failed(
            "creating a private folder beside it (the server's user needs write permission)",
        ))?;
        let made = private.path().join("s");
        let listener = UnixListener::bind(&made).map_err(failed("binding"))?;
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(failed("setting its mode"))?;
        let metadata = fs::symlink_metadata(&made).map_err(failed("reading the new socket's metadata"))?;
        fs::rename(&made, path).map_err(failed("renaming the new socket"))?;
        Ok(Self { listener, path: path.to_owned(), file: (metadata.dev(), metadata.ino()) })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A folder that only its owner can enter; it is removed on drop. Its name is short, because the path of a socket has
/// at most 107 bytes.
fn private_folder(beside: &Path) -> io::Result<TempDir> {
    let mode = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(".").rand_bytes(6).permissions(mode).tempdir_in(beside)
}

/// Whether a server listens on the socket at `path`.
fn is_answered(path: &Path) -> io::Result<bool> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            // Its queue is full, so a server listens.
            io::ErrorKind::WouldBlock => Ok(true),
            _ => Err(error),
        },
    }
}

/// Serves the socket until this future is dropped.
pub(crate) async fn serve(socket: AdminSocket, control: Arc<dyn Control>) {
    let idle = Arc::<IdleConnections>::default();
    let mut connections = JoinSet::new();
    let mut reserve = Reserve::default();
    reserve.fill();
    loop {
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            Some(_) = connections.join_next() => {
                reserve.fill();
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                if connections.len() >= CONNECTIONS_MAX {
                    idle.want_place();
                    while connections.len() >= CONNECTIONS_MAX {
                        connections.join_next().await;
                    }
                    idle.got_place();
                }
                let (control, idle) = (Arc::clone(&control), Arc::clone(&idle));
                connections.spawn(async move {
                    if let Err(error) = connection(stream, control, &idle).await {
                        tracing::debug!(%error, "a connection to the admin socket ended");
                    }
                });
            }
            Err(error) => match control.failed_to_accept(socket.listener.as_fd(), &error) {
                Failed::OfOneConnection => {}
                Failed::Pause => {
                    tokio::select! {
                        Some(_) = connections.join_next() => {}
                        () = accepting::pause() => {}
                    }
                    reserve.fill();
                }
                Failed::Short if reserve.give() => {}
                Failed::Short => {
                    // A connection that is idle gives its descriptor.
                    idle.want_place();
                    tokio::select! {
                        Some(_) = connections.join_next() => {}
                        () = accepting::pause() => {}
                    }
                    idle.got_place();
                    reserve.fill();
                }
            },
        }
    }
}

/// The peer of a connection.
#[derive(Clone, Copy)]
struct Peer {
    uid: u32,
    pid: i32,
}

async fn connection(
    mut stream: UnixStream,
    control: Arc<dyn Control>,
    others: &IdleConnections,
) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let peer = Peer { uid: credentials.uid(), pid: credentials.pid().unwrap_or(0) };
    let (read, mut write) = stream.split();
    // The file's mode requires the same, but a mode can be changed, and a descriptor passed on.
    if !is_permitted(peer.uid, geteuid().as_raw()) {
        tracing::warn!(
            uid = peer.uid,
            pid = peer.pid,
            "a user without permission connected to the admin socket"
        );
        let refusal =
            AdminError::new(Code::Forbidden, "only the server's own user and root may use this socket");
        return send(&mut write, &Reply::Error(refusal)).await;
    }
    let mut reader = BufReader::new(read);
    let mut staged = Staged::default();
    let mut patience = REQUEST_TIMEOUT;
    loop {
        let line = if staged.is_begun() {
            // An import that pauses is not closed for another connection.
            receive(&mut reader, patience, || ()).await?
        } else {
            let waiting = others.enter();
            tokio::select! {
                biased;
                line = receive(&mut reader, patience, || waiting.begin()) => line?,
                () = waiting.has_to_close() => return Ok(()),
            }
        };
        patience = IDLE_TIMEOUT;
        if line.last() != Some(&b'\n') {
            if line.len() > REQUEST_BYTES_MAX {
                let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                send(&mut write, &Reply::Error(AdminError::new(Code::Malformed, message))).await?;
            }
            // The end, or a truncated request, whose meaning is uncertain.
            return Ok(());
        }
        let request = match serde_json::from_slice(&line) {
            Ok(request) => staged.take(request, line.len()),
            // Only its category, because the text could quote a secret.
            Err(error) => {
                let message = format!("not a request ({:?} error)", error.classify());
                Err(AdminError::new(Code::Malformed, message))
            }
        };
        let reply = match request {
            // A separate task: a command that has begun is finished even if its caller disconnects.
            Ok(Some(request)) => {
                let control = Arc::clone(&control);
                // If it is full, the progress to be sent is out of date.
                let (tell, mut told) = mpsc::channel(1);
                let mut task =
                    workers::spawn(async move { carry_out(request, &*control, &tell, peer).await });
                let done = loop {
                    tokio::select! {
                        biased;
                        Some(clients) = told.recv() => {
                            send(&mut write, &Reply::Progress { clients }).await?;
                        }
                        done = &mut task => break done,
                    }
                };
                done.unwrap_or_else(|_| {
                    Reply::Error(AdminError::new(Code::Failed, "the command was aborted"))
                })
            }
            Ok(None) => Reply::Ok(Answer::Done),
            Err(refusal) if staged.is_begun() => {
                // An incomplete import must not be treated as complete.
                return send(&mut write, &Reply::Error(refusal)).await;
            }
            Err(refusal) => Reply::Error(refusal),
        };
        send(&mut write, &reply).await?;
    }
}

/// Receives a line, or what there is of one. It is waited for with `patience`; its first bytes are `begun`.
async fn receive(
    reader: &mut (impl AsyncBufRead + Unpin),
    patience: Duration,
    begun: impl FnOnce(),
) -> io::Result<Zeroizing<Vec<u8>>> {
    timeout(patience, reader.fill_buf()).await??;
    begun();
    let mut line = Zeroizing::new(Vec::new());
    let bytes_max = u64::try_from(REQUEST_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    timeout(REQUEST_TIMEOUT, reader.take(bytes_max).read_until(b'\n', &mut line)).await??;
    Ok(line)
}

fn is_permitted(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

async fn send(write: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let mut line = Zeroizing::new(serde_json::to_vec(reply)?);
    line.push(b'\n');
    timeout(IDLE_TIMEOUT, write.write_all(&line)).await?
}

async fn carry_out(request: Request, control: &dyn Control, tell: &mpsc::Sender<usize>, peer: Peer) -> Reply {
    let command = request.command();
    let result = answer(request, control, tell).await;
    match &result {
        Ok(_) => tracing::info!(command, uid = peer.uid, pid = peer.pid, "admin command done"),
        Err(refusal) => tracing::warn!(
            command,
            uid = peer.uid,
            pid = peer.pid,
            code = ?refusal.code,
            message = %refusal.message,
            "admin command refused"
        ),
    }
    match result {
        Ok(answer) => Reply::Ok(answer),
        Err(refusal) => Reply::Error(refusal),
    }
}

async fn answer(
    request: Request,
    control: &dyn Control,
    tell: &mpsc::Sender<usize>,
) -> Result<Answer, AdminError> {
    match request {
        Request::Status => Ok(Answer::Status(Box::new(control.status().await))),
        Request::Reload => match control.reload().await {
            Ok(reloaded) => Ok(Answer::Reloaded(reloaded)),
            Err(error) => Err(AdminError::new(Code::Configuration, format!("{error:#}"))),
        },
        Request::Drain => {
            control.drain().await;
            Ok(Answer::Done)
        }
        Request::UpstreamList => Ok(Answer::Upstreams(control.upstreams())),
        Request::UpstreamExplain { service, key } => {
            control.explain_choice(&service, key.as_deref()).map(|choice| Answer::Choice(Box::new(choice)))
        }
        Request::UpstreamOverride { service, endpoint, to } => {
            control.override_endpoint(&service, &endpoint, to).await.map(Answer::Overridden)
        }
        Request::TarpitList => Ok(Answer::Held(control.held())),
        Request::TarpitRelease { address, issuer, subject } => {
            let which = tarpit::offender(address.as_deref(), issuer, subject)?;
            let requests = control.release(which.as_ref()) as u64;
            Ok(Answer::Released { requests })
        }
        Request::CertificateList => Ok(Answer::Certificates(control.certificates())),
        Request::CertificateRenew { host } => match control.renew_certificate(&host).await {
            Ok(true) => Ok(Answer::Done),
            Ok(false) => {
                let message = format!("no ACME certificate (acme = true) is configured for {host:?}");
                Err(AdminError::new(Code::NotFound, message))
            }
            Err(error) => Err(AdminError::new(Code::Failed, format!("{error:#}"))),
        },
        request => {
            let Some(issuer) = control.issuer() else {
                let message = "the running gateway has no [authorization_server] in its configuration";
                return Err(AdminError::new(Code::NoAuthorizationServer, message));
            };
            let (changes_keys, revokes) = (request.changes_keys(), request.revokes());
            let progress = |clients| _ = tell.try_send(clients);
            let result = execute(&issuer, request, &progress, control.now()).await;
            if revokes {
                control.settle_streams().await;
            }
            if changes_keys {
                // Even after a failure midway, the keys may have changed.
                control
                    .keys_changed()
                    .map_err(|error| AdminError::new(Code::Failed, format!("{error:#}")))?;
            }
            result
        }
    }
}

#[cfg(test)]
mod tests;
