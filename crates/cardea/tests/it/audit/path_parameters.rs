//! Path parameters: what a policy refuses at `/api/admin` is refused at `/api/admin;x`, which servlet containers serve as
//! `/api/admin`.

use super::lab::{Lab, Request, Way, origin::servlet_path};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[attribute]]
name = "area"
expression = "request.path.startsWith('/attribute/admin')"

[[attribute]]
name = "copy"
template = "{request.path}"

[[policy]]
deny = "request.path.startsWith('/api/admin')"

[[route]]
name = "root"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "route"
path_prefix = "/route"
auth = "public"
policy = [{ deny = "request.path == '/route/admin' || request.path.matches('^/route/admin/.*$')" }]
service = "origin"

[[route]]
name = "attribute"
path_prefix = "/attribute"
auth = "public"
policy = [{ deny = "custom.area" }]
service = "origin"

[[route]]
name = "template"
path_prefix = "/template"
auth = "public"
policy = [{ deny = "custom.copy.startsWith('/template/admin')" }]
service = "origin"

[[route]]
name = "parameter"
path_pattern = "/parameter/{area}/{*rest}"
auth = "public"
policy = [{ deny = "route.parameters.area == 'admin'" }]
service = "origin"

[[route]]
name = "styles"
path_prefix = "/styles"
auth = "public"
policy = [{ allow = "request.path.endsWith('.css')" }]
service = "origin"

[[route]]
name = "headers"
path_prefix = "/headers"
auth = "public"
request_headers = { remove = ["x-admin"], when = "request.path.startsWith('/headers/admin')" }
service = "origin"

[[route]]
name = "when"
path_prefix = "/when"
when = "!request.path.startsWith('/when/admin')"
auth = "public"
service = "origin"

[[route]]
name = "when-else"
path_prefix = "/when"
auth = { issuer = "own" }
service = "origin"

[[route]]
name = "matrix"
path_prefix = "/matrix"
auth = "public"
allow_encoded = [";"]
service = "origin"
"#;

/// Nothing but changes to headers reads the path.
const COMPUTED: &str = r#"
[[attribute]]
name = "copy"
template = "{request.path}"

[[attribute]]
name = "computed_area"
expression = "request.path.startsWith('/computed/admin') ? 'admin' : 'public'"

[[attribute]]
name = "copied_area"
template = "{custom.computed_area}"

[[attribute]]
name = "zone"
map = { file = "zones.json", key = "{custom.copy}", default = "outer" }

[[route]]
name = "root"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "computed"
path_prefix = "/computed"
auth = "public"
request_headers = { set = { "x-area" = "{custom.copied_area}" } }
service = "origin"

[[route]]
name = "mapped"
path_prefix = "/mapped"
auth = "public"
request_headers = { set = { "x-zone" = "{custom.zone}" } }
service = "origin"

[[route]]
name = "shown"
path_prefix = "/shown"
auth = "public"
request_headers = { set = { "x-path" = "{custom.copy}" } }
service = "origin"
"#;

/// Spellings of `/AREA/admin` and of what is below it.
const SPELLINGS: [&str; 26] = [
    "/AREA/admin",
    "/AREA/admin/users",
    "/AREA/admin;x",
    "/AREA/admin;",
    "/AREA/admin;x=1",
    "/AREA/admin;x/users",
    "/AREA/admin;;/users",
    "/AREA/admin/;x/users",
    "/AREA/admin%3Bx",
    "/AREA/admin%3bx/users",
    "/AREA/%61dmin%3Bx",
    "/AREA/%61dmin;x",
    "/AREA;x/admin",
    "/AREA;/admin",
    "/AREA%3Bx/admin/users",
    "/;x/AREA/admin",
    "/;/AREA/admin",
    "/%3B/AREA/admin",
    "/AREA/;x/admin",
    "/AREA/x/..;/admin",
    "/AREA/x/..%3Ba/admin",
    "/AREA/x/%2e%2e;/admin",
    "/AREA/.;/admin",
    "/AREA/.;x/./admin",
    "/AREA/public;/../admin",
    "/AREA//;x//admin",
];

