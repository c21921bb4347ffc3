//! Keys are known to verifiers before they sign: nobody may keep a key set for longer than a new key is published ahead.

use crate::support::{Folder, Server, folder::Settings};

/// The `max-age` of an answer's `Cache-Control`.
fn max_age(head: &str) -> u64 {
    let (_, rest) = head.split_once("max-age=").unwrap_or_else(|| panic!("no max-age: {head}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn a_key_set_is_cached_for_less_than_key_publish_ahead() {
    let folder = Folder::new(&Settings::default());
    let text = folder.read("cardea.toml");
    for (ahead, seconds) in [("1d", 86_400), ("1h", 3_600), ("5m", 300), ("2m", 120), ("1m", 60)] {
        let with = format!("[authorization_server]\nkey_publish_ahead = \"{ahead}\"");
        folder.write("cardea.toml", &text.replace("[authorization_server]", &with));
        let server = Server::start(&folder);
        let mut wire = server.connect();
        for path in ["/oauth2/jwks", "/.well-known/oauth-authorization-server"] {
            let answer = wire.get(path).unwrap();
            let head = format!("{:?}", answer.head);
            if path == "/oauth2/jwks" || head.contains("max-age") {
                assert!(max_age(&head) < seconds, "{ahead} {path}: {head}");
                assert!(!head.contains("s-maxage") && !head.contains("stale-while"), "{head}");
            }
        }
        drop(wire);
        server.stop();
    }
}
