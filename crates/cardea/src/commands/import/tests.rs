//! Files of clients: accepted lines, and the errors of others.

use proptest::prelude::*;

use super::*;

/// Created by passlib, for "correct horse battery staple".
const HASH: &str = "$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0OD/v/$G6NUSDy6iProk3xlBy9YnHGmDd2E4k7rGn6/MVq47m8";

fn parse(content: &str, format: ImportFormat) -> Result<Clients, String> {
    Clients::parse("f".to_owned(), content.as_bytes(), format).map_err(|failure| failure.message)
}

fn json(content: &str) -> Result<Clients, String> {
    parse(&content.replace("HASH", HASH), ImportFormat::JsonLines)
}

fn csv(content: &str) -> Result<Clients, String> {
    parse(&content.replace("HASH", HASH), ImportFormat::Csv)
}

#[test]
fn the_corpora_of_the_fuzzers_hold() {
    for (target, fuzz) in [
        ("import_rows", fuzzing::fuzz_rows as fn(&[u8]) -> usize),
        ("import_json_lines", fuzzing::fuzz_json_lines),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files = std::fs::read_dir(folder).unwrap();
        let clients: usize = files.map(|file| fuzz(&std::fs::read(file.unwrap().path()).unwrap())).sum();
        assert!(clients > 5, "{target}: {clients}");
    }
}

#[test]
fn both_formats_say_the_same() {
    let json = json(concat!(
        "{\"client_id\":\"a\",\"secret_hash\":\"HASH\"}\r\n\n",
        "{\"client_id\":\"b\",\"secret_hash\":\"HASH\",\"name\":\"B, \\\"the\\\" second\",\"enabled\":false,",
        "\"scopes\":[\"read\",\"write\"],\"audiences\":[\"https://a\"],\"access_token_lifetime_seconds\":60,",
        "\"secret_expires_in_seconds\":86400,\"basic_encoding\":\"raw\",\"remember_secret\":false}",
    ))
    .unwrap();
    let csv = csv(concat!(
        "\u{feff}client_id,secret_hash,name,enabled,scopes,audiences,access_token_lifetime_seconds,",
        "secret_expires_in_seconds,basic_encoding,remember_secret\n",
        "a,HASH,,,,,,,,\r\n\n",
        "b,HASH,\"B, \"\"the\"\" second\",false,read write,https://a,60,86400,raw,false\n",
    ))
    .unwrap();
    assert_eq!(json.clients, csv.clients);
    assert_eq!((json.lines.as_slice(), csv.lines.as_slice()), (&[1, 3][..], &[2, 4][..]));
    assert_eq!(json.clients[1].name.as_deref(), Some("B, \"the\" second"));
}

