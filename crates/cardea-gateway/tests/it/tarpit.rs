//! The tarpit with real connections: who is held, for how long, and who never is.

use std::{sync::Arc, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_gateway::{
    builtin::{BuiltIn, BuiltInFuture, BuiltInRequest, BuiltInResponse, Offence},
    gateway::Phase,
};
use cardea_guard::{AddressPrefix, Offender};
use cardea_http::{Method, ResponseHead};
use serde_json::json;

use crate::http2;
use crate::support::{
    Client, Harness, Origin, Spec, certificates::Certificates, client::Response, get, run, until,
};

/// Of those who offend, the second refusal is held for five seconds.
const HOLD: &str =
    "[tarpit]\naction = 'hold'\noffences = 1\nmemory = '1h'\ndelay_min = '5s'\ndelay_max = '5s'\n";

/// One request to the public route a day, for each client.
const THROTTLE: &str = "[[throttle]]\nname = 't'\nkey = ['source.address']\nrate = '1/d'\n";

const PROXY: &str = "trusted_proxies.prefixes = ['127.0.0.1']";

fn manual() -> ManualClock {
    ManualClock::new(Wall::from_unix_seconds(1_900_000_000))
}

fn spec(origin: &Origin, clock: &ManualClock, toml: &str) -> Spec {
    let spec = Spec { clock: Some(clock.clock()), ..Spec::to(origin) };
    spec.with(HOLD).with(THROTTLE).public("throttles = ['t']").with(toml)
}

fn from(address: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: {address}\r\n\r\n")
}

fn authorized(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// Uses up the limit, and what is tolerated beyond it.
async fn offend(gateway: &Harness, request: &str) {
    let mut client = gateway.client().await;
    assert_eq!(client.exchange(request).await.status, 200);
    let refused = client.exchange(request).await;
    assert_eq!((refused.status, refused.closes()), (429, false), "it is tolerated");
}

async fn held(gateway: &Harness, count: usize) {
    until("so many are held", || gateway.gateway.tarpit.held() == count).await;
}

/// A client whose request is held.
async fn hold(gateway: &Harness, request: &str) -> Client {
    let before = gateway.gateway.tarpit.held();
    let mut client = gateway.client().await;
    client.send(request).await;
    held(gateway, before + 1).await;
    client
}

fn ended(gateway: &Harness, how: &str) -> u64 {
    gateway.metric(&format!("cardea_tarpit_ended_total{{how=\"{how}\"}}"))
}

fn outcomes(gateway: &Harness, outcome: &str) -> u64 {
    gateway.metric(&format!("cardea_tarpit_requests_total{{outcome=\"{outcome}\"}}"))
}

async fn limited(client: &mut Client) -> Response {
    let response = client.response().await;
    assert_eq!((response.status, response.code()), (429, "rate_limited".to_owned()));
    assert!(response.closes());
    client.ended().await;
    response
}

#[test]
fn a_refusal_is_sent_after_its_time_and_not_before() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "").start().await;
        offend(&gateway, &get("/")).await;
        let mut client = hold(&gateway, &get("/")).await;
        clock.advance(Duration::from_millis(4_900));
        // Others of the same address are served meanwhile.
        assert_eq!(gateway.client().await.exchange(authorized("/api", &gateway.token())).await.status, 200);
        assert_eq!(gateway.gateway.tarpit.held(), 1);
        clock.advance(Duration::from_millis(200));
        limited(&mut client).await;
        held(&gateway, 0).await;
        let log = gateway.log(4).await;
        let shown = |name: &str| log.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
        assert_eq!(shown("tarpit.outcome"), [json!(null), json!(null), json!("held"), json!(null)]);
        assert_eq!(log[2]["tarpit.delay"], json!(5.0));
        assert_eq!(log[2]["reason"], json!("rate_limited"));
        assert_eq!((outcomes(&gateway, "held"), ended(&gateway, "due")), (1, 1));
        assert_eq!(gateway.metric("cardea_tarpit_seconds_count"), 1);
        let refused =
            "cardea_refused_requests_total{reason=\"rate_limited\",http_response_status_code=\"429\"}";
        assert_eq!(gateway.metric(refused), 2);
    });
}

