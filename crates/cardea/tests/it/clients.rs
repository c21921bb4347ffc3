//! Clients of the authorization server: what was acknowledged holds, whatever happens to the process.

use std::{
    io::{BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
};

use nix::sys::signal::Signal;

use crate::support::{
    Connection, Folder, Server, WAIT_MAX, client::HOST, folder::Settings, until, wire::read_head,
};

/// A token of a client that may have one.
fn token(connection: &mut Connection, client: &(String, String)) -> String {
    let answer = connection.token(&client.0, &client.1).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.member("access_token").unwrap()
}

#[test]
fn a_disabled_client_is_refused_on_the_very_next_request() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let mode = std::fs::metadata(folder.file("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = folder.create_client("billing");
    let mut connection = server.connect();
    let old = token(&mut connection, &client);
    assert_eq!(connection.get_with_token("/private", &old).unwrap().text(), "come in");
    assert_eq!(connection.get_with_token("/write", &old).unwrap().status, 403);

    let ran = folder.run(&["client", "disable", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let refused = connection.get_with_token("/private", &old).unwrap();
    assert_eq!((refused.status, refused.member("code").as_deref()), (401, Some("token_revoked")));
    assert!(refused.head.field("www-authenticate").unwrap().contains("invalid_token"));
    let refused = connection.token(&client.0, &client.1).unwrap();
    assert_eq!((refused.status, refused.member("error").as_deref()), (401, Some("invalid_client")));

    let ran = folder.run(&["client", "enable", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let fresh = token(&mut connection, &client);
    assert_eq!(connection.get_with_token("/private", &fresh).unwrap().status, 200);
    let refused = connection.get_with_token("/private", &old).unwrap();
    assert_eq!(refused.status, 401, "what was revoked stays so");

    let ran = folder.run(&["client", "delete", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(connection.get_with_token("/private", &fresh).unwrap().status, 401);
    assert_eq!(connection.token(&client.0, &client.1).unwrap().status, 401);
    let ran = folder.run(&["client", "show", &client.0]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    server.stop();
    assert!(!folder.file("admin.sock").exists(), "the socket goes with the server");
}

#[test]
fn without_a_server_the_command_line_changes_the_database() {
    let folder = Folder::new(&Settings::default());
    let ran = folder.run(&["client", "create", "billing", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("no gateway responds"), "{ran:?}");
    let client = folder.create_client("shipping");
    let other = folder.create_client("invoices");

    let server = Server::start(&folder);
    let mut connection = server.connect();
    let (old, kept) = (token(&mut connection, &client), token(&mut connection, &other));
    assert_eq!(connection.get_with_token("/private", &old).unwrap().status, 200);
    server.stop();

    let ran = folder.run(&["client", "disable", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get_with_token("/private", &old).unwrap().status, 401);
    assert_eq!(connection.token(&client.0, &client.1).unwrap().status, 401);
    assert_eq!(connection.get_with_token("/private", &kept).unwrap().status, 200, "tokens outlive a restart");
    let ran = folder.run(&["client", "list", "--json"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 3, "{ran:?}");
    server.stop();
}

#[test]
fn every_acknowledged_client_survives_a_kill() {
    let folder = Arc::new(Folder::new(&Settings::default()));
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let (mut checked, mut disabled) = (0, Vec::new());
    for round in 0..10 {
        let mut server = Server::start(&folder);
        let stop = Arc::new(AtomicBool::new(false));
        let creators: Vec<_> = (0..3)
            .map(|creator| {
                let (folder, stop) = (Arc::clone(&folder), Arc::clone(&stop));
                let acknowledged = Arc::clone(&acknowledged);
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        let name = format!("client {round}.{creator}");
                        let ran = folder.run(&["client", "create", &name, "--scope", "read", "--json"]);
                        // Those that were under way when the server was killed may fail; then they count for nothing.
                        if ran.code == Some(0) {
                            let created = ran.json();
                            let member = |name: &str| created[name].as_str().unwrap().to_owned();
                            let client = (member("client_id"), member("client_secret"));
                            acknowledged.lock().unwrap().push(client);
                        }
                    }
                })
            })
            .collect();
        until("clients", || (acknowledged.lock().unwrap().len() >= checked + 2 + round % 3).then_some(()));
        // Nor is a refusal forgotten that was acknowledged a moment before.
        let refused = acknowledged.lock().unwrap()[checked].clone();
        let ran = folder.run(&["client", "disable", &refused.0]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        server.program.signal(Signal::SIGKILL);
        stop.store(true, Relaxed);
        assert_eq!(server.program.wait(), None);
        creators.into_iter().for_each(|creator| creator.join().unwrap());

        let server = Server::start(&folder);
        let mut connection = server.connect();
        let all = acknowledged.lock().unwrap().clone();
        for client in &all[checked..] {
            if *client == refused {
                assert_eq!(connection.token(&client.0, &client.1).unwrap().status, 401);
            } else {
                token(&mut connection, client);
            }
        }
        disabled.push(refused);
        checked = all.len();
        // The server waits a little for those who do not hang up.
        drop(connection);
        server.stop();
    }
    // Nor does a later kill take what an earlier one left.
    let server = Server::start(&folder);
    let mut connection = server.connect();
    for client in acknowledged.lock().unwrap().iter().filter(|client| !disabled.contains(client)) {
        token(&mut connection, client);
    }
    assert!(checked >= 20, "{checked}");
    server.stop();
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// A text frame with the message `hi` (RFC 6455 §5.2). It is masked with zeros.
const MESSAGE: [u8; 8] = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];

/// Opens a WebSocket at each connection, and tells what comes in it; an empty piece at its end.
fn start_websockets() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                read_head(&mut reader).unwrap().unwrap();
                stream.write_all(SWITCHING.as_bytes()).unwrap();
                let mut piece = [0; 1024];
                loop {
                    let count = reader.read(&mut piece).unwrap_or(0);
                    if tell.send(piece[..count].to_vec()).is_err() || count == 0 {
                        return;
                    }
                }
            });
        }
    });
    (address, told)
}

#[test]
fn a_websocket_carries_nothing_more_once_its_client_is_disabled_or_deleted() {
    let (address, told) = start_websockets();
    let more = format!(
        "\n[[service]]\nname = \"chat\"\n\n[[service.endpoint]]\naddress = \"{address}\"\n\n\
         [[route]]\nname = \"chat\"\npath = \"/chat\"\nauth = {{ issuer = \"own\", scopes = [\"read\"] }}\nservice = \"chat\"\n"
    );
    let folder = Folder::new(&Settings { more, ..Settings::with_cheap_hashes() });
    let server = Server::start(&folder);
    for command in ["disable", "delete"] {
        for round in 0..3 {
            let client = folder.create_client(&format!("{command}-{round}"));
            let mut connection = server.connect();
            let token = token(&mut connection, &client);
            let head = format!(
                "GET /chat HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n{UPGRADE}\r\n"
            );
            connection.send(head.as_bytes()).unwrap();
            assert!(connection.head().unwrap().unwrap().first.contains(" 101 "));
            connection.send(&MESSAGE).unwrap();
            assert_eq!(told.recv_timeout(WAIT_MAX).unwrap(), MESSAGE, "the control");
            let ran = folder.run(&["client", command, &client.0]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            // The gateway may have closed the connection already.
            let _ = connection.send(&MESSAGE);
            let rest: Vec<u8> = told.iter().take_while(|piece| !piece.is_empty()).flatten().collect();
            // A close frame of the gateway, and no message.
            assert!(rest.first().is_none_or(|first| *first == 0x88), "{rest:?}");
            assert!(!rest.ends_with(b"hi"), "{rest:?}");
        }
    }
    server.stop();
}
