//! What is under way is judged as the request that began it would be if it came now: a case for each way in which its right
//! may end, and for each change that leaves it, over HTTP/1.1, HTTP/2 and WebSockets.

mod opened;

use std::{sync::Arc, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_gateway::builtin::ErrorFormat;
use cardea_identity::SKEW_DEFAULT;
use serde_json::json;
use tokio::net::TcpStream;

use crate::{
    builtin::Echo,
    support::{
        Client, Harness, Origin, Spec,
        certificates::Certificates,
        origin::OK,
        run,
        under_way::{Ticking, UnderWay, Way, begin},
        until,
    },
};

/// In 2030, at 17:46:40.
const BEGUN: i64 = 1_900_000_000;

/// How long the tokens of those live who are to lose their right, in seconds; others' live ten times as long.
const LIFE: i64 = 300;

/// Old enough for what a reload takes away.
const SETTLED: Duration = Duration::from_secs(2);

/// A gateway whose routes change what they decide by on the way to the service.
struct Setting {
    service: Ticking,
    certificates: Certificates,
    clock: ManualClock,
}

/// The field that is decided by, and those that the requests of these tests have beside it. No rule reads `x-new` at first,
/// and its other spelling goes as long as the route changes it.
const FIELDS: [(&str, &str); 5] = [
    ("x-team", "blue"),
    ("x-new", "a"),
    ("x_new", "b"),
    ("cookie", "tier=gold"),
    ("x-forwarded-for", "192.0.2.7"),
];

/// What both routes do. The clock leaps, so nothing is to end for having been quiet.
const RULES: &str = r#"
    policy = [{ allow = "request.headers['x-team'] == 'blue'" }]
    request_headers = { set = { x-team = "rewritten" }, remove = ["x-new", "cookie"] }
    timeouts = { request = "7d", response_body_idle = "1d" }
"#;

/// `end` is for tokens and for `x-team: blue` alone.
const END: &str = r#"
    path_prefix = "/end"
    headers = { x-team = "blue" }
    auth = { issuer = "main", audiences = ["api"], scopes = ["read"] }
"#;

/// `stay` is for everybody.
const STAY: &str = "path_prefix = '/stay'";

impl Setting {
    async fn new() -> Self {
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN));
        Self { service: Ticking::start().await, certificates: Certificates::new(), clock }
    }

    fn spec(&self) -> Spec {
        let spec = Spec::to(&self.service.origin)
            .with(self.certificates.listener())
            .with("trusted_proxies.prefixes = ['127.0.0.1/32']\nforwarding.forwarded = 'append'")
            .route("end", RULES)
            .route("end", END)
            .route("stay", RULES)
            .route("stay", STAY);
        let spec = ["public", "api", "admin", "other"]
            .into_iter()
            .fold(spec, |spec, name| spec.without("route", name));
        let builtin = Some(Arc::new(Echo(ErrorFormat::Problem)) as _);
        Spec { clock: Some(self.clock.clock()), builtin, ..spec }
    }

    /// A stream of each kind.
    async fn begin(&self, gateway: &Harness, path: &str, token: &str) -> Vec<UnderWay> {
        let authorization = format!("Bearer {token}");
        let mut fields = FIELDS.to_vec();
        if !token.is_empty() {
            fields.push(("authorization", &authorization));
        }
        let mut streams = Vec::new();
        for way in Way::ALL {
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            let tls = self.certificates.connect(tcp, "a.example", &[way.alpn()]).await;
            streams.push(begin(way, tls, ("a.example", path), &fields).await);
        }
        streams
    }
}

fn token(gateway: &Harness, subject: &str, life: i64) -> String {
    gateway.issuer.token(BEGUN, &json!({"sub": subject, "exp": BEGUN + life}))
}

/// Asserts that all are ended, and that the access log tells why.
async fn are_ended(gateway: &Harness, streams: Vec<UnderWay>, text: &str, code: &str) {
    let count = streams.len();
    for stream in streams {
        stream.expect_end(text).await;
    }
    for line in gateway.log(count).await {
        assert_eq!((&line["reason"], &line["complete"]), (&json!(code), &json!(false)));
    }
}

