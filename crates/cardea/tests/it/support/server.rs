//! A gateway that runs: where it listens, and what it says.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    sync::Arc,
};

use nix::sys::signal::Signal;
use rustls::ClientConfig;
use serde_json::Value;

use super::{Connection, Folder, Program, WAIT_MAX, cardea, until};

/// A running gateway of a [`Folder`].
pub(crate) struct Server {
    pub(crate) program: Program,
    /// Of the listener `https`.
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Server {
    /// Starts a gateway, and waits until it is ready.
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::of(folder.start(), folder)
    }

    /// Starts it on a socket that is open already, passed in the way of systemd: as descriptor 3, counted in
    /// `LISTEN_FDS`.
    pub(crate) fn start_on(folder: &Folder, socket: &TcpListener) -> Self {
        let wanted = cardea(folder.path(), &[]);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" run --config cardea.toml")
            .arg(wanted.get_program())
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap())));
        Self::of(Program::start(&mut command), folder)
    }

    /// Starts it with no more descriptors than so many.
    pub(crate) fn start_with_descriptors(folder: &Folder, count: u64) -> Self {
        let wanted = cardea(folder.path(), &[]);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -n {count}; exec \"$0\" run --config cardea.toml"))
            .arg(wanted.get_program())
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        Self::of(Program::start(&mut command), folder)
    }

    fn of(program: Program, folder: &Folder) -> Self {
        let address = |message: &'static str| {
            program.stderr.find(message, 0, |line| {
                let line: Value = serde_json::from_str(line).ok()?;
                let fields = &line["fields"];
                let is_it = fields["message"] == message;
                is_it.then(|| fields["address"].as_str().unwrap().parse().unwrap())
            })
        };
        let (address, admin) = (address("listening"), address("the admin listener serves"));
        let this = Self { program, address, admin, tls: folder.client_config() };
        until("readiness", || (this.ready().0 == 200).then_some(()));
        this
    }

    /// Where the listener of this name listens.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        self.program.stderr.find(name, 0, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let fields = &line["fields"];
            let is_it = fields["message"] == "listening" && fields["listener"] == name;
            is_it.then(|| fields["address"].as_str().unwrap().parse().unwrap())
        })
    }

    /// Connects with TLS.
    pub(crate) fn connect(&self) -> Connection {
        Connection::tls(self.address, &self.tls).unwrap()
    }

    /// The status and the text of `/ready`.
    pub(crate) fn ready(&self) -> (u16, String) {
        let mut admin = Connection::plain(self.admin).unwrap();
        admin.send(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let answer = admin.answer().unwrap().unwrap();
        (answer.status, answer.text())
    }

    /// Makes it read its configuration again by SIGHUP, and waits until it has: the line in which it says what
    /// came of it, and whether that was good.
    pub(crate) fn reload(&self) -> (bool, String) {
        let from = self.program.stderr.len();
        self.program.signal(Signal::SIGHUP);
        self.program.stderr.find("the end of a reload", from, |line| {
            let good = line.contains("configuration reloaded");
            (good || line.contains("was not reloaded")).then(|| (good, line.to_owned()))
        })
    }

    /// Ends it as systemd does, and waits until it is gone.
    pub(crate) fn stop(mut self) {
        self.program.signal(Signal::SIGTERM);
        assert_eq!(self.program.wait(), Some(0));
        let from_drain = self.program.stderr.text();
        let (_, from_drain) = from_drain.split_once("draining").unwrap();
        assert!(!from_drain.contains("ERROR") && !from_drain.contains("WARN"), "{from_drain}");
    }
}

/// Asks over the admin socket of a gateway of `folder`, as the command line does.
pub(crate) fn ask(folder: &Folder, request: &str) -> Value {
    let mut stream = UnixStream::connect(folder.file("admin.sock")).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    serde_json::from_str(&reply).unwrap()
}
