//! The way in: what is in the way of a start, and what is not.

use std::{
    fs, net::TcpListener, os::unix::fs::PermissionsExt as _, os::unix::net::UnixStream, time::Duration,
};

use nix::sys::signal::Signal;

use crate::support::{Folder, Server, folder::Settings, now, run, server::ask, since, until};

const UNIX: &str = r#"
[[listener]]
name = "unix"
address = "unix:{folder}/http.sock"
mode = "0600"
"#;

#[test]
fn files_of_a_killed_gateway_do_not_prevent_a_start() {
    let folder = Folder::new(&Settings { more: UNIX.to_owned(), ..Settings::default() });
    for _ in 0..2 {
        let mut server = Server::start(&folder);
        let mode = fs::metadata(folder.file("http.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(folder.file("http.sock")).is_ok());
        server.program.signal(Signal::SIGKILL);
        assert_eq!(server.program.wait(), None);
        assert!(folder.file("http.sock").exists() && folder.file("admin.sock").exists(), "the control");
    }
}

#[test]
fn a_running_gateway_is_not_pushed_aside() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let ran = folder.run(&["run"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("admin.sock"), "{ran:?}");
    assert_eq!(ask(&folder, r#"{"command":"status"}"#)["ok"]["status"]["process_id"], server.program.id());
    assert_eq!(server.connect().get("/version").unwrap().status, 200);
    server.stop();
}

#[test]
fn files_that_are_no_sockets_are_left_alone() {
    let folder = Folder::new(&Settings { more: UNIX.to_owned(), ..Settings::default() });
    for name in ["http.sock", "admin.sock"] {
        folder.write(name, "precious");
        let ran = folder.run(&["run"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(name), "{ran:?}");
        assert_eq!(folder.read(name), "precious");
        fs::remove_file(folder.file(name)).unwrap();
    }
}

/// An issuer that takes connections and says nothing, as a section of the configuration.
fn silent_issuer(listener: &TcpListener) -> String {
    format!(
        r#"
[[issuer]]
name = "silent"
issuer = "https://{0}"
audiences = ["https://api.test"]
jwks_url = "https://{0}/keys"
allow_private_addresses = true
"#,
        listener.local_addr().unwrap()
    )
}

#[test]
fn a_start_that_waits_for_keys_can_be_ended() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = Folder::new(&Settings { more: silent_issuer(&silent), ..Settings::default() });
        let mut program = folder.start();
        let _connection = silent.accept().unwrap();
        let begun = now();
        program.signal(signal);
        assert_eq!(program.wait(), Some(0), "{signal}");
        assert!(since(begun) < Duration::from_secs(4), "{signal}: {:?}", since(begun));
        assert!(!folder.file("admin.sock").exists());
    }
}

#[test]
fn a_reload_that_waits_for_keys_blocks_nothing_else() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new(&Settings::default());
    let mut server = Server::start(&folder);
    let more = silent_issuer(&silent);
    folder.configure(&Settings { version: "2".to_owned(), more, ..Settings::default() });
    server.program.signal(Signal::SIGHUP);
    let _connection = silent.accept().unwrap();
    let begun = now();
    assert_eq!(server.connect().get("/version").unwrap().text(), "version 2");
    assert_eq!(ask(&folder, r#"{"command":"status"}"#)["ok"]["status"]["generation"], 2);
    server.program.signal(Signal::SIGTERM);
    assert_eq!(server.program.wait(), Some(0));
    assert!(since(begun) < Duration::from_secs(4), "{:?}", since(begun));
}

#[test]
fn commands_during_the_start_wait_for_the_server() {
    for round in 0..5 {
        let folder = Folder::new(&Settings::default());
        let mut program = folder.start();
        until("the database", || folder.file("cardea.db").exists().then_some(()));
        assert!(folder.file("admin.sock").exists(), "{round}: a command would go around the server");
        let ran = folder.run(&["client", "create", "early"]);
        assert_eq!(ran.code, Some(0), "{round}: {ran:?}");
        assert!(!ran.stderr.contains("no gateway responds"), "{round}: {ran:?}");
        program.signal(Signal::SIGTERM);
        assert_eq!(program.wait(), Some(0), "{}", program.stderr.text());
    }
}

#[test]
fn the_access_log_is_opened_again_for_those_who_rotate_it() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get("/version").unwrap().status, 200);
    until("a line", || folder.read("access.log").contains("/version").then_some(()));
    fs::rename(folder.file("access.log"), folder.file("access.log.1")).unwrap();
    server.program.signal(Signal::SIGUSR1);
    until("a new log", || {
        assert_eq!(connection.get("/private").unwrap().status, 401);
        folder.file("access.log").exists().then_some(())
    });
    server.stop();
    let (old, new) = (folder.read("access.log.1"), folder.read("access.log"));
    assert!(old.contains("/version") && !new.contains("/version"), "{old}\n{new}");
}

#[test]
fn a_wrong_command_line_and_a_failure_have_different_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["walk"][..], &["run", "--fast"], &["client"], &["run", "--config", "nowhere.toml"]] {
        let ran = run(folder.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert_ne!(ran.stderr, "");
    }
    let ran = run(folder.path(), &["--version"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

#[test]
fn a_second_server_on_the_same_address_is_refused_with_a_remedy() {
    let folder = Folder::new(&Settings::default());
    let first = Server::start(&folder);
    let other = Folder::new(&Settings { listen: first.address, ..Settings::default() });
    let ran = other.run(&["run"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("another process listens there"), "{ran:?}");
    assert_eq!(first.connect().get("/version").unwrap().status, 200, "the first one's clients meet it alone");
}