#[test]
fn a_client_that_leaves_is_held_no_more() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "").start().await;
        offend(&gateway, &get("/")).await;
        let mut talks = hold(&gateway, &get("/")).await;
        let leaves = hold(&gateway, &get("/")).await;
        let mut finishes = hold(&gateway, &get("/")).await;
        drop(leaves);
        finishes.finish().await;
        held(&gateway, 1).await;
        assert_eq!(ended(&gateway, "left"), 2);
        // What is sent meanwhile is thrown away, and carried by nobody.
        talks.send("x".repeat(20_000)).await;
        talks.send(get("/smuggled")).await;
        clock.advance(Duration::from_secs(6));
        limited(&mut talks).await;
        assert!(!origin.text().contains("smuggled"));
    });
}

#[test]
fn offences_are_forgiven() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "tarpit.memory = '10s'").start().await;
        offend(&gateway, &get("/")).await;
        clock.advance(Duration::from_secs(10));
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 429);
        drop(hold(&gateway, &get("/")).await);
    });
}

#[test]
fn beyond_a_bound_the_answer_is_429_at_once() {
    run(async {
        for (bounds, outcome, count) in [
            ("", "shed_prefix", 4),
            ("tarpit.per_prefix_max = 1", "shed_prefix", 1),
            ("tarpit.held_max = 2", "shed_total", 2),
            ("tarpit.held_max = 0", "shed_total", 0),
        ] {
            let (origin, clock) = (Origin::ok().await, manual());
            let gateway = spec(&origin, &clock, bounds).start().await;
            offend(&gateway, &get("/")).await;
            let mut clients = Vec::new();
            for _ in 0..count {
                clients.push(hold(&gateway, &get("/")).await);
            }
            let mut client = gateway.client().await;
            let response = client.exchange(get("/")).await;
            assert_eq!((response.status, response.code()), (429, "tarpit_full".to_owned()), "{bounds}");
            assert_eq!(response.header("retry-after"), Some("5"));
            assert!(response.closes());
            client.ended().await;
            assert_eq!(outcomes(&gateway, outcome), 1, "{bounds}");
            // A place is free again once somebody leaves.
            if clients.pop().is_some() {
                held(&gateway, count - 1).await;
                drop(hold(&gateway, &get("/")).await);
            }
        }
    });
}

#[test]
fn clients_behind_a_proxy_are_told_apart_and_the_proxy_is_not_held() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, &format!("{PROXY}\ntarpit.per_prefix_max = 1")).start().await;
        // The proxy itself, which names no client.
        let mut client = gateway.client().await;
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(client.exchange(get("/")).await.status);
        }
        assert_eq!(statuses, [200, 429, 429, 429, 429, 429]);
        offend(&gateway, &from("192.0.2.1")).await;
        let mut one = hold(&gateway, &from("192.0.2.1")).await;
        // Another client of the same proxy is not affected.
        offend(&gateway, &from("192.0.2.2")).await;
        let mut proxy = gateway.client().await;
        let response = proxy.exchange(from("192.0.2.1")).await;
        assert_eq!((response.status, response.code()), (429, "tarpit_full".to_owned()));
        // The connection may have requests of others.
        assert!(!response.closes());
        assert_eq!(proxy.exchange(from("192.0.2.3")).await.status, 200);
        // IPv6 counts by its first 64 bits.
        offend(&gateway, &from("2001:db8::1")).await;
        drop(hold(&gateway, &from("2001:db8::2")).await);
        clock.advance(Duration::from_secs(6));
        limited(&mut one).await;
    });
}

#[test]
fn allowed_clients_and_requests_are_never_held() {
    run(async {
        for allowed in [
            "tarpit.allow = ['127.0.0.0/8']",
            "tarpit.when = \"route.name != 'public'\"",
            "tarpit.when = \"request.headers['x-absent'] == 'a'\"",
            "tarpit.action = 'off'",
        ] {
            let (origin, clock) = (Origin::ok().await, manual());
            let gateway = spec(&origin, &clock, allowed).start().await;
            offend(&gateway, &get("/")).await;
            for _ in 0..3 {
                let response = gateway.client().await.exchange(get("/")).await;
                assert_eq!((response.status, response.closes()), (429, false), "{allowed}");
            }
            assert_eq!(gateway.gateway.tarpit.offenders(), 0, "{allowed}");
        }
    });
}