#[test]
fn a_policy_holds_for_every_spelling_of_a_path() {
    let lab = Lab::new(ROUTES);
    for area in ["api", "route", "attribute", "template", "when"] {
        for way in Way::BOTH {
            let control = lab.reach(way, &Request::get(HOST, &format!("/{area}/users")));
            control.unwrap_or_else(|| panic!("{area}: the control")).assert_canonical();
            for spelling in SPELLINGS {
                let target = spelling.replace("AREA", area);
                assert!(servlet_path(&target).starts_with(&format!("/{area}/admin")), "{target}: no attack");
                let record = lab.reach(way, &Request::get(HOST, &target));
                let path = record.map(|record| record.only().servlet_path());
                assert_eq!(path, None, "{way:?} {target}");
            }
        }
    }
    lab.finish("/users");
}

#[test]
fn every_listener_refuses_them() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for target in ["/api/admin;x", "/api/admin%3Bx", "/api;x/admin", "/api/admin;x?a=b"] {
            let status = lab.send(way, &Request::get(HOST, target)).status;
            assert!(matches!(status, 400 | 403 | 404), "{way:?} {target}: {status}");
        }
        lab.reach(way, &Request::get(HOST, "/api/users")).unwrap().assert_canonical();
    }
    for target in [format!("http://{HOST}/api/admin;x"), format!("HTTP://{HOST}:80/api;/admin")] {
        let status = lab.send(Way::Plain, &Request::get(HOST, &target)).status;
        assert!(matches!(status, 400 | 403 | 404), "{target}: {status}");
    }
    lab.finish("/users");
}

#[test]
fn parameters_of_a_pattern_and_conditions_hold_for_every_spelling() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        lab.reach(way, &Request::get(HOST, "/parameter/sales/x")).expect("the control").assert_canonical();
        for target in
            ["/parameter/admin/x", "/parameter/admin;a/x", "/parameter/admin%3Ba/x", "/parameter/%61dmin;/x"]
        {
            assert!(lab.reach(way, &Request::get(HOST, target)).is_none(), "{way:?} {target}");
        }
        // An ending that is only a parameter's.
        lab.reach(way, &Request::get(HOST, "/styles/a.css")).expect("the control").assert_canonical();
        for target in
            ["/styles/secret", "/styles/secret;.css", "/styles/secret;a=.css", "/styles/secret%3B.css"]
        {
            assert!(lab.reach(way, &Request::get(HOST, target)).is_none(), "{way:?} {target}");
        }
        let with = |target: &str| Request::get(HOST, target).with("X-Admin", "1");
        let record = lab.reach(way, &with("/headers/users")).expect("the control");
        assert_eq!(record.only().values("x-admin"), ["1"]);
        for target in [
            "/headers/admin",
            "/headers/admin;x",
            "/headers;x/admin",
            "/headers/admin%3Bx",
            "/headers/;/admin",
        ] {
            if let Some(record) = lab.reach(way, &with(target)) {
                assert!(record.only().values("x-admin").is_empty(), "{way:?} {target}");
            }
        }
    }
    lab.finish("/users");
}

#[test]
fn headers_that_are_computed_from_the_path_hold_for_every_spelling() {
    let lab = Lab::new(COMPUTED);
    for way in Way::BOTH {
        for (area, header, value) in [("computed", "x-area", "public"), ("mapped", "x-zone", "outer")] {
            let record = lab.reach(way, &Request::get(HOST, &format!("/{area}/users"))).expect("the control");
            assert_eq!(record.only().values(header), [value], "{way:?}");
            for spelling in SPELLINGS {
                let target = spelling.replace("AREA", area);
                if area == "mapped" && servlet_path(&target) != "/mapped/admin" {
                    continue;
                }
                if let Some(record) = lab.reach(way, &Request::get(HOST, &target)) {
                    assert_ne!(record.only().values(header), [value], "{way:?} {target}");
                }
            }
        }
        // What merely shows the path decides nothing.
        let record = lab.reach(way, &Request::get(HOST, "/shown/items;color=red")).expect("the control");
        assert_eq!(record.only().values("x-path"), ["/shown/items;color=red"]);
    }
    lab.finish("/users");
}

#[test]
fn a_route_that_allows_them_gets_them() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        let record =
            lab.reach(way, &Request::get(HOST, "/matrix/items;color=red/1")).expect("it allows them");
        assert_eq!(record.only().target(), "/matrix/items;color=red/1");
    }
    lab.finish("/users");
}
