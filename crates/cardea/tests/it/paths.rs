//! What rules read of paths, hosts and queries is what is served, however a client writes them.

use crate::support::{Folder, Server, folder::Settings};

const RULES: &str = r#"
[[policy]]
deny = "request.host == 'closed.test'"

[[route]]
name = "plain"
path_prefix = "/plain"
auth = "public"
respond = { body = "{path}" }

[[route]]
name = "guarded"
path_prefix = "/api"
auth = "public"
policy = [{ deny = "request.path == '/api/admin' || request.path.startsWith('/api/admin/')" }]
respond = {}

[[route]]
name = "allowing"
path_prefix = "/allowing"
auth = "public"
allow_encoded = [";"]
policy = [{ deny = "request.path.startsWith('/allowing/admin')" }]
respond = {}

[[route]]
name = "when"
path_prefix = "/when"
when = "request.path == '/when/admin'"
auth = "public"
policy = [{ deny = "true" }]
respond = {}

[[route]]
name = "when-else"
path_prefix = "/when"
auth = "public"
respond = {}

[[route]]
name = "export"
hosts = ["files.test"]
path_prefix = "/tenants"
auth = "public"
when = "request.path.endsWith('/export')"
policy = [{ deny = "true" }]
respond = {}

[[route]]
name = "files"
hosts = ["files.test"]
path_prefix = "/"
auth = "public"
respond = {}

[[route]]
name = "parameters"
path_pattern = "/users/{id}/keys"
auth = "public"
policy = [{ deny = "route.parameters.id == 'root'" }]
respond = {}

[[attribute]]
name = "area"
template = "{request.path}"

[[route]]
name = "custom"
path_prefix = "/custom"
auth = "public"
policy = [{ deny = "custom.area == '/custom/admin'" }]
respond = {}

[[route]]
name = "attributes"
path_prefix = "/attributes"
auth = "public"
attributes = [{ set = { "custom.area" = "x" }, when = "request.path == '/attributes/admin'" }]
respond = {}

[[route]]
name = "headers"
path_prefix = "/headers"
auth = "public"
response_headers = { set = { "x-frame-options" = "DENY" }, when = "request.path == '/headers/admin'" }
respond = {}

[[route]]
name = "shows"
path_prefix = "/shows"
auth = "public"
response_headers = { set = { "x-path" = "{request.path}" } }
respond = {}

[[route]]
name = "moved"
path_prefix = "/moved"
auth = "public"
redirect = { to = "https://{request.host}/new", status = 302 }

[[route]]
name = "moved-with"
path_prefix = "/moved/with"
auth = "public"
redirect = { to = "http://{request.authority}/new?from=old#part", status = 302 }

[[route]]
name = "moved-without"
path_prefix = "/moved/without"
auth = "public"
redirect = { to = "/new", keep_query = false }

[[route]]
name = "moved-by-hand"
path_prefix = "/moved/by-hand"
auth = "public"
redirect = { to = "/new?{request.query}", status = 302 }

[[route]]
name = "moved-by-host"
path_prefix = "/moved/by-host"
auth = "public"
redirect = { to = "https://{request.query_params.h}.test{request.path}", keep_query = false, status = 302 }
"#;

fn start() -> (Folder, Server) {
    let folder = Folder::new(&Settings::default());
    folder.configure(&Settings { more: RULES.to_owned(), ..Settings::default() });
    let server = Server::start(&folder);
    (folder, server)
}

