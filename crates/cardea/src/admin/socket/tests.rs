//! The admin socket: its owner, accepted and refused requests.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener as StdListener, UnixStream as StdStream},
    sync::atomic::Ordering::SeqCst,
};

use super::*;
use crate::admin::{
    Connection,
    protocol::{Key, Sensitive},
    testing::{Fake, Fixture, clock},
};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn the_socket_is_private_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(mode(private_folder(folder.path()).unwrap().path()), 0o700, "where it is made");
    let path = folder.path().join("admin.sock");
    let socket = AdminSocket::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the socket alone");
    assert!(StdStream::connect(&path).is_ok());
    drop(socket);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    drop(StdListener::bind(&path).unwrap());
    assert!(path.exists(), "a listener of the standard library leaves its file behind");
    let live = AdminSocket::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);

    let error = AdminSocket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::InUse), "{error}");
    assert!(StdStream::connect(&path).is_ok(), "the live one is as it was");

    // Another socket replaced it: it is not removed with ours.
    fs::remove_file(&path).unwrap();
    let other = StdListener::bind(&path).unwrap();
    drop(live);
    assert!(StdStream::connect(&path).is_ok());
    drop(other);
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "precious").unwrap();
    std::os::unix::fs::symlink(path("elsewhere"), path("link")).unwrap();
    for name in ["file", "link"] {
        let error = AdminSocket::bind(&path(name)).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket), "{error}");
    }
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "precious");
    assert!(!path("elsewhere").exists());
    assert!(matches!(AdminSocket::bind(&path("no/such/folder")), Err(SocketError::Io { .. })));
}

#[test]
fn only_the_servers_user_and_root_is_permitted() {
    for (uid, own, expected) in
        [(1_000, 1_000, true), (0, 1_000, true), (1_001, 1_000, false), (1_000, 0, false)]
    {
        assert_eq!(is_permitted(uid, own), expected, "{uid} connects to {own}");
    }
}

/// Serves `control` and runs `client` beside it.
async fn with_socket<T: Send + 'static>(
    control: Arc<dyn Control>,
    client: impl FnOnce(PathBuf) -> T + Send + 'static,
) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let serving = tokio::spawn(serve(AdminSocket::bind(&path).unwrap(), control));
    let result = tokio::task::spawn_blocking(move || client(path)).await.unwrap();
    serving.abort();
    result
}

