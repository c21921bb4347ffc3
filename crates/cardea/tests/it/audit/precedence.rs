//! Precedence of routes that opens access: `check` says so, and names both places.

use crate::support::{Folder, folder::Settings};

/// What `cardea check` says of a configuration with these routes, and the lines on which they begin.
fn check(routes: &str) -> (Option<i32>, String, Vec<usize>) {
    let folder = Folder::new(&Settings {
        more: routes.to_owned(),
        origin: Some(([127, 0, 0, 1], 9).into()),
        ..Settings::default()
    });
    let text = folder.read("cardea.toml");
    let first = text[..text.find(routes).unwrap()].lines().count();
    let begins = |(index, line): (usize, &str)| (line == "[[route]]").then_some(first + index + 1);
    let lines = routes.lines().enumerate().filter_map(begins).collect();
    let ran = folder.run(&["check"]);
    (ran.code, ran.stdout + &ran.stderr, lines)
}

fn route(name: &str, auth: &str, rest: &str) -> String {
    format!("\n[[route]]\nname = \"{name}\"\nauth = {auth}\n{rest}\nservice = \"origin\"\n")
}

const GUARDED: &str = "{ issuer = \"own\", scopes = [\"write\"] }";
const PUBLIC: &str = "\"public\"";

/// A guarded route and one that takes requests which look as if they were the guarded one's.
fn open_pairs() -> Vec<(String, String)> {
    [
        ("path_prefix = \"/admin\"", "path_pattern = \"/{lang}/{page}\""),
        ("path_prefix = \"/orders\"\nmethods = [\"POST\", \"PUT\"]", "path_prefix = \"/\""),
        ("path = \"/orders\"\nmethods = [\"POST\", \"PUT\"]", "path_prefix = \"/orders\""),
        ("path_prefix = \"/orders\"\nheaders = { \"x-a\" = true }", "path_prefix = \"/\""),
    ]
    .map(|(guarded, open)| (guarded.to_owned(), open.to_owned()))
    .to_vec()
}

#[test]
fn check_warns_of_a_public_route_beside_a_guarded_one() {
    for (guarded, open) in open_pairs() {
        for swapped in [false, true] {
            let mut parts = [route("guarded", GUARDED, &guarded), route("open", PUBLIC, &open)];
            if swapped {
                parts.reverse();
            }
            let (code, said, lines) = check(&parts.concat());
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("\"guarded\""), "{guarded} | {open}: {said}");
            for line in lines {
                assert!(
                    said.contains(&format!("cardea.toml:{line}:")),
                    "{guarded} | {open}: no line {line}: {said}"
                );
            }
        }
    }
}

#[test]
fn check_says_nothing_of_routes_that_open_nothing() {
    for (guarded, other) in [
        ("path_prefix = \"/admin\"", route("open", PUBLIC, "path_prefix = \"/public\"")),
        ("path_prefix = \"/admin\"", route("open", PUBLIC, "path_pattern = \"/public/{page}\"")),
        ("path_prefix = \"/admin\"", route("open", GUARDED, "path_pattern = \"/{lang}/{page}\"")),
        (
            "path_prefix = \"/admin\"\nhosts = [\"localhost\"]",
            route("open", PUBLIC, "path_pattern = \"/{a}/{b}\"\nhosts = [\"127.0.0.1\"]"),
        ),
        // The prefix has precedence.
        ("path_prefix = \"/admin\"", route("open", PUBLIC, "path_pattern = \"/{lang}/{*rest}\"")),
        // Written as an exception.
        ("path_prefix = \"/admin\"", route("open", PUBLIC, "path_pattern = \"/admin/{page}\"")),
        ("path_prefix = \"/admin\"", route("open", PUBLIC, "path = \"/admin/login\"")),
        (
            "path_prefix = \"/orders\"\nmethods = [\"POST\", \"PUT\"]",
            route("open", PUBLIC, "path_prefix = \"/orders\"\nmethods = [\"GET\"]"),
        ),
        (
            "path_prefix = \"/admin\"",
            route("open", PUBLIC, "path_pattern = \"/{a}/{b}\"\nopens = [\"guarded\"]"),
        ),
    ] {
        let (code, said, _) = check(&(route("guarded", GUARDED, guarded) + &other));
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.to_lowercase().contains("warning"), "{guarded}: {said}");
    }
}
