//! What is known of real requests: every attribute as the access log reads it, and headers that are made of them.

use std::collections::BTreeMap;

use cardea_config::Config;
use cardea_gateway::{attributes::TABLE, model::HeaderRule};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client_certificates::Bench;
use crate::support::{
    Client, Origin, Spec, add_rules, certificates::Certificates, get, run, unchecked, until,
};

/// Members of families, one or more of each.
const MEMBERS: [&str; 17] = [
    "request.headers.x-team",
    "request.headers.x-twice",
    "request.headers.x-api-key",
    "request.headers.referer",
    "request.first_header.x-twice",
    "request.query_params.name",
    "request.query_params.twice",
    "request.query_params.access_token",
    "request.cookies.theme",
    "token.claims.email",
    "token.claims.realm_access.roles",
    "token.claims.level",
    "token.claims.https://a.example/groups",
    "route.parameters.id",
    "route.parameters.none",
    "response.headers.x-origin",
    "response.headers.x-set",
];

/// With a line with every attribute there is, under its own name.
fn spec(origin: &Origin) -> Spec {
    let fixed = TABLE.attributes().map(|attribute| attribute.name);
    let users = "path_pattern = '/users/{id}/things'\n\
        response_headers.set = { x-set = '{response.status} {request.id}' }";
    Spec::to(origin).logging(fixed.chain(MEMBERS)).route("users", users)
}

/// What a value must be.
enum Is {
    Exactly(Value),
    Such(fn(&Value) -> bool),
    Absent,
}

fn is(value: impl Into<Value>) -> Is {
    Is::Exactly(value.into())
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 24 && text.starts_with("20") && text.ends_with('Z'))
}

fn number(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 0.0)
}

