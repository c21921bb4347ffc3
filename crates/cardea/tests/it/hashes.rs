//! Hashes of secrets: printed, measured, computed for clients, and counted.

use crate::support::{Connection, Folder, Server, folder::Settings, run, run_with, until};

const SECRET: &str = "a secret that somebody chose";

/// A metric's value; 0 where it isn't there.
fn metric(server: &Server, name: &str) -> f64 {
    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let text = admin.answer().unwrap().unwrap().text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn a_hash_that_was_printed_is_one_that_can_be_imported() {
    let folder = Folder::new(&Settings::with_cheap_hashes());
    let hash = run_with(folder.path(), &["hash", "--iterations", "10000"], &format!("{SECRET}\n"));
    assert_eq!(hash.code, Some(0), "{hash:?}");
    let text = hash.stdout.trim_end();
    assert!(text.starts_with("$pbkdf2-sha512$i=10000,l=32$"), "{hash:?}");
    let again = run_with(folder.path(), &["hash", "--iterations", "10000"], SECRET);
    assert_ne!(again.stdout, hash.stdout, "each has a salt of its own");

    let csv = format!("client_id,secret_hash\na,\"{text}\"\n");
    let ran = folder.run_with(&["client", "import", "-", "--format", "csv"], &csv);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let server = Server::start(&folder);
    assert_eq!(server.connect().token("a", SECRET).unwrap().status, 200);
    assert_eq!(server.connect().token("a", "another one").unwrap().status, 401);
    server.stop();

    for (input, expected) in [("", "empty"), ("a\0b", "NUL"), (&"x".repeat(1_025), "longer than 1024")] {
        let ran = run_with(folder.path(), &["hash"], input);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}

#[test]
fn the_cost_of_hashes_is_measured() {
    let folder = Folder::new(&Settings {
        more: "\n[authorization_server.secrets]\niterations = 20000\nhash_threads = 1\n".to_owned(),
        ..Settings::default()
    });
    let ran = run(folder.path(), &["bench", "kdf", "--json", "--target", "20ms", "-c", "cardea.toml"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    let kernels = report["kernels"].as_array().unwrap();
    for algorithm in ["pbkdf2-sha1", "pbkdf2-sha256", "pbkdf2-sha512"] {
        let of: Vec<_> = kernels.iter().filter(|kernel| kernel["algorithm"] == algorithm).collect();
        assert!(of.iter().all(|kernel| kernel["lane_iteration_ns"].as_f64().unwrap() > 1.0), "{report}");
        for run in ["lone", "full"] {
            assert_eq!(of.iter().filter(|kernel| kernel[run] == true).count(), 1, "{algorithm} {run}");
        }
    }
    let cost = &report["cost"];
    assert!(cost["iterations"] == 20_000 && cost["threads"] == 1, "{cost}");
    // As long as the machine is as fast in the one measurement as in the other, give or take a factor.
    let (hash_ms, per_second) = (cost["hash_ms"].as_f64().unwrap(), &cost["hashes_per_second"]);
    assert!(per_second.as_f64().unwrap() * hash_ms / 1e3 > 0.2, "{cost}");
    let wanted = report["target"]["iterations"].as_f64().unwrap();
    assert!((wanted / 20.0 - 20_000.0 / hash_ms).abs() < 60.0 || wanted == 10_000.0, "{report}");

    let ran = run(folder.path(), &["bench", "kdf", "--iterations", "30000"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("portable-1") && ran.stdout.contains("30000 iterations"), "{ran:?}");
    let ran = run(folder.path(), &["bench", "kdf", "--target", "1ms"]);
    assert!(ran.stdout.contains("within 1ms") && ran.stderr.contains("OWASP"), "{ran:?}");
    assert!(ran.stdout.contains("10000 iterations") && ran.stderr.contains("take longer\n"), "{ran:?}");
    let ran = run(folder.path(), &["bench", "kdf", "-c", "none.toml"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
}

#[test]
fn metrics_count_hashed_cached_and_refused_secrets() {
    let more = r#"
[authorization_server.secrets]
iterations = 10000
hash_threads = 1
failures_max = 1
failure_forgiven_every = "1h"
"#;
    let folder = Folder::new(&Settings { more: more.to_owned(), ..Settings::default() });
    let server = Server::start(&folder);
    for (id, more) in [("a", None), ("b", Some("--no-remember"))] {
        let create = ["client", "create", id, "--id", id, "--secret-stdin"];
        let arguments: Vec<&str> = create.into_iter().chain(more).collect();
        let ran = folder.run_with(&arguments, SECRET);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let hashed = |server: &Server| metric(server, "cardea_secret_hashes_total{algorithm=\"pbkdf2-sha512\"}");
    assert_eq!((metric(&server, "cardea_secret_hashes_stored_total"), hashed(&server)), (2.0, 0.0));
    let mut connection = server.connect();
    for (id, hashes, hits) in [("a", 1.0, 0.0), ("a", 1.0, 1.0), ("b", 2.0, 1.0), ("b", 3.0, 1.0)] {
        assert_eq!(connection.token(id, SECRET).unwrap().status, 200);
        let found = (hashed(&server), metric(&server, "cardea_secret_remembered_hits_total"));
        assert_eq!(found, (hashes, hits), "{id}");
    }
    assert_eq!(metric(&server, "cardea_secret_remembered"), 1.0);
    // A run is counted at its end, when its answers have been given.
    until("the last run", || (metric(&server, "cardea_secret_lane_hashes_total") == 5.0).then_some(()));
    assert!(metric(&server, "cardea_secret_lane_runs_total") > 0.0);
    assert!(metric(&server, "cardea_secret_lanes_total{filled=\"true\"}") > 0.0);
    assert_eq!(metric(&server, "cardea_secret_queue"), 0.0);

    let statuses: Vec<u16> = (0..4).map(|_| connection.token("a", "a wrong one").unwrap().status).collect();
    assert!(statuses[0] == 401 && statuses[3] == 429, "{statuses:?}");
    let refused = statuses.iter().filter(|status| **status == 429).count();
    let rejections = metric(&server, "cardea_secret_rejections_total{reason=\"failures_exceeded\"}");
    assert_eq!(rejections, refused as f64);
    assert!(metric(&server, "cardea_secret_failures") > 0.0);
    // Who is right and remembered gets in all the same.
    assert_eq!(connection.token("a", SECRET).unwrap().status, 200);
    server.stop();
}