#[test]
fn path_parameters_evade_no_rule() {
    let (_folder, server) = start();
    let mut connection = server.connect();
    let mut ask = |target: &str| {
        let answer = connection.request("GET", target, "", "").unwrap();
        let text = answer.text();
        let code =
            ["path_encoding_not_allowed", "policy_denied"].into_iter().find(|code| text.contains(code));
        (answer.status, code.unwrap_or_default())
    };
    let (refused, denied, served) = ((400, "path_encoding_not_allowed"), (403, "policy_denied"), (200, ""));
    for (target, expected) in [
        // The attacks, each beside what it evades and a control.
        ("/api/admin", denied),
        ("/api/admin/users", denied),
        ("/api/admin;x", refused),
        ("/api/admin;x/users", refused),
        ("/api/admin%3Bx", refused),
        ("/api/admin%3bx/users", refused),
        ("/api/;x/admin", refused),
        // Another segment, which no route names.
        ("/api;x/admin", (404, "")),
        ("/api/x;y/../admin", refused),
        ("/api/users", served),
        ("/when/admin", denied),
        ("/when/admin;x", refused),
        ("/when/admin%3B", refused),
        ("/when/users", served),
        ("/users/root/keys", denied),
        ("/users/root;x/keys", refused),
        ("/users/a/keys", served),
        ("/custom/admin", denied),
        ("/custom/admin;x", refused),
        ("/attributes/admin;x", refused),
        ("/headers/admin;x", refused),
        ("/headers/admin", served),
        // Where nothing decides by the path, or the route says so, they pass.
        ("/plain/a;x=1/b", served),
        ("/shows/a;x=1", served),
        ("/allowing/users;x", served),
        ("/allowing/admin;x", denied),
    ] {
        assert_eq!(ask(target), expected, "{target}");
    }
}

/// The condition is met only by the search for the path that a service without parameters sees.
#[test]
fn path_parameters_evade_no_condition_of_a_route_that_they_hide() {
    let (_folder, server) = start();
    for (target, status) in [
        ("/tenants/1/export", 403),
        ("/tenants;x/1/export;y", 400),
        ("/tenants;x/1/export", 400),
        ("/tenants/1/list", 200),
        ("/other;x/1/list", 200),
    ] {
        let mut connection = server.connect();
        let answer = connection.request_at("files.test", "GET", target, "", "").unwrap();
        assert_eq!(answer.status, status, "{target}");
    }
}

#[test]
fn no_port_evades_a_rule_about_hosts() {
    let (_folder, server) = start();
    for (host, status) in [
        ("closed.test", 403),
        ("closed.test:81", 403),
        ("CLOSED.test.:8443", 403),
        ("closed.test:443", 403),
        ("gateway.test", 200),
    ] {
        let mut connection = server.connect();
        let answer = connection.request_at(host, "GET", "/plain", "", "").unwrap();
        assert_eq!(answer.status, status, "{host}");
    }
}

#[test]
fn a_query_leads_a_redirect_to_no_other_host() {
    let (_folder, server) = start();
    let ask = |target: &str| {
        let answer = server.connect().request("GET", target, "", "").unwrap();
        (answer.status, answer.head.field("location").map(str::to_owned))
    };
    let good = Some("https://shop.test/moved/by-host/a".to_owned());
    assert_eq!(ask("/moved/by-host/a?h=shop"), (302, good));
    for value in
        ["evil.com%2F", "evil.com%23", "evil.com%3F", "a@evil.com%5c", "evil.com%20", "%0D%0AX:y", ""]
    {
        assert_eq!(ask(&format!("/moved/by-host/a?h={value}")), (400, None), "{value}");
    }
    assert_eq!(ask("/moved/by-host/a"), (400, None));
}

#[test]
fn redirects_keep_the_query() {
    let (_folder, server) = start();
    for (target, location) in [
        ("/moved?a=1&b=%20", "https://gateway.test/new?a=1&b=%20"),
        ("/moved", "https://gateway.test/new"),
        ("/moved?", "https://gateway.test/new"),
        ("/moved/with?a=1", "http://gateway.test:8443/new?from=old&a=1#part"),
        ("/moved/with", "http://gateway.test:8443/new?from=old#part"),
        ("/moved/without?a=1", "/new"),
        ("/moved/by-hand?a=1", "/new?a=1"),
        ("/moved/by-hand", "/new"),
    ] {
        let mut connection = server.connect();
        let answer = connection.request_at("gateway.test:8443", "GET", target, "", "").unwrap();
        assert_eq!(answer.head.field("location"), Some(location), "{target}: {}", answer.status);
    }
}