/// A token whose signature is another one's.
fn forged(gateway: &Harness, claims: &serde_json::Value) -> String {
    let (token, other) = (gateway.token_with(claims), gateway.token_with(&json!({"sub": "other"})));
    let (signed, _) = token.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    format!("{signed}.{signature}")
}

#[test]
fn callers_that_have_proven_an_identity_are_not_held_for_their_address() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let toml = "[[throttle]]\nname = 'each'\nkey = ['token.sub']\nrate = '3/d'\n";
        let spec = spec(&origin, &clock, toml).route("api", "throttles = ['t', 'each']");
        let gateway = spec.start().await;
        let alice = gateway.token();
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(authorized("/api", &alice)).await.status, 200);
        // The address has used up its limit, and is held if it proves nothing.
        assert_eq!(gateway.client().await.exchange(get("/api")).await.status, 429);
        drop(hold(&gateway, &get("/api")).await);
        held(&gateway, 0).await;
        // What a token says that nobody has verified proves nothing.
        let forged = forged(&gateway, &json!({"sub": "alice"}));
        drop(hold(&gateway, &authorized("/api", &forged)).await);
        held(&gateway, 0).await;
        let unknown = gateway.token_with(&json!({"sub": "bob"}));
        drop(hold(&gateway, &authorized("/api", &unknown)).await);
        held(&gateway, 0).await;
        // Nor do the offences of the address count as hers.
        let tolerated = client.exchange(authorized("/api", &alice)).await;
        assert_eq!((tolerated.status, tolerated.closes()), (429, false));
        // Her own do, from wherever she comes, and only two are held.
        let _held = [
            hold(&gateway, &authorized("/api", &alice)).await,
            hold(&gateway, &authorized("/api", &alice)).await,
        ];
        let response = gateway.client().await.exchange(authorized("/api", &alice)).await;
        assert_eq!((response.status, response.code()), (429, "tarpit_full".to_owned()));
        assert_eq!(outcomes(&gateway, "shed_identity"), 1);
        let listed = gateway.gateway.tarpit.list();
        assert_eq!((listed.len(), listed[0].held), (1, 2));
        let Offender::Identity(identity) = &listed[0].offender else { panic!("{listed:?}") };
        assert_eq!((&*identity.issuer, &*identity.subject), ("https://id.example", "alice"));
    });
}

#[test]
fn bad_signatures_and_wrong_credentials_are_offences() {
    #[derive(Debug)]
    struct Wrong;

    impl BuiltIn for Wrong {
        fn name(&self) -> &'static str {
            "wrong"
        }

        fn methods(&self) -> Option<&'static [Method]> {
            None
        }

        fn status(&self) -> Option<u16> {
            None
        }

        fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
            let is_wrong = request.query == Some(b"wrong");
            let (status, offence) =
                if is_wrong { (401, Some(Offence::WrongCredentials)) } else { (200, None) };
            let head = ResponseHead::new(status);
            Box::pin(
                async move { Ok(BuiltInResponse { head, body: Arc::from(*b"own"), reason: None, offence }) },
            )
        }
    }

    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let spec = spec(&origin, &clock, PROXY).route("token", "path = '/token'\nbuiltin = 'token'");
        let gateway = Spec { builtin: Some(Arc::new(Wrong)), ..spec }.start().await;
        let forged = authorized("/api", &forged(&gateway, &json!({"sub": "alice"})));
        let named = |request: &str, address: &str| {
            request.replace("\r\nHost", &format!("\r\nX-Forwarded-For: {address}\r\nHost"))
        };
        for (request, address, offence) in
            [(forged, "192.0.2.1", "bad_signature"), (get("/token?wrong"), "192.0.2.2", "wrong_credentials")]
        {
            let request = named(&request, address);
            assert_eq!(gateway.client().await.exchange(&request).await.status, 401, "{offence}");
            let mut client = hold(&gateway, &request).await;
            // What is right is served at once.
            assert_eq!(gateway.client().await.exchange(named(&get("/token"), address)).await.status, 200);
            clock.advance(Duration::from_secs(6));
            let response = client.response().await;
            assert_eq!((response.status, response.closes()), (401, true), "{offence}");
            held(&gateway, 0).await;
        }
        assert_eq!(gateway.gateway.tarpit.offenders(), 2);
    });
}