fn text(stream: &mut StdStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_the_next_one_answered() {
    with_socket(Fake::new(clock(), None), |path| {
        let mut stream = StdStream::connect(path).unwrap();
        stream.write_all(b"{\"command\":\"hunter2\"}\nnot json\n\n\xff\n{\"command\":\"status\"}\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let replies = text(&mut stream);
        let lines: Vec<&str> = replies.lines().collect();
        assert_eq!(lines.len(), 5, "{replies}");
        for line in &lines[..4] {
            assert!(line.starts_with(r#"{"error":{"code":"malformed""#), "{line}");
        }
        assert!(!replies.contains("hunter2"));
        assert!(lines[4].starts_with(r#"{"ok":{"status":{"#), "{replies}");
        assert!(lines[4].contains(r#""version":"1.2.3""#), "{replies}");
    })
    .await;
}

#[tokio::test]
async fn half_open_connections_do_not_block_others() {
    with_socket(Fake::new(clock(), None), |path| {
        // As many as are allowed, each with no bytes or a part of a request.
        let half_open: Vec<StdStream> = (0..CONNECTIONS_MAX)
            .map(|number| {
                let mut stream = StdStream::connect(&path).unwrap();
                if number % 2 == 1 {
                    stream.write_all(b"{\"comm").unwrap();
                }
                stream
            })
            .collect();
        let asked = std::time::Duration::from_secs(60);
        let mut stream = StdStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(asked)).unwrap();
        stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
        let mut answer = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut answer).unwrap();
        assert!(answer.starts_with(r#"{"ok":{"status":{"#), "{answer}");
        // All of them were closed, not only one.
        for mut stream in half_open {
            stream.set_read_timeout(Some(asked)).unwrap();
            assert_eq!(text(&mut stream), "");
        }
    })
    .await;
}

/// Time stands still while the client runs, so nothing is closed for having waited for too long.
#[tokio::test(start_paused = true)]
async fn however_many_connections_wait_a_command_is_answered_at_once() {
    for sent in [&b""[..], b"{\"comm"] {
        with_socket(Fake::new(clock(), None), move |path| {
            let mut waiting: Vec<StdStream> = Vec::new();
            for _ in 0..20 * CONNECTIONS_MAX {
                let mut stream = StdStream::connect(&path).unwrap();
                stream.write_all(sent).unwrap();
                waiting.push(stream);
            }
            let answer = ask(&mut StdStream::connect(&path).unwrap());
            assert!(answer.starts_with(r#"{"ok":{"status":{"#), "{answer}");
            // The control: those that came last were not closed.
            let last = waiting.last_mut().unwrap();
            last.write_all(&b"{\"command\":\"status\"}\n"[sent.len()..]).unwrap();
            let mut answer = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(last), &mut answer).unwrap();
            assert!(answer.starts_with(r#"{"ok":{"status":{"#), "{answer}");
        })
        .await;
    }
}

fn ask(stream: &mut StdStream) -> String {
    // Shorter than the time for which a connection may be idle.
    stream.set_read_timeout(Some(IDLE_TIMEOUT / 2)).unwrap();
    stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut answer).unwrap();
    answer
}

#[tokio::test]
async fn the_connection_that_has_been_idle_for_the_longest_gives_its_place_to_another_one() {
    with_socket(Fake::new(clock(), None), |path| {
        let is_answer = |answer: &str| answer.starts_with(r#"{"ok":{"status":{"#);
        let mut idle: Vec<StdStream> =
            (0..CONNECTIONS_MAX).map(|_| StdStream::connect(&path).unwrap()).collect();
        for stream in &mut idle {
            assert!(is_answer(&ask(stream)));
        }
        // The first one becomes the last to be idle.
        assert!(is_answer(&ask(&mut idle[0])));
        let mut more: Vec<StdStream> = Vec::new();
        for _ in 0..2 {
            let mut stream = StdStream::connect(&path).unwrap();
            assert!(is_answer(&ask(&mut stream)));
            more.push(stream);
        }
        for (number, stream) in idle.iter_mut().enumerate() {
            if [1, 2].contains(&number) {
                assert_eq!(text(stream), "", "closed");
            } else {
                assert!(is_answer(&ask(stream)), "{number}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn requests_are_bounded_and_truncated_ones_have_no_effect() {
    let fake = Fake::new(clock(), None);
    let control: Arc<dyn Control> = Arc::<Fake>::clone(&fake);
    with_socket(control, |path| {
        let drain = br#"{"command":"drain"}"#;
        let mut stream = StdStream::connect(&path).unwrap();
        stream.write_all(drain).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(text(&mut stream), "");

        // The longest request, padded with white space; then one byte more.
        for (length, expected) in [(REQUEST_BYTES_MAX, "{\"ok\":"), (REQUEST_BYTES_MAX + 1, "{\"error\":")] {
            let mut line = br#"{"command":"status"}"#.to_vec();
            line.resize(length, b' ');
            line.push(b'\n');
            let mut stream = StdStream::connect(&path).unwrap();
            // The server may close the connection before it has read everything.
            let _ = stream.write_all(&line);
            let mut reply = [0; 9];
            stream.read_exact(&mut reply[..expected.len()]).unwrap();
            assert_eq!(&reply[..expected.len()], expected.as_bytes());
        }
    })
    .await;
    assert_eq!(fake.drained.load(SeqCst), 0);
}

fn call(connection: &mut Connection, request: Request) -> Result<Answer, AdminError> {
    match connection.call(&request).unwrap() {
        Reply::Ok(answer) => Ok(answer),
        Reply::Error(refusal) => Err(refusal),
        Reply::Progress { .. } => panic!("progress of what is no import"),
    }
}

#[tokio::test]
async fn commands_reach_the_running_server() {
    let fake = Fake::new(clock(), None);
    let control: Arc<dyn Control> = Arc::<Fake>::clone(&fake);
    with_socket(control, |path| {
        let mut connection = Connection::open(&path).unwrap().unwrap();
        let Ok(Answer::Status(status)) = call(&mut connection, Request::Status) else { panic!() };
        assert_eq!((status.phase.as_str(), status.connections), ("running", 9));
        let refusal = call(&mut connection, Request::Reload).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.message.as_str()),
            (Code::Configuration, "cardea.toml:1:1: unknown key")
        );
        assert_eq!(call(&mut connection, Request::Drain), Ok(Answer::Done));
        let refusal = call(&mut connection, Request::KeyList).unwrap_err();
        assert_eq!(refusal.code, Code::NoAuthorizationServer);
    })
    .await;
    assert_eq!((fake.drained.load(SeqCst), fake.published.load(SeqCst)), (1, 0));
}

#[tokio::test]
async fn clients_live_their_whole_life_over_the_socket() {
    let fixture = Fixture::new();
    let issuer = fixture.issuer(clock().precise()).await;
    with_socket(Fake::new(clock(), Some(issuer)), |path| {
        let mut connection = Connection::open(&path).unwrap().unwrap();
        let id = || "billing".to_owned();
        let create = |scope: &str| Request::ClientCreate {
            id: Some(id()),
            name: "Billing".into(),
            scopes: vec![scope.into()],
            audiences: Vec::new(),
            token_lifetime_seconds: Some(600),
            secret_expires_in_seconds: None,
            basic_encoding: None,
            secret: None,
            remember_secret: Some(false),
        };
        let choose = |text: &str| match create("read") {
            Request::ClientCreate { name, scopes, audiences, .. } => Request::ClientCreate {
                id: Some("chosen".into()),
                name,
                scopes,
                audiences,
                token_lifetime_seconds: None,
                secret_expires_in_seconds: None,
                basic_encoding: None,
                secret: Some(Sensitive::new(text)),
                remember_secret: None,
            },
            other => other,
        };
        let Ok(Answer::Created { client, secret }) = call(&mut connection, create("read")) else { panic!() };
        assert_eq!((client.client_id.as_str(), client.enabled), ("billing", true));
        assert!(!client.remember_secret && client.secrets[0].provenance == "generated");
        assert!(cardea_issuer::Secret::is_well_formed(secret.expose()));
        for (scope, code) in [("read", Code::Exists), ("fly", Code::Invalid)] {
            assert_eq!(call(&mut connection, create(scope)).unwrap_err().code, code);
        }
        let refused = call(&mut connection, choose("too short")).unwrap_err();
        assert_eq!((refused.code, refused.message.contains("too short")), (Code::Invalid, false));
        let long = "a secret that somebody chose";
        let Ok(Answer::Created { secret: chosen, client }) = call(&mut connection, choose(long)) else {
            panic!()
        };
        assert_eq!(chosen.expose(), long);
        assert!(client.remember_secret && client.secrets[0].provenance == "chosen");
        let Ok(Answer::Done) = call(&mut connection, Request::ClientDelete { id: "chosen".into() }) else {
            panic!()
        };
        let rotate = Request::ClientRotate { id: id(), overlap_seconds: 60, secret_expires_in_seconds: None };
        let Ok(Answer::Created { client, secret: new }) = call(&mut connection, rotate) else { panic!() };
        assert_eq!(client.secrets.len(), 2);
        assert_ne!(new, secret);
        let Ok(Answer::Client(client)) = call(&mut connection, Request::ClientDisable { id: id() }) else {
            panic!()
        };
        assert!(!client.enabled);
        let Ok(Answer::Client(client)) = call(&mut connection, Request::ClientEnable { id: id() }) else {
            panic!()
        };
        assert!(client.enabled);
        let list = || Request::ClientList { after: None, limit: None };
        let Ok(Answer::Clients { clients, next: None }) = call(&mut connection, list()) else { panic!() };
        assert_eq!(clients, [client]);
        assert_eq!(call(&mut connection, Request::ClientDelete { id: id() }), Ok(Answer::Done));
        for request in [
            Request::ClientShow { id: id() },
            Request::ClientDelete { id: id() },
            Request::ClientDisable { id: id() },
            Request::ClientEnable { id: id() },
        ] {
            assert_eq!(call(&mut connection, request).unwrap_err().code, Code::NotFound);
        }
    })
    .await;
}

/// A request with one imported client, as a line.
fn import_line(id: &str, more: bool) -> String {
    let hash = "$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0OD/v/$G6NUSDy6iProk3xlBy9YnHGmDd2E4k7rGn6/MVq47m8";
    format!(
        r#"{{"command":"client_import","more":{more},"clients":[{{"client_id":"{id}","secret_hash":"{hash}"}}]}}"#
    )
}

#[tokio::test]
async fn an_import_in_parts_needs_all_parts() {
    let fixture = Fixture::new();
    let issuer = fixture.issuer(clock().precise()).await;
    with_socket(Fake::new(clock(), Some(issuer)), |path| {
        let ids = |connection: &mut Connection| {
            let list = Request::ClientList { after: None, limit: None };
            let Ok(Answer::Clients { clients, .. }) = call(connection, list) else { panic!() };
            clients.into_iter().map(|client| client.client_id).collect::<Vec<_>>()
        };
        let say = |lines: &[String]| {
            let mut stream = StdStream::connect(&path).unwrap();
            // The server may close the connection before it has read everything.
            let _ = stream.write_all((lines.join("\n") + "\n").as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut replies = Vec::new();
            // Closing a connection with unread data resets it, but the reply has arrived.
            let _ = stream.read_to_end(&mut replies);
            String::from_utf8(replies).unwrap()
        };
        let mut connection = Connection::open(&path).unwrap().unwrap();
        // No request is allowed in between: the last part would count as complete.
        let replies = say(&[import_line("a", true), "nonsense".into(), import_line("b", false)]);
        assert!(replies.starts_with("{\"ok\":\"done\"}\n"), "{replies}");
        assert_eq!(replies.matches("done").count(), 1, "{replies}");
        assert_eq!(ids(&mut connection), [""; 0]);
        // Disconnected before the end.
        assert_eq!(say(&[import_line("a", true)]), "{\"ok\":\"done\"}\n");
        assert_eq!(ids(&mut connection), [""; 0]);
        // A repeated client: none is imported.
        let replies = say(&[import_line("a", true), import_line("b", true), import_line("a", false)]);
        assert!(replies.contains("\"index\":2") && replies.contains("duplicate"), "{replies}");
        assert_eq!(ids(&mut connection), [""; 0]);
        let replies = say(&[import_line("a", true), import_line("b", false)]);
        assert_eq!(replies, "{\"ok\":\"done\"}\n".repeat(2));
        assert_eq!(ids(&mut connection), ["a", "b"]);
    })
    .await;
}

#[tokio::test]
async fn keys_that_change_are_published_before_the_command_returns() {
    let fixture = Fixture::new();
    let issuer = fixture.issuer(clock().precise()).await;
    let fake = Fake::new(clock(), Some(issuer));
    let control: Arc<dyn Control> = Arc::<Fake>::clone(&fake);
    let seen = Arc::clone(&fake);
    with_socket(control, move |path| {
        let mut connection = Connection::open(&path).unwrap().unwrap();
        let mut keys = |request: Request| -> Result<Vec<Key>, AdminError> {
            match call(&mut connection, request)? {
                Answer::Keys(keys) => Ok(keys),
                answer => panic!("{answer:?}"),
            }
        };
        let first = keys(Request::KeyList).unwrap();
        assert!(first.len() == 1 && first[0].signing);
        let rotated = keys(Request::KeyRotate { now: true }).unwrap();
        assert_eq!(rotated.iter().map(|key| key.signing).collect::<Vec<_>>(), [false, true]);
        assert!(seen.published.load(SeqCst) >= 1);

        for (new_key, code) in [("!", Code::Malformed), ("c2hvcnQ=", Code::Invalid)] {
            let refusal = keys(Request::KeyRewrap { new_key: Sensitive::new(new_key) }).unwrap_err();
            assert_eq!(refusal.code, code);
            assert!(!refusal.message.contains(new_key) || new_key == "!");
        }
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let new_key = Sensitive::new(STANDARD.encode("cd".repeat(32)));
        let rewrapped = keys(Request::KeyRewrap { new_key }).unwrap();
        assert_ne!(rewrapped[0].wrapping_key_id, first[0].wrapping_key_id);
    })
    .await;
}

#[test]
fn an_absent_server_is_no_error_but_a_closed_connection_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    assert!(Connection::open(&path).unwrap().is_none(), "no file");
    drop(StdListener::bind(&path).unwrap());
    assert!(Connection::open(&path).unwrap().is_none(), "nobody behind it");
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(Connection::open(&folder.path().join("file/admin.sock")).is_err(), "no folder");

    fs::remove_file(&path).unwrap();
    let listener = StdListener::bind(&path).unwrap();
    let mut connection = Connection::open(&path).unwrap().unwrap();
    drop(listener.accept().unwrap());
    assert!(connection.call(&Request::Status).is_err());
    let mut connection = Connection::open(&path).unwrap().unwrap();
    listener.accept().unwrap().0.write_all(b"{\"ok\":{\"unheard_of\":1}}\n").unwrap();
    assert!(connection.call(&Request::Status).unwrap_err().to_string().contains("same version"));
}