type Change = fn(Spec) -> Spec;

const UNMET: (&str, &str) = ("no longer allowed", "demand_unmet");
const REMOVED: (&str, &str) = ("no longer available", "route_removed");

fn allowing(spec: Spec, expression: &str) -> Spec {
    spec.route("end", format!("policy = [{{ allow = \"{expression}\" }}]"))
}

fn denying(spec: Spec, expression: &str) -> Spec {
    spec.route("end", format!("policy = [{{ deny = \"{expression}\" }}]"))
}

/// The route `end` with another destination than the service.
fn answering(spec: Spec, destination: &str) -> Spec {
    spec.without("route", "end").route("end", destination).route("end", END)
}

/// Changes that a request which is like those at `end` does not pass.
const ENDING: [(&str, Change, (&str, &str)); 22] = [
    (
        "a rule that allows does not hold any more, and read the same field before",
        |spec| allowing(spec, "request.headers['x-team'] == 'red'"),
        UNMET,
    ),
    (
        "a rule allows what the service got alone",
        |spec| allowing(spec, "request.headers['x-team'] == 'rewritten'"),
        UNMET,
    ),
    (
        "a rule reads a field that none read before",
        |spec| allowing(spec, "request.headers['x-new'] == 'c'"),
        UNMET,
    ),
    (
        "a rule reads a field that none read before and that did not come",
        |spec| allowing(spec, "request.headers['x-other'] == 'c'"),
        UNMET,
    ),
    (
        "a rule denies by a field that is removed on the way",
        |spec| denying(spec, "request.headers['x-new'] == 'a'"),
        UNMET,
    ),
    (
        "a rule reads a field that goes to the service under another spelling too by now",
        |spec| {
            let spec = spec.route("end", "request_headers = { remove = ['x-team'] }");
            allowing(spec, "request.headers['x-new'] == 'a'")
        },
        UNMET,
    ),
    (
        "a rule reads a cookie, and all cookies are removed on the way",
        |spec| allowing(spec, "request.cookies.tier == 'silver'"),
        UNMET,
    ),
    (
        "the policy of the gateway",
        |spec| spec.with("[[policy]]\ndeny = \"request.path.startsWith('/end')\""),
        UNMET,
    ),
    (
        "a proxy is not believed any more",
        |spec| {
            let spec = spec.with("trusted_proxies.prefixes = ['192.0.2.99/32']");
            allowing(spec, "source.address in cidr('192.0.2.0/24')")
        },
        UNMET,
    ),
    (
        "a public route has nobody's token",
        |spec| allowing(spec.route("end", "auth = 'public'"), "token.sub == 'alice'"),
        UNMET,
    ),
    ("another scope", |spec| spec.route("end", "auth.scopes = ['admin']"), UNMET),
    ("another audience", |spec| spec.route("end", "auth.audiences = ['api2']"), UNMET),
    (
        "a deeper route asks for more",
        |spec| {
            let auth = "auth = { issuer = 'main', audiences = ['api'], scopes = ['admin'] }";
            spec.route("deeper", format!("path_prefix = '/end/here'\n{auth}"))
        },
        UNMET,
    ),
    (
        "the path is another pattern's now, which asks for more",
        |spec| {
            let auth = "auth = { issuer = 'main', audiences = ['api'], scopes = ['admin'] }";
            let spec = spec.route("end", "path_prefix = '/end/elsewhere'");
            spec.route("pattern", format!("path_pattern = '/{{first}}/here/now'\n{auth}"))
        },
        UNMET,
    ),
    ("another path", |spec| spec.route("end", "path_prefix = '/elsewhere'"), REMOVED),
    ("another value of the field", |spec| spec.route("end", "headers.x-team = 'rewritten'"), REMOVED),
    ("another host", |spec| spec.route("end", "hosts = ['b.example']"), REMOVED),
    (
        "another listener",
        |spec| {
            let spec = spec.with("[[listener]]\nname = 'other'\naddress = '127.0.0.1:0'");
            spec.route("end", "listeners = ['other']")
        },
        REMOVED,
    ),
    ("another method", |spec| spec.route("end", "methods = ['POST']"), REMOVED),
    ("a redirect", |spec| answering(spec, "redirect.to = 'https://b.example/'"), REMOVED),
    (
        "a fixed response, by the route that takes what is left",
        |spec| {
            let spec = spec.without("route", "end");
            spec.route("rest", "path_prefix = '/'\nrespond.body = 'closed'")
        },
        REMOVED,
    ),
    ("a built-in service", |spec| answering(spec, "builtin = 'token'"), REMOVED),
];