#[test]
fn a_refusal_is_dripped() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "tarpit.action = 'drip'").start().await;
        offend(&gateway, &get("/")).await;
        let mut client = hold(&gateway, &get("/")).await;
        let head = client.head().await.unwrap();
        assert_eq!((head.status, head.closes()), (429, true));
        let length: usize = head.header("content-length").unwrap().parse().unwrap();
        for seconds in 1..5 {
            assert!(client.unread.is_empty(), "in the second {seconds}");
            clock.advance(Duration::from_secs(1));
            let octet = client.bytes(1).await.unwrap();
            assert_eq!(octet.len(), 1);
        }
        assert!(client.unread.is_empty());
        clock.advance(Duration::from_secs(1));
        assert_eq!(client.bytes(length - 4).await.unwrap().len(), length - 4);
        client.ended().await;
        // Without a body there is nothing to drip.
        let mut client = hold(&gateway, &get("/").replace("GET", "HEAD")).await;
        clock.advance(Duration::from_secs(6));
        assert_eq!(client.try_response(true).await.unwrap().status, 429);
        // A client that leaves.
        drop(hold(&gateway, &get("/")).await);
        held(&gateway, 0).await;
        assert_eq!(
            (outcomes(&gateway, "dripped"), outcomes(&gateway, "held"), ended(&gateway, "left")),
            (2, 1, 1)
        );
    });
}

#[test]
fn a_request_is_dropped() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "tarpit.action = 'drop'").start().await;
        offend(&gateway, &get("/")).await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        let rest = client.rest().await;
        assert!(rest.as_ref().map_or(true, Vec::is_empty), "{rest:?}");
        assert_eq!((outcomes(&gateway, "dropped"), gateway.gateway.tarpit.held()), (1, 0));
        let log = gateway.log(3).await;
        assert_eq!((&log[2]["tarpit.outcome"], &log[2]["complete"]), (&json!("dropped"), &json!(false)));
        // The connection of a proxy is not closed.
        gateway.reload(spec_of_drop_behind_proxy(&origin, &clock));
        offend(&gateway, &from("192.0.2.1")).await;
        let response = gateway.client().await.exchange(from("192.0.2.1")).await;
        assert_eq!((response.status, response.closes()), (429, false));
    });
}

fn spec_of_drop_behind_proxy(origin: &Origin, clock: &ManualClock) -> Spec {
    spec(origin, clock, &format!("tarpit.action = 'drop'\n{PROXY}"))
}

#[test]
fn held_streams_share_their_connection_with_others() {
    run(async {
        let (origin, clock, certificates) = (Origin::ok().await, manual(), Certificates::new());
        let gateway = spec(&origin, &clock, &certificates.listener()).start().await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        let uri = "https://a.example/";
        assert_eq!(client.exchange(http2::request("GET", uri)).await.status, 200);
        assert_eq!(client.exchange(http2::request("GET", uri)).await.status, 429);
        let mut begin = || {
            let request = http2::request("POST", uri).body(()).unwrap();
            client.send.send_request(request, false).unwrap()
        };
        let (one, _body) = begin();
        let (other, mut others_body) = begin();
        held(&gateway, 2).await;
        // There is no room for a third one, nor for a fourth.
        for _ in 0..2 {
            let reset = http2::collect(begin().0).await.unwrap_err();
            assert!(reset.is_reset(), "{reset}");
        }
        assert_eq!(outcomes(&gateway, "shed_connection"), 2);
        let token = format!("Bearer {}", gateway.token());
        let served = http2::request("GET", "https://a.example/api").header("authorization", token);
        assert_eq!(client.exchange(served).await.status, 200);
        others_body.send_reset(h2::Reason::CANCEL);
        held(&gateway, 1).await;
        clock.advance(Duration::from_secs(6));
        let answer = http2::collect(one).await.unwrap();
        assert_eq!((answer.status, answer.code()), (429, "rate_limited".to_owned()));
        drop(other);
        assert_eq!((ended(&gateway, "left"), ended(&gateway, "due")), (1, 1));
    });
}

