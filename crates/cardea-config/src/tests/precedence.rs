//! Tests of the warnings about routes that open what others guard.

use super::{Draft, Fixture, KeyFiles, LEAST};

const ISSUER: &str = "[[issuer]]\nname = \"main\"\nissuer = \"https://i.example\"\naudiences = [\"a\"]\ndiscovery = true\n\
     [[service]]\nname = \"s\"\n[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n";
const PUBLIC: &str = "auth = \"public\"\nservice = \"s\"";
const GUARDED: &str = "auth = { issuer = \"main\", scopes = [\"x\"] }\nservice = \"s\"";

/// The warnings about these routes, which are named `r0`, `r1` and so on.
fn told(routes: &[(&str, &str)]) -> Vec<String> {
    let mut text = format!("{LEAST}{ISSUER}");
    for (index, (matches, rest)) in routes.iter().enumerate() {
        text.push_str(&format!("[[route]]\nname = \"r{index}\"\n{matches}\n{rest}\n"));
    }
    let fixture = Fixture::new(&text);
    let path = fixture.folder.path().join("cardea.toml");
    let (_, problems) = Draft::read(&path, &|_| None, KeyFiles::Read).into_parts();
    let told = problems.iter().map(|problem| problem.to_string());
    told.filter(|line| line.contains("would guard") || line.contains("opens of")).collect()
}