#[test]
fn a_reload_ends_what_a_request_would_no_longer_be_let_in_with() {
    for (name, change, (text, code)) in ENDING {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let ending = setting.begin(&gateway, "/end/here/now", &token(&gateway, "alice", LIFE)).await;
            let mut staying = setting.begin(&gateway, "/stay", "").await;
            setting.clock.advance(SETTLED);
            gateway.reload(change(setting.spec()));
            are_ended(&gateway, ending, text, code).await;
            setting.service.all_go_on(&mut staying).await;
            // The control: no new request gets there either.
            let connections = setting.service.origin.connections();
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            let mut client = Client::over(setting.certificates.connect(tcp, "a.example", &[]).await);
            let fields: String = FIELDS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let token = token(&gateway, "alice", LIFE);
            let response = client
                .exchange(format!(
                    "GET /end/here/now HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n{fields}\r\n"
                ))
                .await;
            assert!(code != UNMET.1 || matches!(response.status, 401 | 403), "{}", response.head);
            assert_eq!(setting.service.origin.connections(), connections);
        });
    }
}

/// Changes that a request which is like those at `end` passes.
const STAYING: [(&str, Change); 12] = [
    ("nothing", |spec| spec),
    ("another name", |spec| spec.without("route", "end").route("renamed", END)),
    ("a rule reads a field that none read before", |spec| {
        allowing(spec, "request.headers['x-new'] == 'a' && request.headers['x-team'] == 'blue'")
    }),
    ("a rule denies what the service got alone", |spec| {
        denying(spec, "request.headers['x-team'] == 'rewritten'")
    }),
    ("a rule denies what the gateway says to the service", |spec| {
        denying(spec, "has(request.headers['via'])")
    }),
    ("a rule reads a cookie, and all cookies are removed on the way", |spec| {
        allowing(spec, "request.cookies.tier == 'gold'")
    }),
    ("a rule reads the source", |spec| allowing(spec, "source.address in cidr('192.0.2.0/24')")),
    ("no token is asked for", |spec| spec.route("end", "auth = 'public'")),
    ("another scope that the token has", |spec| spec.route("end", "auth.scopes = ['write']")),
    ("another pattern, bound to what the request came by", |spec| {
        let auth = "auth = { issuer = 'main', audiences = ['api'] }";
        let bound = "hosts = ['a.example']\nlisteners = ['test']\nmethods = ['GET']";
        spec.without("route", "end")
            .route("end", format!("path_pattern = '/end/{{where}}/now'\n{auth}\n{bound}"))
    }),
    ("another route for what is left", |spec| {
        spec.without("route", "end").route("rest", "path_prefix = '/'")
    }),
    ("the route changes other fields", |spec| spec.route("end", "request_headers = { remove = ['x-team'] }")),
];

