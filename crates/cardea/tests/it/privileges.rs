//! Started as root, the gateway becomes who the configuration says, for good, and works as that user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::Path,
};

use nix::unistd::{Uid, User};

use crate::support::{Connection, Folder, Server, folder::Settings};

fn give(path: &Path, user: &User) {
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
}

/// Whether the kernel gives the files of the process that tell its memory to root alone (proc(5)), as it does for one that
/// is not dumpable.
fn is_protected(server: &Server) -> bool {
    fs::metadata(format!("/proc/{}/environ", server.program.id())).unwrap().uid() == 0
}

#[test]
fn dumpability_is_configurable() {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: privileges can only be dropped by root");
        return;
    }
    let user = User::from_name("nobody").unwrap().unwrap();
    let more = "\n[process]\nuser = \"nobody\"\ndanger_dumpable = true\n".to_owned();
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    give(folder.path(), &user);
    fs::read_dir(folder.path()).unwrap().for_each(|entry| give(&entry.unwrap().path(), &user));
    let server = Server::start(&folder);
    assert!(!is_protected(&server));
    assert!(server.program.stderr.text().contains("process.danger_dumpable is on"));
}

#[test]
fn the_gateway_runs_as_the_configured_user() {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: privileges can only be dropped by root");
        return;
    }
    let user = User::from_name("nobody").unwrap().unwrap();
    let settings = || Settings { more: "\n[process]\nuser = \"nobody\"\n".to_owned(), ..Settings::default() };
    let folder = Folder::new(&settings());
    let give_all = || {
        give(folder.path(), &user);
        fs::read_dir(folder.path()).unwrap().for_each(|entry| give(&entry.unwrap().path(), &user));
    };
    give_all();
    let server = Server::start(&folder);
    let status = fs::read_to_string(format!("/proc/{}/status", server.program.id())).unwrap();
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    // Real, effective, saved and of the file system.
    assert_eq!(ids("Uid:"), [user.uid.as_raw(); 4]);
    assert_eq!(ids("Gid:"), [user.gid.as_raw(); 4]);
    assert_eq!(ids("Groups:"), [user.gid.as_raw()], "root's groups are given up");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    assert_eq!(u64::from_str_radix(capabilities.trim(), 16).unwrap(), 0);

    // Not even other processes of that user may read its memory, and it reads of itself what the metrics say.
    assert!(is_protected(&server));
    let core = format!("/proc/{}/limits", server.program.id());
    let core = fs::read_to_string(core).unwrap();
    let core = core.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().next(), Some("0"));
    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let metrics = admin.answer().unwrap().unwrap().text();
    for name in ["cpu_seconds_total", "resident_memory_bytes", "threads", "open_fds", "max_fds"] {
        assert!(metrics.contains(&format!("\nprocess_{name} ")), "{name} in {metrics}");
    }

    let mut connection = server.connect();
    assert_eq!(connection.get("/version").unwrap().status, 200);
    for name in ["admin.sock", "cardea.db", "access.log"] {
        assert_eq!(fs::metadata(folder.file(name)).unwrap().uid(), user.uid.as_raw(), "{name}");
    }
    // Root asks through the socket; the server writes as its user.
    let client = folder.create_client("billing");
    let token = connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);

    folder.configure(&Settings { version: "2".to_owned(), ..settings() });
    give_all();
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    assert_eq!(connection.get("/version").unwrap().text(), "version 2");
    server.stop();
}