#[test]
fn a_drain_waits_for_nobody_in_the_tarpit() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "").start().await;
        offend(&gateway, &get("/")).await;
        let mut client = hold(&gateway, &get("/")).await;
        let mut late = gateway.client().await;
        late.send("GET / HTTP/1.1\r\nHost: a.exa").await;
        until("both are connected", || gateway.gateway.connections() >= 2).await;
        gateway.gateway.advance(Phase::Draining);
        gateway.gateway.advance(Phase::Stopping);
        limited(&mut client).await;
        assert_eq!(ended(&gateway, "released"), 1);
        // Nor does anybody come in.
        late.send("mple\r\n\r\n").await;
        limited(&mut late).await;
        drop((client, late));
        gateway.gateway.idle().await;
        assert_eq!(gateway.gateway.tarpit.held(), 0);
    });
}

#[test]
fn a_reload_keeps_what_is_held_unless_it_removes_the_tarpit() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "").start().await;
        offend(&gateway, &get("/")).await;
        let mut client = hold(&gateway, &get("/")).await;
        gateway.reload(spec(&origin, &clock, "tarpit.per_prefix_max = 1\ntarpit.delay_max = '20s'"));
        assert_eq!(gateway.client().await.exchange(get("/")).await.code(), "tarpit_full");
        clock.advance(Duration::from_secs(6));
        limited(&mut client).await;
        held(&gateway, 0).await;
        let mut client = hold(&gateway, &get("/")).await;
        gateway.reload(spec(&origin, &clock, "tarpit.action = 'off'"));
        limited(&mut client).await;
    });
}

#[test]
fn an_operator_releases_offenders() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, PROXY).start().await;
        let mut clients = Vec::new();
        for address in ["192.0.2.1", "192.0.2.2"] {
            offend(&gateway, &from(address)).await;
            clients.push(hold(&gateway, &from(address)).await);
        }
        let tarpit = &gateway.gateway.tarpit;
        let names: Vec<_> = tarpit.list().into_iter().map(|one| one.offender).collect();
        let [one, other] = ["192.0.2.1", "192.0.2.2"]
            .map(|address| Offender::Prefix(AddressPrefix::of(address.parse().unwrap())));
        assert_eq!(names.len(), 2);
        assert!(names.contains(&one) && names.contains(&other), "{names:?}");
        assert_eq!((tarpit.release(Some(&one)), tarpit.release(Some(&one))), (1, 0));
        limited(&mut clients[0]).await;
        held(&gateway, 1).await;
        // Its offences are forgotten.
        assert_eq!(gateway.client().await.exchange(from("192.0.2.1")).await.status, 429);
        assert_eq!(tarpit.release(None), 1);
        limited(&mut clients[1]).await;
        assert_eq!(ended(&gateway, "released"), 2);
    });
}

#[test]
fn a_held_request_makes_room_for_another_connection() {
    run(async {
        let (origin, clock) = (Origin::ok().await, manual());
        let gateway = spec(&origin, &clock, "limits.connections_max = 2").start().await;
        offend(&gateway, &get("/")).await;
        let mut clients = [hold(&gateway, &get("/")).await, hold(&gateway, &get("/")).await];
        let token = gateway.token();
        assert_eq!(gateway.client().await.exchange(authorized("/api", &token)).await.status, 200);
        assert_eq!(ended(&gateway, "evicted"), 1);
        clock.advance(Duration::from_secs(6));
        let mut answered = 0;
        for client in &mut clients {
            answered += usize::from(client.try_response(false).await.is_ok());
        }
        assert_eq!(answered, 1);
    });
}