#[test]
fn a_reload_ends_nothing_that_a_request_would_still_be_let_in_with() {
    for (name, change) in STAYING {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let alice = token(&gateway, "alice", LIFE);
            let mut staying = setting.begin(&gateway, "/end/here/now", &alice).await;
            let ending = setting.begin(&gateway, "/stay", "").await;
            setting.clock.advance(SETTLED);
            // The end of these tells when all were looked at.
            let auth = "auth = { issuer = 'main', audiences = ['api'] }";
            gateway.reload(change(setting.spec()).route("stay", auth));
            are_ended(&gateway, ending, UNMET.0, UNMET.1).await;
            setting.service.all_go_on(&mut staying).await;
            // The control: a new request gets there too.
            staying.extend(setting.begin(&gateway, "/end/here/now", &alice).await);
            setting.service.all_go_on(&mut staying).await;
        });
    }
}

#[test]
fn a_rule_that_a_reload_brings_ends_what_is_under_way_when_its_time_comes() {
    run(async {
        let setting = Setting::new().await;
        let gateway = setting.spec().start().await;
        let mut ending = setting.begin(&gateway, "/end/here", &token(&gateway, "alice", 100 * LIFE)).await;
        let looked_at = setting.begin(&gateway, "/stay", "").await;
        setting.clock.advance(SETTLED);
        let spec = allowing(setting.spec(), "request.time < timestamp('2030-03-17T18:00:00Z')");
        gateway.reload(spec.route("stay", "auth = { issuer = 'main', audiences = ['api'] }"));
        // The end of these tells that all were judged by the new rules.
        are_ended(&gateway, looked_at, UNMET.0, UNMET.1).await;
        setting.clock.advance(Duration::from_secs(600));
        setting.service.all_go_on(&mut ending).await;
        setting.clock.advance(Duration::from_secs(300));
        for stream in ending {
            stream.expect_end(UNMET.0).await;
        }
    });
}

type Act = fn(&Setting, &Harness);

/// What takes the right from the tokens of `alice` that live for [`LIFE`], and leaves others theirs.
const LAPSES: [(&str, Act, (&str, &str)); 3] = [
    (
        "the token expires",
        |setting, _| setting.clock.advance(Duration::from_secs(LIFE.unsigned_abs()) + SKEW_DEFAULT),
        ("token expired", "token_expired"),
    ),
    (
        "the caller is disabled",
        |_, gateway| gateway.gateway.model().authenticator.revocations().disable("main", "alice"),
        ("token revoked", "token_revoked"),
    ),
    (
        "all tokens of the caller are revoked",
        |_, gateway| {
            let (now, end) = (Wall::from_unix_seconds(BEGUN), Wall::from_unix_seconds(BEGUN + LIFE));
            gateway.gateway.model().authenticator.revocations().revoke("main", "alice", now, end);
        },
        ("token revoked", "token_revoked"),
    ),
];

#[test]
fn a_token_that_lapses_ends_what_it_let_in() {
    for (name, act, (text, code)) in LAPSES {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let ending = setting.begin(&gateway, "/end", &token(&gateway, "alice", LIFE)).await;
            let mut staying = setting.begin(&gateway, "/end", &token(&gateway, "bob", 10 * LIFE)).await;
            staying.extend(setting.begin(&gateway, "/stay", "").await);
            act(&setting, &gateway);
            are_ended(&gateway, ending, text, code).await;
            setting.service.all_go_on(&mut staying).await;
        });
    }
}

/// What takes the trust from an issuer.
const DISTRUST: [(&str, Act); 3] = [
    ("the key that signed is gone from the set", |_, gateway| gateway.issuer.rotate()),
    ("the issuer is gone from the configuration", |setting, gateway| {
        let next = "[[issuer]]\nname = 'next'\nissuer = 'https://next.example'\naudiences = ['api']\n\
            jwks_url = 'https://next.example/keys'";
        gateway
            .reload(setting.spec().without("issuer", "main").with(next).route("end", "auth.issuer = 'next'"));
    }),
    ("the issuer is believed for another audience", |setting, gateway| {
        let spec = setting.spec().with("[[issuer]]\nname = 'main'\naudiences = ['api2']");
        gateway.reload(spec.route("end", "auth.audiences = ['api2']"));
    }),
];