#[test]
fn routes_that_open_what_others_guard_are_reported() {
    let admin = ("path_prefix = \"/admin\"", GUARDED);
    for (routes, path) in [
        // By a parameter.
        (vec![admin, ("path_pattern = \"/{lang}/{page}\"", PUBLIC)], "/admin/{…}"),
        (vec![admin, ("path_pattern = \"/{page}\"", PUBLIC)], "/admin"),
        (
            vec![("path_pattern = \"/{team}/admin\"", GUARDED), ("path_pattern = \"/open/{page}\"", PUBLIC)],
            "/open/admin",
        ),
        // By requests that the guard does not match.
        (
            vec![
                ("path_prefix = \"/admin\"\nmethods = [\"GET\", \"POST\"]", GUARDED),
                ("path_prefix = \"/\"", PUBLIC),
            ],
            "/admin and below",
        ),
        (
            vec![("path_prefix = \"/admin\"\nheaders = { x-a = \"1\" }", GUARDED), ("", PUBLIC)],
            "/admin and below",
        ),
        (vec![("path = \"/admin\"\nwhen = \"request.method == 'GET'\"", GUARDED), ("", PUBLIC)], "/admin"),
        // By a more specific host.
        (vec![admin, ("hosts = [\"a.example\"]", PUBLIC)], "a.example/admin and below"),
        (
            vec![
                ("hosts = [\"*.example\"]\npath_prefix = \"/admin\"", GUARDED),
                ("hosts = [\"a.example\"]\npath_prefix = \"/\"", PUBLIC),
            ],
            "a.example/admin and below",
        ),
        // By another token, without the policy.
        (
            vec![
                admin,
                (
                    "path_pattern = \"/{lang}/{page}\"",
                    "auth = { issuer = \"main\", scopes = [\"y\"] }\nservice = \"s\"",
                ),
            ],
            "/admin/{…}",
        ),
        (
            vec![
                ("path_prefix = \"/admin\"\npolicy = [{ deny = \"true\" }]", PUBLIC),
                ("path_pattern = \"/{lang}/{page}\"", PUBLIC),
            ],
            "/admin/{…}",
        ),
        // The same path for all methods: the open ones are not named.
        (
            vec![
                ("path_prefix = \"/admin\"\nmethods = [\"POST\"]", GUARDED),
                ("path_prefix = \"/admin\"", PUBLIC),
            ],
            "/admin and below",
        ),
        // A third route that covers only a part of it.
        (
            vec![
                ("path_prefix = \"/admin\"\nmethods = [\"GET\"]", GUARDED),
                ("", PUBLIC),
                ("path_prefix = \"/admin\"\nmethods = [\"POST\"]", GUARDED),
            ],
            "/admin and below",
        ),
    ] {
        let told = told(&routes);
        let first = told.first().unwrap_or_else(|| panic!("nothing of {routes:?}"));
        assert!(
            first.contains(&format!("takes requests for {path} that \"r0\" at ")),
            "{routes:?}: {told:?}"
        );
        assert!(first.contains("warning: ") && first.contains("cardea.toml:"), "{first}");
        assert!(first.contains("opens = [\"r0\"] says that it is meant"), "{first}");
    }
    // The locations of the opening and of the guarding route.
    let told = told(&[admin, ("path_pattern = \"/{lang}/{page}\"", PUBLIC)]);
    assert_eq!(told.len(), 1, "{told:?}");
    let line = |text: &str| {
        text.split("cardea.toml:").map(|part| part.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lines = line(&told[0]);
    assert_eq!((lines[1].as_str(), lines[2].as_str()), ("18", "13"), "{told:?}");
}

#[test]
fn exceptions_that_are_written_as_such_are_not() {
    let admin = ("path_prefix = \"/admin\"", GUARDED);
    let by_method = ("path_prefix = \"/admin\"\nmethods = [\"GET\", \"POST\"]", GUARDED);
    let pages = "path_pattern = \"/{lang}/{page}\"";
    for routes in [
        vec![admin, ("", PUBLIC)],
        vec![admin, ("path = \"/admin/health\"", PUBLIC)],
        vec![admin, ("path_pattern = \"/admin/{page}\"", PUBLIC)],
        vec![("", GUARDED), ("path_pattern = \"/{lang}/{page}\"", PUBLIC)],
        vec![by_method, ("path_prefix = \"/admin\"\nmethods = [\"PUT\"]", PUBLIC)],
        vec![by_method, ("path_prefix = \"/\"\nmethods = [\"GET\"]", PUBLIC)],
        vec![by_method, ("path_prefix = \"/other\"", PUBLIC)],
        // Third routes that are as strict, or that no service is behind.
        vec![by_method, ("", PUBLIC), admin],
        vec![
            by_method,
            ("", PUBLIC),
            ("path_prefix = \"/admin\"", "auth = \"public\"\nrespond = { status = 405 }"),
        ],
        vec![admin, (pages, PUBLIC), ("path_pattern = \"/admin/{page}\"", GUARDED)],
        // No service is opened.
        vec![admin, (pages, "auth = \"public\"\nrespond = { status = 404 }")],
        vec![("path_prefix = \"/admin\"", "auth = { issuer = \"main\" }\nrespond = {}"), (pages, PUBLIC)],
        // As strict or stricter.
        vec![admin, (pages, GUARDED)],
        vec![admin, (pages, "auth = { issuer = \"main\", scopes = [\"x\", \"y\"] }\nservice = \"s\"")],
        // The requests differ.
        vec![
            ("hosts = [\"a.example\"]\npath_prefix = \"/admin\"", GUARDED),
            ("hosts = [\"b.example\"]", PUBLIC),
        ],
        vec![
            ("hosts = [\"a.example\"]\npath_prefix = \"/admin\"", GUARDED),
            ("hosts = [\"a.example\"]", PUBLIC),
        ],
        vec![admin, ("path_pattern = \"/{lang}/x/{page}\"\nhosts = [\"x.example\"]", GUARDED)],
        // Intended.
        vec![admin, (pages, "opens = [\"r0\"]\nauth = \"public\"\nservice = \"s\"")],
    ] {
        assert_eq!(told(&routes), Vec::<String>::new(), "{routes:?}");
    }
}

#[test]
fn what_is_meant_is_a_route() {
    for name in ["r7", "r1"] {
        let rest = format!("opens = [{name:?}]\n{PUBLIC}");
        let told = told(&[("path_prefix = \"/admin\"", GUARDED), ("path_prefix = \"/x\"", rest.as_str())]);
        assert!(told.len() == 1 && told[0].contains("is no other route"), "{told:?}");
    }
}
