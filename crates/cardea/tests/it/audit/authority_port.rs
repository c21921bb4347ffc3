//! A host is the same host at every port, in every spelling.

use super::lab::{Hello, Lab, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[attribute]]
name = "inner"
expression = "request.host == 'admin.test'"

[[attribute]]
name = "zone"
map = { file = "zones.json", key = "{request.host}", default = "outer" }

[[policy]]
deny = "request.host == 'admin.test'"

[[policy]]
deny = "request.host.endsWith('.internal.test')"

[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "attribute"
path = "/attribute"
auth = "public"
policy = [{ deny = "custom.inner" }, { deny = "custom.zone == 'inner'" }]
service = "origin"
"#;

/// Spellings of one name, each of which is a host that a client may ask for.
fn spellings(name: &str) -> Vec<String> {
    let mixed: String = name
        .chars()
        .enumerate()
        .map(|(index, c)| if index % 2 == 0 { c.to_ascii_uppercase() } else { c })
        .collect();
    let mut all = Vec::new();
    for name in [name.to_owned(), name.to_ascii_uppercase(), mixed] {
        for dot in ["", "."] {
            for port in
                ["", ":", ":80", ":443", ":81", ":8443", ":0", ":1", ":65535", ":080", ":00443", ":000081"]
            {
                all.push(format!("{name}{dot}{port}"));
            }
        }
    }
    all
}

#[test]
fn a_policy_on_a_host_holds_at_every_port() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        let hello = Hello::to(HOST);
        lab.reach(way, &Request::get("other.test:81", "/")).expect("the control").assert_canonical();
        for host in spellings("admin.test")
            .into_iter()
            .chain(["a.internal.test:81".into(), "A.Internal.test.:1".into()])
        {
            let mut wire = lab.connect(way, hello).unwrap();
            let status = wire.send(&Request::get(&host, "/")).status;
            assert!(matches!(status, 0 | 400 | 403 | 421), "{way:?} {host}: {status}");
        }
    }
    lab.finish("/");
}

#[test]
fn attributes_of_a_host_do_not_depend_on_the_port() {
    let lab = Lab::new(&ROUTES.replace("[[policy]]\ndeny = \"request.host == 'admin.test'\"\n", ""));
    for way in Way::BOTH {
        lab.reach(way, &Request::get("other.test:81", "/attribute")).expect("the control").assert_canonical();
        lab.reach(way, &Request::get("admin.test:81", "/")).expect("the control").assert_canonical();
        for host in spellings("admin.test") {
            let status = lab.send(way, &Request::get(&host, "/attribute")).status;
            assert!(matches!(status, 0 | 400 | 403), "{way:?} {host}: {status}");
        }
    }
    lab.finish("/");
}

#[test]
fn a_target_in_absolute_form_names_the_same_host() {
    let lab = Lab::new(ROUTES);
    for way in Way::H1 {
        let scheme = if way.is_tls() { "https" } else { "http" };
        lab.reach(way, &Request::get("other.test:81", &format!("{scheme}://other.test:81/")))
            .expect("the control");
        for host in spellings("admin.test") {
            for (authority, target) in [
                (host.as_str(), format!("{scheme}://{host}/")),
                ("other.test", format!("{scheme}://{host}/")),
                (host.as_str(), format!("{scheme}://{host}")),
                ("", format!("{scheme}://{host}/")),
            ] {
                let status = lab.send(way, &Request::get(authority, &target)).status;
                assert_ne!(status, 200, "{way:?} Host: {authority}, {target}");
            }
        }
    }
    lab.finish("/");
}
