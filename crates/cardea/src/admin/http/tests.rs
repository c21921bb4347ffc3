//! The admin listener over TCP.

use std::{net::SocketAddr, time::Duration};

use cardea_clock::{LAG_MAX, ManualClock, Wall};
use cardea_gateway::{
    gateway::{Gateway, Phase},
    record::{Registry, metrics::CounterDef},
    workers::Workers,
};
use cardea_identity::LocalKeys;
use cardea_issuer::AuthorizationServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::oneshot,
    task::JoinHandle,
};

use super::*;
use crate::{
    admin::testing::{Fixture, NOW},
    config::{Foundation, Readiness, build},
    fetch::HttpFetch,
    server::Provided,
};

static ASKED: CounterDef<0> = CounterDef::new("cardea_asked_total", "Asked.", []);

struct Listener {
    address: SocketAddr,
    state: Arc<AdminState>,
    gateway: Arc<Gateway>,
    issuer: Arc<AuthorizationServer>,
    keys: LocalKeys,
    clock: ManualClock,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Listener {
    async fn start() -> Self {
        let fixture = Fixture::new();
        let manual = ManualClock::new(Wall::from_unix_seconds(NOW));
        let clock = manual.clock();
        let keys = LocalKeys::new();
        let issuer = fixture.issuer(clock.precise()).await;
        keys.publish(issuer.key_set().as_bytes()).unwrap();
        let provided = Arc::new(Provided { issuer: Some(Arc::clone(&issuer)), acme: None });
        let foundation = Foundation {
            clock: clock.clone(),
            fetch: Arc::new(HttpFetch::new()),
            local_keys: keys.clone(),
            provider: Arc::clone(&provided) as _,
            names: Arc::default(),
            workers: 1,
            tolerates_certificates: false,
        };
        let Ok(built) = build(&fixture.config(), &foundation, None) else { panic!("the configuration") };
        let registry = Arc::new(Registry::new());
        let gateway = Gateway::new(Arc::clone(&built.model), clock, Arc::clone(&registry)).unwrap();
        let state = Arc::new(AdminState::new(Arc::clone(&gateway), registry, provided.issuer.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, Arc::clone(&state), async move {
            let _ = stopped.await;
        });
        Self { address, state, gateway, issuer, keys, clock: manual, stop, task: tokio::spawn(serving) }
    }

    /// Sends a request and reads until the end; in lower case.
    async fn raw(&self, request: &str) -> String {
        let mut tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer.to_lowercase()
    }

    async fn get(&self, path: &str) -> String {
        let port = self.address.port();
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n")).await
    }
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[tokio::test]
async fn it_shows_metrics_health_and_readiness() {
    let listener = Listener::start().await;
    listener.state.registry().counter(&ASKED, []).increment();
    let metrics = listener.get("/metrics").await;
    assert_eq!(status(&metrics), "200");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{metrics}");
    assert!(metrics.contains("\ncardea_asked_total 1\n"), "{metrics}");
    for path in ["/", "/health", "/ready", "/health?x=y"] {
        let answer = listener.get(path).await;
        assert_eq!(status(&answer), "200", "{path}");
        assert!(answer.contains("cache-control: no-store") && answer.contains("nosniff"), "{answer}");
    }
    assert_eq!(status(&listener.get("/secrets").await), "404");
    assert_eq!(status(&listener.get("//metrics").await), "404");
    let head = listener.raw("HEAD /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await;
    assert!(status(&head) == "200" && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn readiness_lists_every_reason_and_health_is_unaffected() {
    let listener = Listener::start().await;
    assert!(listener.get("/ready").await.ends_with("{\"degraded\":[],\"ready\":true,\"reasons\":[]}\n"));
    listener.clock.advance_unpublished(LAG_MAX + Duration::from_nanos(1));
    listener.state.set_issuer_usable(false);
    listener.gateway.advance(Phase::Draining);
    let answer = listener.get("/ready").await;
    assert_eq!(status(&answer), "503");
    let expected = r#""ready":false,"reasons":["draining","clock_stale","authorization_server_unusable"]}"#;
    assert!(answer.contains(expected), "{answer}");
    assert_eq!(status(&listener.get("/health").await), "200");
    assert!(listener.keys.publish(b"{\"keys\":[]}").is_ok());
}

#[tokio::test]
async fn a_clock_that_has_stepped_forward_is_shown_until_it_is_confirmed() {
    let listener = Listener::start().await;
    // The store's folder is gone, and the clock is looked at before it.
    let maintained = async || drop(listener.issuer.maintain(listener.clock.clock().now()).await);
    listener.clock.advance(Duration::from_secs(120));
    maintained().await;
    let step = Duration::from_secs(3 * 86_400);
    for has_stepped in [true, false] {
        if has_stepped {
            listener.clock.step_wall_forward(step);
        } else {
            listener.clock.step_wall_back(step);
        }
        maintained().await;
        let answer = listener.get("/ready").await;
        assert_eq!(answer.contains("clock_unconfirmed"), has_stepped, "{answer}");
        assert!(status(&answer) == "200" && answer.contains("\"ready\":true"), "{answer}");
    }
}

#[tokio::test]
async fn readiness_fails_while_the_clock_thread_is_stopped() {
    let listener = Listener::start().await;
    let clock = listener.clock.clock();
    Workers::here().watch_clock(&clock);
    assert_eq!(status(&listener.get("/ready").await), "200");
    listener.clock.advance_unpublished(LAG_MAX + Duration::from_nanos(1));
    while clock.late_refreshes() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(clock.now(), clock.precise(), "the time goes on");
    let answer = listener.get("/ready").await;
    assert!(status(&answer) == "503" && answer.contains("[\"clock_stale\"]"), "{answer}");
    listener.clock.advance(Duration::from_millis(100));
    assert_eq!(status(&listener.get("/ready").await), "200");
    assert_eq!(clock.late_refreshes(), 1);
}

#[tokio::test]
async fn an_issuer_whose_keys_were_never_loaded_is_a_reason() {
    let fixture = Fixture::new();
    let manual = ManualClock::new(cardea_clock::Wall::from_unix_seconds(0));
    let foundation = Foundation {
        clock: manual.clock(),
        fetch: Arc::new(HttpFetch::new()),
        local_keys: LocalKeys::new(),
        provider: Arc::new(Provided::default()),
        names: Arc::default(),
        workers: 1,
        tolerates_certificates: false,
    };
    let Ok(built) = build(&fixture.config(), &foundation, None) else { panic!("the configuration") };
    let registry = Arc::new(Registry::new());
    let gateway = Gateway::new(built.model, manual.clock(), Arc::clone(&registry)).unwrap();
    let state = AdminState::new(gateway, registry, None);
    let missing = || vec!["key_set_missing:own".to_owned()];
    assert_eq!(state.readiness(), Ready { reasons: missing(), degraded: vec![] });
    let with = |issuers: &[&str]| {
        let issuers = Some(issuers.iter().map(|name| (*name).to_owned()).collect());
        state.follow(&Readiness { issuers, ..Readiness::default() });
        state.readiness()
    };
    assert_eq!(with(&[]), Ready { reasons: vec![], degraded: missing() }, "none is required");
    assert_eq!(with(&["other"]), Ready { reasons: vec![], degraded: missing() });
    assert_eq!(with(&["own"]), Ready { reasons: missing(), degraded: vec![] });
    foundation.local_keys.publish(br#"{"keys":[]}"#).unwrap();
    assert_eq!(state.readiness(), Ready::default());
}

#[tokio::test]
async fn requests_from_web_pages_are_refused() {
    let listener = Listener::start().await;
    for (lines, expected) in [
        ("Host: localhost", "200"),
        ("Host: LOCALHOST:1", "200"),
        ("Host: localhost.", "200"),
        ("Host: 127.0.0.1:9443", "200"),
        ("Host: 127.8.8.8", "200"),
        ("Host: [::1]:9443", "200"),
        ("Host: [::ffff:127.0.0.1]", "200"),
        ("Host: localhost\r\nSec-Fetch-Site: none", "200"),
        ("Host: evil.example", "421"),
        ("Host: localhost.evil.example", "421"),
        ("Host: evil-localhost", "421"),
        ("Host: 127.0.0.1.evil.example", "421"),
        ("Host: 192.0.2.1", "421"),
        ("Host: user@localhost", "421"),
        ("Host: localhost@evil.example", "421"),
        ("Host: ", "421"),
        ("Host: local host", "421"),
        ("X: y", "400"),
        ("Host: localhost\r\nHost: localhost", "400"),
        ("Host: localhost\r\nOrigin: http://evil.example", "403"),
        ("Host: localhost\r\nOrigin: http://localhost:9443", "403"),
        ("Host: localhost\r\nOrigin: null", "403"),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site", "403"),
    ] {
        let request = format!("GET /health HTTP/1.1\r\n{lines}\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&listener.raw(&request).await), expected, "{lines:?}");
    }
    for (lines, expected) in [("X: y", "200"), ("Host: evil.example", "421"), ("Origin: null", "403")] {
        let request = format!("GET /health HTTP/1.0\r\n{lines}\r\n\r\n");
        assert_eq!(status(&listener.raw(&request).await), expected, "HTTP/1.0, {lines:?}");
    }
    for (target, expected) in [("http://localhost/health", "200"), ("http://evil.example/health", "421")] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&listener.raw(&request).await), expected, "{target}");
    }
}

#[test]
fn bound_to_all_addresses_any_address_is_accepted_but_no_name() {
    let ours = |host: &str, bound: &str| {
        let listed = |name: &str| name == "gateway-1.test";
        is_ours(&host.parse().unwrap(), Some(bound.parse().unwrap()), &listed)
    };
    assert!(ours("192.0.2.1:9443", "0.0.0.0"));
    assert!(ours("[2001:db8::1]", "::"));
    assert!(!ours("gateway.example", "0.0.0.0"));
    assert!(ours("gateway-1.test:9443", "0.0.0.0"), "a name that is listed");
    assert!(!ours("x@gateway-1.test", "0.0.0.0"));
    assert!(ours("192.0.2.1", "192.0.2.1"));
    assert!(ours("[::ffff:192.0.2.1]", "192.0.2.1"));
    assert!(!ours("192.0.2.2", "192.0.2.1"));
}

#[tokio::test]
async fn it_changes_nothing_and_has_bounds() {
    let listener = Listener::start().await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = listener.raw(&request).await;
        assert!(status(&answer) == "405" && answer.contains("allow: get, head"), "{answer}");
    }
    let body = "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd";
    assert_eq!(status(&listener.raw(body).await), "413");
    let long =
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(status(&listener.raw(&long).await), "431");
    let many = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(FIELDS_MAX));
    assert_eq!(status(&listener.raw(&many).await), "431");
}

#[tokio::test]
async fn slow_heads_and_idle_connections_time_out() {
    let listener = Listener::start().await;
    // From here on, time advances whenever all tasks wait.
    tokio::time::pause();
    let mut slow = TcpStream::connect(listener.address).await.unwrap();
    slow.write_all(b"GET /health HT").await.unwrap();
    let mut idle = TcpStream::connect(listener.address).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    for mut tcp in [slow, idle] {
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).await.unwrap();
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_readiness_checks() {
    let listener = Listener::start().await;
    let mut slow = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        let mut tcp = TcpStream::connect(listener.address).await.unwrap();
        tcp.write_all(b"GET /rea").await.unwrap();
        slow.push(tcp);
    }
    assert_eq!(status(&listener.get("/ready").await), "200");
    let mut nothing = Vec::new();
    let ended = slow[0].read_to_end(&mut nothing).await;
    assert!(nothing.is_empty(), "the oldest gave way: {ended:?}");
}

#[tokio::test]
async fn stopping_ends_idle_connections_and_accepts_no_more() {
    let listener = Listener::start().await;
    let mut idle = TcpStream::connect(listener.address).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    listener.stop.send(()).unwrap();
    listener.task.await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(TcpStream::connect(listener.address).await.is_err());
}
