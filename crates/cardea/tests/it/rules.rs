//! Policies, attributes, headers and the access log of a server as its users run it.

use std::os::unix::net::UnixDatagram;

use crate::support::{Folder, Server, client::HOST, folder::Settings};

const RULES: &str = r#"
[[attribute]]
name = "team"
map = { file = "teams.map", key = "{request.headers.x-app}", default = "none" }

[[policy]]
deny = "request.path.startsWith('/closed')"

[[route]]
name = "team"
path_prefix = "/team"
auth = "public"
policy = [{ deny = "custom.team == 'none'", reason = "teams only", show = true }]
response_headers = { set = { "x-team" = "{custom.team}" } }
respond = { body = "welcome" }
"#;

fn app(name: &str) -> String {
    format!("X-App: {name}\r\n")
}

#[test]
fn rules_are_those_of_the_last_good_configuration_and_maps_are_read_again() {
    let folder = Folder::new(&Settings::default());
    folder.write("teams.map", "a red\n");
    folder.configure(&Settings { more: RULES.to_owned(), ..Settings::default() });
    let server = Server::start(&folder);
    let mut connection = server.connect();
    let mut ask = |name: &str| {
        let answer = connection.request("GET", "/team/x", &app(name), "").unwrap();
        (answer.status, answer.head.field("x-team").map(str::to_owned), answer.text())
    };
    let (status, header, _) = ask("a");
    assert_eq!((status, header.as_deref()), (200, Some("red")));
    let (status, _, problem) = ask("b");
    assert_eq!(status, 403);
    assert!(
        problem.contains("\"code\":\"policy_denied\"") && problem.contains("\"detail\":\"teams only\""),
        "{problem}"
    );

    folder.write("teams.map", "b blue\n");
    assert_eq!(ask("b").0, 403, "nothing is read before it is asked for");
    assert!(server.reload().0);
    assert_eq!((ask("a").0, ask("b").0), (403, 200));

    // A file that is no map, and an expression that is none, change nothing.
    folder.write("teams.map", "b\n");
    assert!(!server.reload().0);
    folder.write("teams.map", "c green\n");
    let bad = RULES.replace("custom.team == 'none'", "custom.teem == 'none'");
    folder.configure(&Settings { more: bad, ..Settings::default() });
    let (taken, line) = server.reload();
    assert!(!taken && line.contains("did you mean \\\"custom.team\\\"?"), "{line}");
    assert_eq!((ask("b").0, ask("c").0), (200, 403));
    server.stop();
}

#[test]
fn lines_reach_a_syslog_server_with_the_fields_that_were_chosen() {
    let folder = Folder::new(&Settings { more: RULES.to_owned(), ..Settings::default() });
    folder.write("teams.map", "a red\n");
    let socket = folder.file("log.sock");
    let syslog = UnixDatagram::bind(&socket).unwrap();
    syslog.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let text = folder.read("cardea.toml").replace(
        "path = \"access.log\"",
        &format!(
            "path = \"syslog:{}\"\nsyslog_facility = \"local0\"\nwhen = \"request.path != '/version'\"\n\
             fields = {{ path = \"request.path\", query = \"request.query\", team = \"custom.team\", why = \"policy.reason\" }}",
            socket.display()
        ),
    );
    folder.write("cardea.toml", &text);
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get("/version").unwrap().status, 200);
    assert_eq!(connection.request("GET", "/team?token=secret&a=%0a", &app("a"), "").unwrap().status, 200);
    let mut buffer = [0; 2048];
    let count = syslog.recv(&mut buffer).unwrap();
    let line = String::from_utf8_lossy(&buffer[..count]).into_owned();
    assert!(line.starts_with("<134>1 20"), "{line}");
    let expected = format!(
        " cardea {} access - {{\"path\":\"/team\",\"query\":\"token=[redacted]&a=%0a\",\"team\":\"red\"}}",
        server.program.id()
    );
    assert!(line.ends_with(&expected), "{line}");
    server.stop();
}

#[test]
fn a_route_is_chosen_by_attributes_that_are_made_of_the_request() {
    const ROUTES: &str = r#"
[[attribute]]
name = "team"
map = { file = "teams.map", key = "{request.headers.x-app}" }

[[attribute]]
name = "label"
template = "{custom.team|none}/{request.method}"

[[attribute]]
name = "inside"
expression = "custom.label.endsWith('/GET') && source.address in cidr('127.0.0.0/8')"

[[route]]
name = "red"
path = "/choice"
auth = "public"
when = "has(custom.team) && custom.team == 'röd' && custom.inside"
attributes = { remove = ["request.headers.x-app"] }
response_headers = { set = { "x-label" = "{custom.label}" } }
respond = { body = "red" }

[[route]]
name = "others"
path = "/choice"
auth = "public"
response_headers = { set = { "x-label" = "{custom.label}" } }
respond = { body = "others" }
"#;
    let folder = Folder::new(&Settings::default());
    folder.write("teams.map", "a röd\nzoë röd\nb blå\n");
    folder.configure(&Settings { more: ROUTES.to_owned(), ..Settings::default() });
    let text = format!("header_encoding = \"latin-1\"\n{}", folder.read("cardea.toml"));
    folder.write("cardea.toml", &text);
    let server = Server::start(&folder);
    let mut connection = server.connect();
    let mut ask = |method: &str, name: &[u8]| {
        let head = format!("{method} /choice HTTP/1.1\r\nHost: {HOST}\r\nX-App: ");
        connection.send(&[head.as_bytes(), name, b"\r\n\r\n"].concat()).unwrap();
        let answer = connection.answer().unwrap().unwrap();
        (answer.text(), answer.head.field("x-label").map(str::to_owned).unwrap_or_default())
    };
    for (method, name, route, label) in [
        // The attribute is made anew once the header that it is made of is gone.
        ("GET", b"a".as_slice(), "red", "none/GET"),
        ("POST", b"a", "others", "r\u{f6}d/POST"),
        ("GET", b"b", "others", "bl\u{e5}/GET"),
        ("GET", b"c", "others", "none/GET"),
        ("GET", b"zo\xEB", "red", "none/GET"),
        // That is another name in Latin-1.
        ("GET", b"zo\xC3\xAB", "others", "none/GET"),
    ] {
        assert_eq!(ask(method, name), (route.to_owned(), label.to_owned()), "{}", name.escape_ascii());
    }
    server.stop();
}