#[test]
fn an_issuer_that_is_not_trusted_any_more_ends_what_its_tokens_let_in() {
    for (name, act) in DISTRUST {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let ending = setting.begin(&gateway, "/end", &token(&gateway, "alice", LIFE)).await;
            let mut staying = setting.begin(&gateway, "/stay", "").await;
            setting.clock.advance(SETTLED);
            act(&setting, &gateway);
            are_ended(&gateway, ending, "token no longer accepted", "issuer_changed").await;
            setting.service.all_go_on(&mut staying).await;
        });
    }
}

fn of_issuer(spec: Spec, keys: &str) -> Spec {
    spec.with(format!("[[issuer]]\nname = 'main'\n{keys}"))
}

/// What the client is told, and what the access log.
type Ended = (&'static str, &'static str);

/// Changes of the issuer by which a request like those at `end` passes, or why it does not.
const ISSUER_SETTINGS: [(&str, Act, Option<Ended>); 17] = [
    ("nothing", |setting, gateway| gateway.reload(setting.spec()), None),
    ("more skew", |setting, gateway| gateway.reload(of_issuer(setting.spec(), "clock_skew = '60s'")), None),
    ("less skew", |setting, gateway| gateway.reload(of_issuer(setting.spec(), "clock_skew = '1s'")), None),
    (
        "a smaller cache",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "verdicts_max = 100")),
        None,
    ),
    ("no cache", |setting, gateway| gateway.reload(of_issuer(setting.spec(), "verdicts_max = 0")), None),
    (
        "an audience more",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "audiences = ['new', 'api', 'api2']")),
        None,
    ),
    (
        "the audience of others is gone",
        |setting, gateway| {
            gateway.reload(of_issuer(setting.spec(), "audiences = ['api']").without("route", "other"));
        },
        None,
    ),
    (
        "a long enough lifetime",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "lifetime_max = '1h'")),
        None,
    ),
    (
        "the key that signed and a new algorithm",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "algorithms = ['ES256', 'ES384']")),
        None,
    ),
    (
        "another name",
        |setting, gateway| {
            let spec = setting.spec().without("issuer", "main").with(NEXT_ISSUER);
            gateway.reload(spec.route("end", "auth.issuer = 'next'"));
        },
        None,
    ),
    ("another key is gone", |_, gateway| gateway.issuer.retire_another(), None),
    (
        "too short a lifetime",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "lifetime_max = '1m'")),
        Some(UNTRUSTED),
    ),
    (
        "another algorithm",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "algorithms = ['ES384']")),
        Some(UNTRUSTED),
    ),
    (
        "another type",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "types = ['JWT']")),
        Some(UNTRUSTED),
    ),
    (
        "another audience",
        |setting, gateway| {
            let spec = of_issuer(setting.spec(), "audiences = ['api2']");
            gateway.reload(spec.route("end", "auth.audiences = ['api2']"));
        },
        Some(UNTRUSTED),
    ),
    (
        "scopes from a claim that the token does not have",
        |setting, gateway| gateway.reload(of_issuer(setting.spec(), "claims.scopes = ['rights']")),
        Some(UNMET),
    ),
    ("the key that signed is gone", |_, gateway| gateway.issuer.rotate(), Some(UNTRUSTED)),
];

const UNTRUSTED: (&str, &str) = ("token no longer accepted", "issuer_changed");

/// The issuer under another name.
const NEXT_ISSUER: &str = "[[issuer]]\nname = 'next'\naudiences = ['api', 'api2']\nlocal = true";