#[test]
fn a_credential_of_keycloak_may_be_an_object() {
    let credential = concat!(
        r#"{"secretData":{"value":"AOm/kOb/+YAZ3ZwSogYgNu9fO1g=","salt":"AAECAwQFBgcICQoLDA0ODw=="},"#,
        r#""credentialData":{"hashIterations":1000,"algorithm":"pbkdf2"}}"#
    );
    let line = format!(r#"{{"client_id":"a","secret_hash":{credential}}}"#);
    assert_eq!(json(&line).unwrap().clients.len(), 1);
    let quoted = credential.replace('"', "\"\"");
    assert_eq!(csv(&format!("client_id,secret_hash\na,\"{quoted}\"")).unwrap().clients.len(), 1);
}

#[test]
fn every_invalid_line_is_reported_with_its_number() {
    let good = "{\"client_id\":\"a\",\"secret_hash\":\"HASH\"}\n";
    for (line, expected) in [
        ("nonsense", "not a JSON object"),
        ("[\"b\",\"HASH\",null,null,[],[],null,null,null,null]", "not a JSON object"),
        ("{\"client_id\":nonsense}", "expected ident (column 15)"),
        ("{\"client_id\":\"b\"}", "missing field `secret_hash`"),
        ("{\"client_id\":\"b\",\"secret_hash\":\"HASH\",\"scope\":\"x\"}", "unknown field `scope`"),
        ("{\"client_id\":\"b\",\"secret_hash\":\"HASH\",\"client_id\":\"c\"}", "duplicate field"),
        ("{\"client_id\":\"b\",\"secret_hash\":\"HASH\"} {}", "trailing characters"),
        ("{\"client_id\":\"b\",\"secret_hash\":\"hunter2\"}", "secret_hash: "),
        ("{\"client_id\":\"b\",\"secret_hash\":17}", "neither text nor an object"),
        ("{\"client_id\":\"b\",\"secret_hash\":\"HASH\"}\u{7}", "a control character"),
    ] {
        let problem = json(&format!("{good}\n{line}\n")).map(|_| ()).unwrap_err();
        assert!(problem.starts_with("f:3: ") && problem.contains(expected), "{line}: {problem}");
        assert!(problem.ends_with("\nnothing was imported"), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    let problems = json(&"x\n".repeat(30)).map(|_| ()).unwrap_err();
    assert!(problems.contains("f:20: ") && !problems.contains("f:21: "), "{problems}");
    assert!(problems.contains("\n10 more lines"), "{problems}");
    let long = format!("{good}{}\n", "x".repeat(lines::LINE_BYTES_MAX + 1));
    assert!(json(&long).map(|_| ()).unwrap_err().contains("f:2: longer than 16384 bytes"));
    let latin = Clients::parse("f".to_owned(), b"\n\xe9\n", ImportFormat::JsonLines);
    assert!(latin.map(|_| ()).unwrap_err().message.contains("f:2: not UTF-8"));
}

#[test]
fn rows_that_do_not_fit_their_columns_are_refused() {
    for (content, expected) in [
        ("client_id\na", "f:1: there is no column \"secret_hash\""),
        ("client_id,hash\na,b", "f:1: unknown column \"hash\"; the columns are: client_id, "),
        ("client_id,secret_hash,client_id\na,b,c", "f:1: duplicate column \"client_id\""),
        ("client_id,secret_hash\na", "f:2: 1 cells, but the first line has 2 columns"),
        ("client_id,secret_hash\na,HASH,", "f:2: 3 cells"),
        ("client_id,secret_hash\n,HASH", "f:2: client_id is empty"),
        ("client_id,secret_hash\na,", "f:2: secret_hash is empty"),
        ("client_id,secret_hash\n\"a,HASH", "f:2: a quote that isn't closed"),
        ("client_id,secret_hash\n\"a\"b,HASH", "f:2: text between a closing quote"),
        ("client_id,secret_hash\na\"b,HASH", "f:2: a quote within a cell"),
        ("client_id,secret_hash,enabled\na,HASH,yes", "f:2: enabled: expected true or false"),
        ("client_id,secret_hash,secret_expires_in_seconds\na,HASH,1d", "f:2: secret_expires_in_seconds: "),
        ("", "f: no clients"),
        ("client_id,secret_hash\n", "f: no clients"),
    ] {
        let problem = csv(content).map(|_| ()).unwrap_err();
        assert!(problem.starts_with(expected), "{content:?}: {problem}");
    }
}

#[test]
fn the_end_of_a_name_says_the_format() {
    for (name, expected) in [
        ("a.jsonl", Some(ImportFormat::JsonLines)),
        ("a.ndjson", Some(ImportFormat::JsonLines)),
        ("a/b.CSV", Some(ImportFormat::Csv)),
        ("a.json", None),
        ("csv", None),
        ("-", None),
    ] {
        assert_eq!(format_of(Path::new(name)), expected, "{name}");
    }
    let arguments = ClientImportArgs { file: "-".into(), format: None };
    let failure = Clients::read(&arguments).map(|_| ()).unwrap_err();
    assert!(failure.message.contains("--format"), "{}", failure.message);
}

proptest! {
    #[test]
    fn cells_are_what_was_written(cells in prop::collection::vec("[^\n\r]{0,12}", 1..6)) {
        let quoted: Vec<String> =
            cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
        prop_assert_eq!(csv::cells(&quoted.join(",")), Ok(cells.clone()));
        if cells.iter().all(|cell| !cell.contains([',', '"'])) {
            prop_assert_eq!(csv::cells(&cells.join(",")), Ok(cells));
        }
    }

    #[test]
    fn no_line_panics(line in "[ab,\" {}:\\[\\]\\PC]{0,40}") {
        let _ = parse(&line, ImportFormat::JsonLines);
        let _ = parse(&format!("client_id,secret_hash\n{line}"), ImportFormat::Csv);
        let _ = parse(&line, ImportFormat::Csv);
    }
}
