//! A database whose disk is full: nothing is changed, everybody is told, and all is well once there is room.

use std::{fs, io::Write as _, path::Path, process::Command};

use crate::support::{Connection, Folder, Server, folder::Settings, until};

/// A small file system of its own; it goes when this is dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    /// Nothing where mounting is not allowed.
    fn mount(at: &'a Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at).status();
        mount.is_ok_and(|status| status.success()).then_some(Self(at))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        while file.write_all(&[7]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn metric(server: &Server, name: &str) -> String {
    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let text = admin.answer().unwrap().unwrap().text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.rsplit(' ').next().unwrap().to_owned()
}

fn on_small(folder: &Folder) {
    let text = folder.read("cardea.toml");
    let text = text.replace("wrapping_key =", "database = \"sqlite:small/cardea.db\"\nwrapping_key =");
    folder.write("cardea.toml", &text);
}

#[test]
fn a_full_disk_stops_administration_only_until_there_is_room() {
    let folder = Folder::new(&Settings::default());
    on_small(&folder);
    let path = folder.file("small");
    let Some(small) = Small::mount(&path) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    let mut connection = server.connect();
    let token = connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);
    assert_eq!(metric(&server, "cardea_database_writes_failing"), "0");

    small.fill();
    // Until not a page is left: some of the log may be written over, and what is small may fit where what is large does not.
    let mut keys = 1;
    let refused = until("a full disk", || {
        let ran = ["client", "create", "more", "--json"];
        let (created, rotated) = (folder.run(&ran), folder.run(&["key", "rotate", "--now"]));
        keys += usize::from(rotated.code == Some(0));
        (created.code != Some(0) && rotated.code != Some(0)).then_some([created, rotated])
    });
    assert!(refused.iter().all(|ran| ran.code == Some(1) && ran.stderr.contains("full")), "{refused:?}");
    for _ in 0..3 {
        let ran = folder.run(&["client", "disable", &client.0]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!ran.stderr.contains("transaction depth"), "{ran:?}");
    }
    let (status, text) = server.ready();
    assert!(status == 200 && text.contains("\"degraded\":[\"administration_failing\"]"), "{status} {text}");
    assert_eq!(metric(&server, "cardea_database_writes_failing"), "1");
    assert_ne!(metric(&server, "cardea_database_write_failures_total"), "0");
    let log = server.program.stderr.text();
    assert_eq!(log.matches("signing key created").count(), keys, "none that was refused: {log}");
    // What was not disabled is not, and everything else works.
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 200);
    connection.token(&client.0, &client.1).unwrap().member("access_token").unwrap();

    small.make_room();
    until("readiness that complains of nothing", || {
        server.ready().1.contains("\"degraded\":[]").then_some(())
    });
    let ran = folder.run(&["client", "disable", &client.0]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 401);
    folder.create_client("another");
    let ran = folder.run(&["key", "rotate", "--now", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(metric(&server, "cardea_database_writes_failing"), "0");
    drop(connection);
    server.stop();
    // After a restart, too.
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 401);
    drop(connection);
    server.stop();
    drop(small);
}

#[test]
fn where_it_is_required_the_gateway_is_not_ready_without_administration() {
    let more = "\n[readiness]\nadministration = \"required\"\n".to_owned();
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    on_small(&folder);
    let path = folder.file("small");
    let Some(small) = Small::mount(&path) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let server = Server::start(&folder);
    small.fill();
    until("a full disk", || (folder.run(&["client", "create", "more"]).code != Some(0)).then_some(()));
    let (status, text) = server.ready();
    assert!(status == 503 && text.contains("\"reasons\":[\"administration_failing\"]"), "{status} {text}");
    assert_eq!(metric(&server, "cardea_ready"), "0");
    small.make_room();
    until("readiness", || (server.ready().0 == 200).then_some(()));
    server.stop();
    drop(small);
}

#[test]
fn a_lost_database_is_no_first_start() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let client = folder.create_client("billing");
    server.stop();
    let backup = fs::read(folder.file("cardea.db")).unwrap();
    for emptied in [true, false] {
        if emptied {
            fs::write(folder.file("cardea.db"), b"")
        } else {
            fs::remove_file(folder.file("cardea.db"))
        }
        .unwrap();
        for arguments in [&["run"][..], &["client", "list"]] {
            let ran = folder.run(arguments);
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert!(ran.stderr.contains("there was one") && ran.stderr.contains("backup"), "{ran:?}");
        }
    }
    fs::write(folder.file("cardea.db"), backup).unwrap();
    let server = Server::start(&folder);
    server.connect().token(&client.0, &client.1).unwrap().member("access_token").unwrap();
    server.stop();
}