#[test]
fn a_changed_issuer_ends_the_streams_whose_tokens_it_would_refuse() {
    for (name, act, expected) in ISSUER_SETTINGS {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let alice = token(&gateway, "alice", LIFE);
            let mut streams = setting.begin(&gateway, "/end/here", &alice).await;
            // Their end tells when all were looked at.
            let marks = setting.begin(&gateway, "/end/marked", &token(&gateway, "mark", LIFE)).await;
            setting.clock.advance(SETTLED);
            act(&setting, &gateway);
            if let Some((text, code)) = expected {
                streams.extend(marks);
                are_ended(&gateway, streams, text, code).await;
            } else {
                gateway.gateway.model().authenticator.revocations().disable("main", "mark");
                gateway.gateway.model().authenticator.revocations().disable("next", "mark");
                are_ended(&gateway, marks, "token revoked", "token_revoked").await;
                setting.service.all_go_on(&mut streams).await;
            }
            // The control: a new request.
            let tcp = TcpStream::connect(gateway.address).await.unwrap();
            let mut client = Client::over(setting.certificates.connect(tcp, "a.example", &[]).await);
            let head = format!(
                "GET /end/here HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {alice}\r\nX-Team: blue\r\n\r\n"
            );
            client.send(head).await;
            let status = client.head().await.unwrap().status;
            assert_eq!(status == 200, expected.is_none(), "{name}: {status}");
        });
    }
}

#[test]
fn another_skew_moves_the_end_of_what_is_under_way() {
    for (skew, end) in [(60, 60), (30, 30), (10, 10)] {
        run(async move {
            println!("{skew}");
            let setting = Setting::new().await;
            let gateway = setting.spec().start().await;
            let mut streams = setting.begin(&gateway, "/end/here", &token(&gateway, "alice", LIFE)).await;
            let mark = setting.begin(&gateway, "/end/here", &token(&gateway, "mark", LIFE)).await;
            setting.clock.advance(SETTLED);
            gateway.reload(of_issuer(setting.spec(), &format!("clock_skew = '{skew}s'")));
            gateway.gateway.model().authenticator.revocations().disable("main", "mark");
            are_ended(&gateway, mark, "token revoked", "token_revoked").await;
            setting.service.all_go_on(&mut streams).await;
            // A wall clock that is stepped back extends nothing.
            setting.clock.step_wall_back(Duration::from_secs(60));
            setting.clock.advance(Duration::from_secs(LIFE.unsigned_abs() + end - 3));
            setting.service.all_go_on(&mut streams).await;
            setting.clock.advance(Duration::from_secs(1));
            for stream in streams {
                stream.expect_end("token expired").await;
            }
        });
    }
}

#[test]
fn less_skew_ends_what_has_expired_by_it() {
    run(async {
        let setting = Setting::new().await;
        let gateway = setting.spec().start().await;
        let ending = setting.begin(&gateway, "/end/here", &token(&gateway, "alice", LIFE)).await;
        let mut staying = setting.begin(&gateway, "/end/here", &token(&gateway, "bob", 2 * LIFE)).await;
        setting.clock.advance(Duration::from_secs(LIFE.unsigned_abs() + 20));
        setting.service.all_go_on(&mut staying).await;
        gateway.reload(of_issuer(setting.spec(), "clock_skew = '10s'"));
        are_ended(&gateway, ending, "token expired", "token_expired").await;
        setting.service.all_go_on(&mut staying).await;
    });
}

#[test]
fn a_request_under_way_is_refused_when_its_route_leads_to_no_service_any_more() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send(OK).await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN));
        let spec = || {
            let builtin = Some(Arc::new(Echo(ErrorFormat::Problem)) as _);
            let spec = Spec::to(&origin).route("end", "path_prefix = '/end'");
            Spec { clock: Some(clock.clock()), builtin, ..spec.route("stay", "path_prefix = '/stay'") }
        };
        let gateway = spec().start().await;
        let (mut ending, mut control) = (gateway.client().await, gateway.client().await);
        for (client, path) in [(&mut ending, "/end"), (&mut control, "/stay")] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n");
            client.send(head + "hello").await;
        }
        until("both are under way", || gateway.gateway.streams() == 2).await;
        clock.advance(SETTLED);
        gateway
            .reload(spec().without("route", "end").route("end", "path_prefix = '/end'\nbuiltin = 'token'"));
        let response = ending.response().await;
        assert_eq!((response.status, response.code().as_str()), (404, "route_removed"));
        assert!(response.closes());
        assert_eq!(control.exchange("world").await.status, 200);
    });
}