fn check(line: &Value, expected: &[(&'static str, Is)], seen: &mut Seen) {
    for (name, wanted) in expected {
        let found = line.get(name);
        let holds = match wanted {
            Is::Exactly(value) => found == Some(value),
            Is::Such(holds) => found.is_some_and(holds),
            Is::Absent => found.is_none(),
        };
        assert!(holds, "{name} is {found:?} in {line:#}");
        // An attribute that nothing ever has would pass as absent.
        *seen.entry(name).or_default() |= !matches!(wanted, Is::Absent);
    }
}

/// Without TLS and token, on a route with parameters.
fn plain() -> Vec<(&'static str, Is)> {
    vec![
        ("request.id", Is::Such(|value| value.as_str().is_some_and(|text| text.len() == 26))),
        ("request.time", Is::Such(time)),
        ("request.method", is("GET")),
        ("request.scheme", is("http")),
        ("request.host", is("a.example")),
        ("request.port", is(80)),
        ("request.authority", is("a.example")),
        ("request.path", is("/users/7/things")),
        ("request.query", is("name=%61b+c&twice=1&twice=2&access_token=[redacted]")),
        ("request.protocol", is("HTTP/1.1")),
        ("request.size", is(0)),
        ("request.duration", Is::Such(number)),
        ("request.headers.x-team", is("red")),
        ("request.headers.x-twice", Is::Absent),
        ("request.headers.x-api-key", is("[redacted]")),
        ("request.headers.referer", is("https://b.example/?token=[redacted]")),
        ("request.first_header.x-twice", is("1")),
        ("request.query_params.name", is("ab c")),
        ("request.query_params.twice", Is::Absent),
        ("request.query_params.access_token", is("[redacted]")),
        ("request.cookies.theme", is("[redacted]")),
        ("source.address", is("127.0.0.1")),
        ("source.port", Is::Such(number)),
        ("connection.peer", is("127.0.0.1")),
        ("connection.listener", is("test")),
        ("destination.address", is("127.0.0.1")),
        ("destination.port", Is::Such(number)),
        ("connection.tls.version", Is::Absent),
        ("token.sub", Is::Absent),
        ("route.name", is("users")),
        ("route.parameters.id", is("7")),
        ("route.parameters.none", Is::Absent),
        ("policy.effect", Is::Absent),
        ("service.name", is("main")),
        ("upstream.endpoint", Is::Such(text)),
        ("upstream.region", is("eu-west")),
        ("upstream.attempts", is(1)),
        ("upstream.reused", is(false)),
        ("upstream.connect_duration", Is::Such(number)),
        ("upstream.response_head_duration", Is::Such(number)),
        ("response.status", is(201)),
        ("response.size", is(2)),
        ("response.reason", Is::Absent),
        ("response.complete", is(true)),
        ("response.headers.x-origin", is("here")),
        (
            "response.headers.x-set",
            Is::Such(|value| value.as_str().is_some_and(|text| text.starts_with("201 "))),
        ),
        ("gateway.version", is(env!("CARGO_PKG_VERSION"))),
        ("gateway.region", is("eu-west")),
        ("gateway.hostname", Is::Such(text)),
    ]
}

/// Over TLS with a token and a body.
fn identified() -> Vec<(&'static str, Is)> {
    vec![
        ("request.method", is("POST")),
        ("request.scheme", is("https")),
        ("request.path", is("/api")),
        ("request.query", Is::Absent),
        ("request.size", is(5)),
        ("connection.tls.version", is("TLSv1.3")),
        ("connection.tls.cipher_suite", Is::Such(text)),
        ("connection.tls.hash", Is::Such(|value| value == "SHA256" || value == "SHA384")),
        ("connection.tls.group", Is::Such(text)),
        ("connection.tls.sni", is("a.example")),
        ("connection.tls.alpn", is("http/1.1")),
        ("connection.tls.resumed", is(false)),
        ("connection.tls.early_data", is(false)),
        ("token.iss", is("https://id.example")),
        ("token.issuer_name", is("main")),
        ("token.sub", is("alice")),
        ("token.client_id", is("app")),
        ("token.audiences", is(json!(["api", "other"]))),
        ("token.scopes", is(json!(["read", "write"]))),
        ("token.roles", is(json!(["reader"]))),
        ("token.id", is("1")),
        ("token.issued_at", Is::Such(time)),
        ("token.expires_at", Is::Such(time)),
        // Only presets know.
        ("token.kind", Is::Absent),
        ("connection.client_certificate.subject", Is::Absent),
        ("token.claims.email", is("alice@a.example")),
        ("token.claims.realm_access.roles", is(json!(["x", "y"]))),
        ("token.claims.level", is(3)),
        ("token.claims.https://a.example/groups", is(json!(["g"]))),
        ("route.name", is("api")),
        ("upstream.reused", is(true)),
        ("response.status", is(201)),
    ]
}

/// Over HTTP/2, refused.
fn refused() -> Vec<(&'static str, Is)> {
    vec![
        ("request.protocol", is("HTTP/2")),
        ("connection.tls.alpn", is("h2")),
        ("route.name", is("admin")),
        ("service.name", is("main")),
        ("upstream.endpoint", Is::Absent),
        ("upstream.attempts", Is::Absent),
        ("response.status", is(401)),
        ("response.reason", is("credentials_missing")),
        ("token.sub", Is::Absent),
    ]
}

/// From a client that shows a certificate.
fn certified() -> Vec<(&'static str, Is)> {
    vec![
        (
            "connection.client_certificate.subject",
            Is::Such(|value| value.as_str().is_some_and(|text| text.contains("CN=build"))),
        ),
        (
            "connection.client_certificate.names",
            is("dns:build.example uri:spiffe://a.example/build email:build@a.example"),
        ),
        ("connection.client_certificate.dns_names", is("build.example")),
        ("connection.client_certificate.uris", is("spiffe://a.example/build")),
        ("connection.client_certificate.emails", is("build@a.example")),
        (
            "connection.client_certificate.fingerprint",
            Is::Such(|value| value.as_str().is_some_and(|text| text.len() == 64)),
        ),
        (
            "connection.client_certificate.issuer",
            Is::Such(|value| value.as_str().is_some_and(|text| text.contains("CN=staff"))),
        ),
        ("connection.client_certificate.serial", Is::Such(text)),
        ("connection.client_certificate.not_after", is("2096-10-02T07:06:40.000Z")),
        ("connection.tls.sni", is("step.example")),
    ]
}

type Seen = BTreeMap<&'static str, bool>;

async fn check_certificates(origin: &Origin, seen: &mut Seen) {
    let bench = Bench::new();
    let gateway = spec(origin).with(bench.listener()).start().await;
    let names = ["dns:build.example", "uri:spiffe://a.example/build", "email:build@a.example"];
    let issued = bench.issue_named(&names);
    let mut client = bench.client(&gateway, "step.example", Some(&issued)).await;
    let request = "GET / HTTP/1.1\r\nHost: step.example\r\n\r\n";
    assert_eq!(client.exchange(request).await.status, 201);
    check(&gateway.log(1).await[0], &certified(), seen);
}

async fn check_throttles(origin: &Origin, seen: &mut Seen) {
    let one = |name: &str, more: &str| {
        format!("[[throttle]]\nname = '{name}'\nkey = []\nrate = '1/d'\nall_routes = true\n{more}\n")
    };
    let dry = one("dry", "dry_run = true\nwhen = \"request.path == '/dry'\"");
    let gateway = spec(origin).with(dry).with(one("all", "burst = 2")).start().await;
    let mut client = gateway.client().await;
    let would_be = [("throttle.name", is("dry")), ("throttle.limited", is(false))];
    let refused = [("throttle.name", is("all")), ("throttle.limited", is(true))];
    let neither = || [("throttle.name", Is::Absent), ("throttle.limited", Is::Absent)];
    for (index, (status, expected)) in
        [(201, neither()), (201, would_be), (429, refused)].into_iter().enumerate()
    {
        assert_eq!(client.exchange(get("/dry")).await.status, status);
        check(&gateway.log(index + 1).await[index], &expected, seen);
    }
}

async fn check_tarpit(origin: &Origin, seen: &mut Seen) {
    let throttle = "[[throttle]]\nname = 't'\nkey = []\nrate = '1/d'\nall_routes = true";
    let tarpit = "[tarpit]\naction = 'hold'\noffences = 1\ndelay_min = '30s'\ndelay_max = '30s'";
    let gateway = spec(origin).with(throttle).with(tarpit).start().await;
    let mut client = gateway.client().await;
    let nothing =
        || [("tarpit.offence", Is::Absent), ("tarpit.outcome", Is::Absent), ("tarpit.delay", Is::Absent)];
    let tolerated =
        [("tarpit.offence", is("throttled")), ("tarpit.outcome", Is::Absent), ("tarpit.delay", Is::Absent)];
    let held =
        [("tarpit.offence", is("throttled")), ("tarpit.outcome", is("held")), ("tarpit.delay", is(30.0))];
    for (index, expected) in [nothing(), tolerated, held].into_iter().enumerate() {
        client.send(get("/")).await;
        check(&gateway.log(index + 1).await[index], &expected, seen);
        if index < 2 {
            client.response().await;
        }
    }
}

/// A request in flight, one that waits, and one whose time is up.
async fn check_admission(seen: &mut Seen) {
    let origin = Origin::silent().await;
    let limited = |max_age: &str| {
        let admission = format!("admission = {{ max_in_flight = 1, max_queue = 9, max_age = '{max_age}' }}");
        spec(&origin).with(format!("[[service]]\nname = 'main'\n{admission}"))
    };
    let gateway = limited("1m").start().await;
    let mut clients = Vec::new();
    for (in_flight, waiting) in [(1, 0), (1, 1)] {
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        clients.push(client);
        let limits = gateway.gateway.model().admission.limits.clone();
        until("it has arrived", || {
            let figures = limits[0].limit.figures();
            (figures.in_flight, figures.waiting) == (in_flight, waiting)
        })
        .await;
    }
    gateway.reload(limited("20ms"));
    assert_eq!(gateway.client().await.exchange(get("/")).await.status, 503);
    let waited = || Is::Such(|value| value.as_f64().is_some_and(|seconds| seconds > 0.0));
    let expected = [
        ("queue.duration", waited()),
        ("queue.priority", is("normal")),
        ("queue.size", is(1)),
        ("queue.age", waited()),
        ("queue.in_flight", is(1)),
        ("queue.limit", is(1)),
        ("queue.threshold", is(4)),
    ];
    check(&gateway.log(1).await[0], &expected, seen);
}

async fn check_policies(origin: &Origin, seen: &mut Seen) {
    let policy = "[[policy]]\ndeny = \"request.path == '/denied'\"\nreason = 'not that'";
    let gateway = spec(origin).public(policy).start().await;
    let mut client = gateway.client().await;
    assert_eq!(client.exchange(get("/denied")).await.status, 403);
    let denied = [("policy.effect", is("deny")), ("policy.reason", is("not that"))];
    check(&gateway.log(1).await[0], &denied, seen);
    assert_eq!(client.exchange(get("/")).await.status, 201);
    let allowed = [("policy.effect", is("allow")), ("policy.reason", Is::Absent)];
    check(&gateway.log(2).await[1], &allowed, seen);
}

/// Tokens whose issuer says for whom a client calls.
async fn check_kinds(origin: &Origin, seen: &mut Seen) {
    const TENANT: &str = "aaaaaaaa-1111-2222-3333-444444444444";
    let issuer = format!(
        "[[issuer]]\nname = 'main'\nlocal = true\naudiences = ['api']\npreset = 'entra'\ntenants = ['{TENANT}']"
    );
    let spec = spec(origin).without("issuer", "main").with(issuer).without("route", "other");
    let gateway = spec.start().await;
    let mut client = gateway.client().await;
    for (index, (claims, kind)) in [
        (json!({"idtyp": "app"}), is("application")),
        (json!({"idtyp": "user"}), is("user")),
        (json!({"scp": "read"}), is("user")),
        (json!({}), Is::Absent),
    ]
    .into_iter()
    .enumerate()
    {
        let mut all = json!({
            "iss": format!("https://login.microsoftonline.com/{TENANT}/v2.0"), "tid": TENANT, "ver": "2.0", "azp": "app",
        });
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let token = gateway.token_with(&all);
        let request =
            format!("GET /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n");
        assert_eq!(client.exchange(request).await.status, 201, "{claims}");
        let line = &gateway.log(index + 1).await[index];
        check(line, &[("token.kind", kind), ("token.client_id", is("app"))], seen);
    }
}

/// The table says which attributes there are: one that no request here has fails the test.
#[test]
fn each_attribute_reads_as_real_requests_have_it() {
    run(async {
        let certificates = Certificates::new();
        let answer = "HTTP/1.1 201 Created\r\nX-Origin: here\r\nContent-Length: 2\r\n\r\nok";
        let origin = Origin::answering(answer).await;
        let mut seen = BTreeMap::new();

        let gateway = spec(&origin).start().await;
        let request = "GET /users/./7/things?name=%61b+c&twice=1&twice=2&access_token=secret HTTP/1.1\r\n\
            Host: A.example:80\r\nX-Team: red\r\nX-Twice: 1\r\nX-Twice: 2\r\nX-Api-Key: secret\r\n\
            Referer: https://b.example/?token=secret\r\nCookie: a=1; theme=secret\r\n\r\n";
        assert_eq!(gateway.client().await.exchange(request).await.status, 201);
        check(&gateway.log(1).await[0], &plain(), &mut seen);
        assert!(!gateway.log_text().contains("secret"), "{}", gateway.log_text());

        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let token = gateway.token_with(&json!({
            "aud": ["api", "other"], "roles": ["reader"], "email": "alice@a.example", "level": 3,
            "realm_access": { "roles": ["x", "y"] }, "https://a.example/groups": ["g"],
        }));
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let mut client = Client::over(certificates.connect(tcp, "a.example", &["http/1.1"]).await);
        for _ in 0..2 {
            let request = format!(
                "POST /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\nContent-Length: 5\r\n\r\nhello"
            );
            assert_eq!(client.exchange(request).await.status, 201);
        }
        check(&gateway.log(2).await[1], &identified(), &mut seen);

        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let tls = certificates.connect(tcp, "a.example", &["h2"]).await;
        let (mut send, connection): (h2::client::SendRequest<bytes::Bytes>, _) =
            h2::client::handshake(tls).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::get("https://a.example/admin").body(()).unwrap();
        let response = send.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(response.status(), 401);
        check(&gateway.log(3).await[2], &refused(), &mut seen);
        let call = http::Request::post("https://a.example/admin").header("content-type", "application/grpc");
        let mut send = send.ready().await.unwrap();
        let response = send.send_request(call.body(()).unwrap(), true).unwrap().0.await.unwrap();
        assert_eq!(response.status(), 200);
        check(
            &gateway.log(4).await[3],
            &[("response.grpc_status", is(16)), ("response.status", is(401))],
            &mut seen,
        );
        connection.abort();
        assert!(!gateway.log_text().contains(&token));

        check_certificates(&origin, &mut seen).await;
        check_policies(&origin, &mut seen).await;
        check_throttles(&origin, &mut seen).await;
        check_tarpit(&origin, &mut seen).await;
        check_admission(&mut seen).await;
        check_kinds(&origin, &mut seen).await;
        for attribute in TABLE.attributes() {
            assert_eq!(seen.get(attribute.name), Some(&true), "{} was never there", attribute.name);
        }
        for family in TABLE.families() {
            let tested = seen.iter().any(|(name, there)| *there && name.starts_with(family.prefix));
            assert!(tested, "no member of {} was there", family.prefix);
        }
    });
}

#[test]
fn changes_to_headers_read_the_request_as_it_came_and_can_not_be_broken_out_of() {
    run(async {
        let origin = Origin::answering(
            "HTTP/1.1 200 OK\r\nServer: x\r\nX-Old: 1\r\nX-Old: 2\r\nContent-Length: 2\r\n\r\nok",
        )
        .await;
        // No configuration may set these.
        let framing = |config: &mut Config| {
            let public = config.routes.iter_mut().find(|route| route.name == "public").unwrap();
            let rename = HeaderRule::Rename("x-user".to_owned(), "content-length".to_owned());
            let set = unchecked("transfer-encoding", "chunked");
            add_rules(&mut public.value.settings.request_headers, vec![rename, set]);
        };
        let gateway = Spec::to(&origin)
            .public(
                r#"
                [request_headers]
                rename = { x-user = "x-caller" }
                remove = ["x-secret"]
                add = { x-hop = "gateway" }
                [request_headers.set]
                x-seen = "{request.headers.x-user} {request.query_params.q}"
                x-none = "{request.headers.x-absent}"
                x-path = "{route.parameters.x}{request.path}"
                [response_headers]
                rename = { x-old = "x-new" }
                remove = ["server"]
                set = { x-status = "{response.status} {response.headers.server}" }
                "#,
            )
            .resolved(framing)
            .start()
            .await;
        let mut client = gateway.client().await;
        // What the query decodes to would be two more headers and a request.
        let request = "GET /a?q=%0d%0aX-Injected:%201%0d%0a%0d%0aGET%20/b HTTP/1.1\r\nHost: a.example\r\nX-User: alice\r\n\
            X-Caller: forged\r\nX-Secret: 1\r\nX-None: forged\r\nX-Hop: client\r\n\r\n";
        let response = client.exchange(request).await;
        assert_eq!((response.status, response.headers("x-new")), (200, vec!["1", "2"]));
        assert_eq!((response.header("x-old"), response.header("server")), (None, None));
        assert_eq!(response.header("x-status"), Some("200 x"));
        let head = origin.text();
        let sent = |name: &str| {
            crate::support::client::headers(head.split("\r\n\r\n").next().unwrap(), name)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(sent("x-caller"), ["alice"], "{head}");
        assert_eq!(sent("x-seen"), ["alice   X-Injected: 1    GET /b"]);
        assert_eq!(sent("x-hop"), ["client", "gateway"]);
        assert_eq!(sent("x-path"), ["/a"]);
        for name in ["x-user", "x-secret", "x-none", "x-injected", "transfer-encoding", "content-length"] {
            assert_eq!(sent(name), Vec::<String>::new(), "{name} in {head}");
        }
        assert_eq!(head.matches("GET ").count(), 2, "one request, and the text in its header: {head}");

        // The new name of a header is ours, whether or not there is something to give to it.
        client.exchange("GET /c HTTP/1.1\r\nHost: a.example\r\nX-Caller: forged\r\n\r\n").await;
        assert!(!origin.text().contains("forged"), "{}", origin.text());
    });
}

/// The lines of requests for these paths, and one more, in a log that is chosen.
async fn logged(chosen: &str, paths: &[&str]) -> Vec<String> {
    let origin = Origin::ok().await;
    let gateway = Spec::to(&origin)
        .without("route", "public")
        .route("api", "auth = 'public'")
        .with("access_log.format = '{request.path} {response.status}'")
        .with(format!("[access_log]\n{chosen}"))
        .start()
        .await;
    let mut client = gateway.client().await;
    for path in paths {
        client.exchange(crate::support::get(path)).await;
    }
    // All of these logs have the last.
    client.exchange(crate::support::get("/last")).await;
    crate::support::until("the last line", || {
        assert!(gateway.gateway.access_log().unwrap().flush(std::time::Duration::from_secs(5)));
        gateway.log_text().contains("/last")
    })
    .await;
    gateway.log_text().lines().map(str::to_owned).collect()
}

#[test]
fn a_failed_log_condition_does_not_hide_a_request() {
    run(async {
        let paths = ["/api", "/none", "/api/x"];
        let all = ["/api 200", "/none 404", "/api/x 200", "/last 404"];
        assert_eq!(logged("", &paths).await, all);
        let some = logged("when = \"request.path != '/none'\"", &paths).await;
        assert_eq!(some, ["/api 200", "/api/x 200", "/last 404"]);
        let failing = logged("when = \"token.sub == 'x'\"", &paths).await;
        assert_eq!(failing, all);
        // Of a hundred requests, chance leaves out nearly all.
        let many = vec!["/api"; 100];
        let chance = "sample_one_in = 1_000_000\nsample_always = 'response.status >= 400'";
        let sampled = logged(chance, &many).await;
        assert!(sampled.len() < 50 && sampled.last().unwrap() == "/last 404", "{}", sampled.len());
    });
}

#[test]
fn the_combined_format_shows_one_line_whatever_a_client_sends() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).with("access_log.format = 'combined'").start().await;
        let request = "GET /a?token=secret HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a \"b\" \\x\r\n\r\n";
        assert_eq!(gateway.client().await.exchange(request).await.status, 200);
        crate::support::until("a line", || {
            assert!(gateway.gateway.access_log().unwrap().flush(std::time::Duration::from_secs(5)));
            !gateway.log_text().is_empty()
        })
        .await;
        let text = gateway.log_text();
        assert!(text.starts_with("127.0.0.1 - - [") && text.ends_with('\n'), "{text}");
        let rest = text.split_once("] ").unwrap().1;
        assert_eq!(rest, "\"GET /a?token=[redacted] HTTP/1.1\" 200 2 \"-\" \"a \\\"b\\\" \\\\x\"\n");
    });
}
