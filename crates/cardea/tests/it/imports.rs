//! Clients that come from another server, with the hashes of their secrets.

use crate::support::{Folder, Server, folder::Settings};

/// passlib's, of [`SECRET`].
const HASH: &str = "$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0OD/v/$G6NUSDy6iProk3xlBy9YnHGmDd2E4k7rGn6/MVq47m8";
/// Django's, of the same.
const DJANGO: &str = "pbkdf2_sha256$1000$S0meSaltOf22Characters$ObiRrh1PwEs6x9b/3tHOAgTqh0Xd1a4ECMkY1YUjHoY=";
const SECRET: &str = "correct horse battery staple";

/// As many clients as don't fit into one request to the server.
const MANY: usize = 2_500;

fn many() -> Vec<String> {
    let line =
        |number| format!(r#"{{"client_id":"many-{number}","secret_hash":"{HASH}","scopes":["read"]}}"#);
    (1..=MANY).map(line).collect()
}

fn listed(folder: &Folder) -> usize {
    folder.run(&["client", "list", "--json"]).json().as_array().unwrap().len()
}

#[test]
fn a_running_gateway_imports_a_whole_file_or_nothing() {
    let folder = Folder::new(&Settings::with_cheap_hashes());
    let server = Server::start(&folder);
    let lines = [
        format!(r#"{{"client_id":"one","secret_hash":"{HASH}","scopes":["read"]}}"#),
        String::new(),
        format!(r#"{{"client_id":"two","secret_hash":"{DJANGO}","enabled":false}}"#),
    ];
    folder.write("clients.jsonl", &lines.join("\n"));
    let ran = folder.run(&["client", "import", "clients.jsonl"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "imported 2 clients\n"), "{ran:?}");
    let mut connection = server.connect();
    for (id, secret, status) in
        [("one", SECRET, 200), ("one", "correct horse battery stable", 401), ("two", SECRET, 401)]
    {
        let answer = connection.token_patiently(id, secret).unwrap();
        assert_eq!(answer.status, status, "{id} {secret}: {answer:?}");
    }
    assert_eq!(folder.run(&["client", "enable", "two"]).code, Some(0));
    let token = connection.token_patiently("two", SECRET).unwrap();
    assert_eq!(token.status, 200, "{token:?}");
    let token = connection.token_patiently("one", SECRET).unwrap().member("access_token").unwrap();
    assert_eq!(connection.get_with_token("/private", &token).unwrap().text(), "come in");

    // More than one request to the server, and one line that can't be: none of them is there.
    for (line, expected) in [
        (lines[0].clone(), "a client \"one\" already exists"),
        (many()[0].clone(), "duplicate client \"many-1\""),
        (many()[0].replace("many-1", "x").replace("read", "fly"), "\"fly\" is not configured"),
    ] {
        let mut bad = many();
        bad.push(line);
        folder.write("many.jsonl", &bad.join("\n"));
        let ran = folder.run(&["client", "import", "many.jsonl"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
        assert!(ran.stderr.contains(&format!("many.jsonl:{}: ", MANY + 1)), "{ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stderr.ends_with("nothing was imported\n"), "{ran:?}");
        assert_eq!(listed(&folder), 2);
    }
    // All that are there already are told at once, and so are all that are in the file twice.
    for (more, expected) in [
        (
            [lines[0].clone(), lines[2].clone()],
            ["a client \"one\" already exists", "a client \"two\" already exists"],
        ),
        (
            [many()[0].clone(), many()[1].clone()],
            ["duplicate client \"many-1\"", "duplicate client \"many-2\""],
        ),
    ] {
        folder.write("many.jsonl", &[many(), more.to_vec()].concat().join("\n"));
        let ran = folder.run(&["client", "import", "many.jsonl"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        for (line, expected) in (MANY + 1..).zip(expected) {
            let told =
                |text: &str| text.starts_with(&format!("many.jsonl:{line}: ")) && text.contains(expected);
            assert!(ran.stderr.lines().any(told), "{line}: {ran:?}");
        }
        assert_eq!(listed(&folder), 2);
    }
    folder.write("many.jsonl", &many().join("\n"));
    let ran = folder.run(&["client", "import", "many.jsonl", "--json"]);
    assert_eq!((ran.code, &ran.json()["imported"]), (Some(0), &serde_json::json!(MANY)), "{ran:?}");
    assert!(ran.stderr.contains(" of 2500 clients sent"), "{ran:?}");
    assert!(ran.stderr.contains("note: 1000 of 2500 clients written"), "{ran:?}");
    assert_eq!(listed(&folder), MANY + 2);
    assert_eq!(connection.token_patiently("many-2500", SECRET).unwrap().status, 200);

    server.stop();
    let log = folder.read("access.log");
    assert!(!log.contains(SECRET));
}

#[test]
fn without_a_gateway_clients_are_imported_into_the_database() {
    let folder = Folder::new(&Settings::with_cheap_hashes());
    let rows: Vec<String> = (1..=MANY).map(|number| format!("many-{number},{HASH},read write")).collect();
    let csv = format!("client_id,secret_hash,scopes\n{}\n", rows.join("\n"));
    let bad = csv.replace("many-2400,", "many-7,");
    let ran = folder.run_with(&["client", "import", "-", "--format", "csv"], &bad);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("standard input:2401: duplicate client \"many-7\""), "{ran:?}");
    assert_eq!(listed(&folder), 0);

    let ran = folder.run_with(&["client", "import", "-", "--format", "csv"], &csv);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "imported 2500 clients\n"), "{ran:?}");
    assert!(ran.stderr.contains("note: 1000 of 2500 clients written"), "{ran:?}");
    assert_eq!(listed(&folder), MANY);
    let shown = folder.run(&["client", "show", "many-7", "--json"]).json();
    assert_eq!(shown["scopes"], serde_json::json!(["read", "write"]));
    assert_eq!(shown["secrets"][0]["provenance"], "imported");

    let server = Server::start(&folder);
    assert_eq!(server.connect().token_patiently("many-7", SECRET).unwrap().status, 200);
    server.stop();
}

#[test]
fn an_invalid_line_is_reported_with_its_number() {
    let folder = Folder::new(&Settings::with_cheap_hashes());
    folder.write("clients.csv", &format!("client_id,secret_hash\na,{HASH}\nb,hunter2\nc\n"));
    let ran = folder.run(&["client", "import", "clients.csv"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("clients.csv:3: secret_hash: ") && !lines[0].contains("hunter2"), "{ran:?}");
    assert!(lines[1].starts_with("clients.csv:4: 1 cells"), "{ran:?}");
    assert_eq!(lines[2..], ["nothing was imported"]);
    assert_eq!(listed(&folder), 0);
}
