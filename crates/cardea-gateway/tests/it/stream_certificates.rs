//! What is under way when the certificate of its client, or the time of day, no longer lets it in.

use std::{fs, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_tls::authority::{Authority, Issued};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::CloseFrame},
};

use crate::client_certificates::Bench;
use crate::support::{
    Harness, Origin, Spec, run,
    under_way::{Ticking, Way, begin},
};

/// In 2030, at 17:46:40.
const BEGUN: i64 = 1_900_000_000;
const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than what is looked at now and then goes unseen.
const RECHECK: Duration = Duration::from_secs(10);
/// Old enough for what a reload takes away.
const SETTLED: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// `request.example` asks for certificates of `people`, `require.example` insists on them.
struct Setting {
    bench: Bench,
    people: Authority,
    clock: ManualClock,
}

impl Setting {
    fn new() -> Self {
        let bench = Bench::new();
        let (people, _) = bench.authority("people");
        fs::write(bench.path("people.crl"), people.revocation_list(&[], FROM, TO).unwrap()).unwrap();
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN));
        Self { bench, people, clock }
    }

    fn spec(&self, origin: &Origin) -> Spec {
        let (roots, list) = (self.bench.path("people.pem"), self.bench.path("people.crl"));
        let people =
            format!("[[client_authority]]\nname = 'people'\nca_file = {roots:?}\ncrl_files = [{list:?}]");
        let certificates = [("request.example", "request"), ("require.example", "require")]
            .map(|(host, mode)| self.bench.certificate_of(host, mode, "people"));
        let spec = Spec::to(origin)
            .with(people)
            .with(self.bench.listener_of("test", &certificates))
            .with(ATTRIBUTES)
            .route("must", "path_prefix = '/must'\nclient_certificate = 'required'")
            .route("may", "path_prefix = '/may'\nclient_certificate = 'optional'");
        Spec { clock: Some(self.clock.clock()), ..spec }
    }

    /// A client whose certificate ends after so long.
    fn issue(&self, life: Duration) -> Issued {
        let end = Wall::from_unix_seconds(BEGUN).saturating_add(life);
        self.people.issue_client("one", &["dns:one.example".parse().unwrap()], FROM, end).unwrap()
    }

    /// Puts another list, or other roots, in place of what is there.
    fn replace(&self, gateway: &Harness, name: &str, text: &str) {
        fs::write(self.bench.path("next"), text).unwrap();
        fs::rename(self.bench.path("next"), self.bench.path(name)).unwrap();
        assert!(gateway.client_authority("people").reload_if_changed().unwrap());
    }

    async fn connect(&self, gateway: &Harness, host: &str, path: &str, issued: Option<&Issued>) -> Socket {
        let stream = self.bench.tls(gateway, host, issued, "http/1.1").await;
        let request = format!("ws://{host}{path}").into_client_request().unwrap();
        let (socket, response) = client_async(request, stream).await.unwrap();
        assert_eq!(response.status(), 101);
        socket
    }
}

async fn echo() -> Origin {
    Origin::start(|visit| async move {
        let mut socket = accept_async(visit.into_stream()).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            drop(socket.send(message).await);
        }
        Ok(())
    })
    .await
}

async fn goes_on(socket: &mut Socket) {
    socket.send(Message::text("still there")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still there"));
}

async fn closed(mut socket: Socket) -> (u16, String) {
    let Some(Ok(Message::Close(Some(CloseFrame { code, reason })))) = socket.next().await else {
        panic!("no close frame")
    };
    (u16::from(code), reason.to_string())
}

fn invalid() -> (u16, String) {
    (1008, "client certificate no longer valid".into())
}

#[test]
fn a_stream_ends_with_the_certificate_that_its_route_or_its_host_requires() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let gateway = setting.spec(&origin).start().await;
        let (brief, long) = (setting.issue(HOUR), setting.issue(10 * HOUR));
        let mut ending = Vec::new();
        for (host, path) in [
            ("request.example", "/must"),
            ("request.example", "/may"),
            ("require.example", "/must"),
            ("require.example", "/chat"),
        ] {
            ending.push(setting.connect(&gateway, host, path, Some(&brief)).await);
        }
        let mut staying = vec![
            setting.connect(&gateway, "require.example", "/must", Some(&long)).await,
            // Nobody asks for it there.
            setting.connect(&gateway, "request.example", "/chat", Some(&brief)).await,
            setting.connect(&gateway, "request.example", "/may", None).await,
        ];
        // The last second is part of its validity.
        setting.clock.advance(HOUR);
        for socket in ending.iter_mut().chain(&mut staying) {
            goes_on(socket).await;
        }
        setting.clock.advance(Duration::from_secs(1));
        for socket in ending {
            assert_eq!(closed(socket).await, invalid());
        }
        for socket in &mut staying {
            goes_on(socket).await;
        }
        for line in gateway.log(4).await {
            assert_eq!(line["reason"], "client_certificate_invalid");
        }
        assert!(gateway.has_metric("cardea_streams_ended_total{reason=\"client_certificate_invalid\"} 4"));
    });
}

#[test]
fn a_step_of_the_wall_clock_makes_no_certificate_last_longer() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let gateway = setting.spec(&origin).start().await;
        let mut socket =
            setting.connect(&gateway, "request.example", "/must", Some(&setting.issue(HOUR))).await;
        setting.clock.step_wall_back(10 * HOUR);
        goes_on(&mut socket).await;
        setting.clock.advance(HOUR + Duration::from_secs(1));
        assert_eq!(closed(socket).await, invalid());
    });
}

#[test]
fn the_grace_holds_for_the_end_of_a_certificate_and_not_for_its_revocation() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let spec = setting.spec(&origin).route("must", "timeouts.token_expiry_grace = '60s'");
        let gateway = spec.start().await;
        let brief = setting.issue(HOUR);
        let mut graced = setting.connect(&gateway, "request.example", "/must", Some(&brief)).await;
        let other = setting.issue(HOUR);
        let mut revoked = setting.connect(&gateway, "request.example", "/must", Some(&other)).await;
        let control = setting.connect(&gateway, "request.example", "/may", Some(&brief)).await;
        setting.clock.advance(HOUR + Duration::from_secs(20));
        assert_eq!(closed(control).await, invalid());
        goes_on(&mut graced).await;
        goes_on(&mut revoked).await;
        setting.replace(
            &gateway,
            "people.crl",
            &setting.people.revocation_list(&[&other.serial], FROM, TO).unwrap(),
        );
        assert_eq!(closed(revoked).await, invalid());
        goes_on(&mut graced).await;
        setting.clock.advance(Duration::from_secs(41));
        assert_eq!(closed(graced).await, invalid());
    });
}

#[test]
fn revoked_and_untrusted_certificates_end_their_streams() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let gateway = setting.spec(&origin).start().await;
        let (one, other) = (setting.issue(HOUR), setting.issue(HOUR));
        let mut ending = Vec::new();
        for (host, path) in [("request.example", "/must"), ("require.example", "/chat")] {
            ending.push(setting.connect(&gateway, host, path, Some(&one)).await);
        }
        let mut control = setting.connect(&gateway, "request.example", "/must", Some(&other)).await;
        let mut unasked = setting.connect(&gateway, "request.example", "/chat", Some(&one)).await;
        setting.replace(
            &gateway,
            "people.crl",
            &setting.people.revocation_list(&[&one.serial], FROM, TO).unwrap(),
        );
        for socket in ending {
            assert_eq!(closed(socket).await, invalid());
        }
        goes_on(&mut control).await;
        goes_on(&mut unasked).await;
        // Another authority of the same name.
        let impostor = Authority::new("people", FROM, TO).unwrap();
        setting.replace(&gateway, "people.pem", &impostor.certificate_pem());
        assert_eq!(closed(control).await, invalid());
        goes_on(&mut unasked).await;
    });
}

/// What ends the right of a certificate that lives for an hour.
type Act = fn(&Setting, &Harness, &Origin, &Issued);

const ACTS: [(&str, Act); 3] = [
    ("it expires", |setting, _, _, _| setting.clock.advance(HOUR + Duration::from_secs(1))),
    ("a reload reads a list that revokes it", |setting, gateway, origin, issued| {
        setting.clock.advance(SETTLED);
        let list = setting.people.revocation_list(&[&issued.serial], FROM, TO).unwrap();
        fs::write(setting.bench.path("next"), list).unwrap();
        fs::rename(setting.bench.path("next"), setting.bench.path("people.crl")).unwrap();
        gateway.reload(setting.spec(origin));
    }),
    ("a reload names an authority whose list revokes it", |setting, gateway, origin, issued| {
        setting.clock.advance(SETTLED);
        let list = setting.people.revocation_list(&[&issued.serial], FROM, TO).unwrap();
        fs::write(setting.bench.path("other.crl"), list).unwrap();
        let (roots, list) = (setting.bench.path("people.pem"), setting.bench.path("other.crl"));
        let others =
            format!("[[client_authority]]\nname = 'others'\nca_file = {roots:?}\ncrl_files = [{list:?}]");
        let asking = setting.bench.certificate_of("others.example", "request", "others");
        let spec = setting.spec(origin).with(others).with(setting.bench.listener_of("asking", &[asking]));
        gateway.reload(
            spec.route("must", "client_certificate = { mode = 'required', authorities = ['others'] }"),
        );
    }),
];

#[test]
fn a_certificate_that_does_not_hold_any_more_ends_streams_of_every_kind() {
    for (name, act) in ACTS {
        run(async move {
            println!("{name}");
            let (service, setting) = (Ticking::start().await, Setting::new());
            let gateway = setting.spec(&service.origin).start().await;
            let (brief, long) = (setting.issue(HOUR), setting.issue(10 * HOUR));
            let (mut ending, mut staying) = (Vec::new(), Vec::new());
            for way in Way::ALL {
                for (issued, streams) in [(&brief, &mut ending), (&long, &mut staying)] {
                    let tls = setting.bench.tls(&gateway, "request.example", Some(issued), way.alpn()).await;
                    streams.push(begin(way, tls, ("request.example", "/must"), &[]).await);
                }
            }
            act(&setting, &gateway, &service.origin, &brief);
            for stream in ending {
                stream.expect_end(&invalid().1).await;
            }
            for line in gateway.log(Way::ALL.len()).await {
                assert_eq!(line["reason"], "client_certificate_invalid");
            }
            service.all_go_on(&mut staying).await;
        });
    }
}

#[test]
fn a_list_that_runs_out_ends_what_it_covers() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let gateway = setting.spec(&origin).start().await;
        let until = Wall::from_unix_seconds(BEGUN).saturating_add(HOUR);
        setting.replace(&gateway, "people.crl", &setting.people.revocation_list(&[], FROM, until).unwrap());
        let mut socket =
            setting.connect(&gateway, "request.example", "/must", Some(&setting.issue(10 * HOUR))).await;
        setting.clock.advance(HOUR / 2);
        goes_on(&mut socket).await;
        setting.clock.advance(HOUR / 2 + 7 * RECHECK);
        assert_eq!(closed(socket).await, invalid());
    });
}

/// Attributes that are computed once for each request.
const ATTRIBUTES: &str = r#"
    [[attribute]]
    name = "open"
    expression = "request.time < timestamp('2030-03-17T18:00:00Z')"
    [[attribute]]
    name = "shown"
    expression = "has(connection.client_certificate.names)"
"#;

/// The keys of a route with one rule.
fn allowed_by(path: &str, condition: &str) -> String {
    format!("path_prefix = '{path}'\n[[policy]]\nallow = {condition:?}")
}

#[test]
fn a_policy_on_time_ends_a_stream() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let spec = setting
            .spec(&origin)
            .route("day", allowed_by("/day", "request.time < timestamp('2030-03-17T18:00:00Z')"))
            .route("open", allowed_by("/open", "custom.open"))
            .route("later", allowed_by("/later", "request.time < timestamp('2030-03-17T19:00:00Z')"));
        let gateway = spec.start().await;
        let mut day = setting.connect(&gateway, "request.example", "/day", None).await;
        let mut open = setting.connect(&gateway, "request.example", "/open", None).await;
        let mut later = setting.connect(&gateway, "request.example", "/later", None).await;
        for socket in [&mut day, &mut open, &mut later] {
            goes_on(socket).await;
        }
        // 17:59:10
        setting.clock.advance(Duration::from_secs(750));
        for socket in [&mut day, &mut open, &mut later] {
            goes_on(socket).await;
        }
        setting.clock.advance(Duration::from_secs(60));
        for socket in [day, open] {
            assert_eq!(closed(socket).await, (1008, "no longer allowed".into()));
        }
        goes_on(&mut later).await;
        // The line tells when the request came.
        assert_eq!(gateway.log(2).await[0]["reason"], "demand_unmet");
    });
}

/// The service gets another head than the one that was decided on, which the other rule holds for all the same.
#[test]
fn a_rule_that_denies_ends_a_stream_though_another_reads_what_was_changed() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let route = |path: &str, time: &str| {
            format!(
                r#"
                path_prefix = "{path}"
                policy = [
                    {{ deny = "request.time >= timestamp('{time}')" }},
                    {{ allow = "!has(request.headers['x-key'])" }},
                ]
                request_headers.set = {{ x-key = "set" }}
                "#
            )
        };
        let spec = setting
            .spec(&origin)
            .route("early", route("/early", "2030-03-17T18:00:00Z"))
            .route("late", route("/late", "2030-03-17T19:00:00Z"));
        let gateway = spec.start().await;
        let early = setting.connect(&gateway, "request.example", "/early", None).await;
        let mut late = setting.connect(&gateway, "request.example", "/late", None).await;
        setting.clock.advance(Duration::from_secs(810));
        goes_on(&mut late).await;
        assert_eq!(closed(early).await, (1008, "no longer allowed".into()));
        goes_on(&mut late).await;
    });
}

#[test]
fn a_policy_on_an_optional_certificate_ends_a_stream_with_it() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let spec = setting
            .spec(&origin)
            .route("shown", allowed_by("/shown", "has(connection.client_certificate.names)"))
            .route("computed", allowed_by("/computed", "custom.shown"));
        let gateway = spec.start().await;
        let (brief, long) = (setting.issue(HOUR), setting.issue(10 * HOUR));
        let mut ending = Vec::new();
        for path in ["/shown", "/computed"] {
            ending.push(setting.connect(&gateway, "request.example", path, Some(&brief)).await);
        }
        let mut control = setting.connect(&gateway, "request.example", "/computed", Some(&long)).await;
        for socket in ending.iter_mut().chain([&mut control]) {
            goes_on(socket).await;
        }
        setting.clock.advance(HOUR + Duration::from_secs(1));
        for socket in ending {
            assert_eq!(closed(socket).await, (1008, "no longer allowed".into()));
        }
        goes_on(&mut control).await;
    });
}

#[test]
fn a_reload_that_changes_nothing_ends_no_stream_whose_policy_reads_computed_attributes() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let spec = |name: &str| setting.spec(&origin).route(name, allowed_by("/open", "custom.open"));
        let gateway = spec("open").start().await;
        let mut socket = setting.connect(&gateway, "request.example", "/open", None).await;
        goes_on(&mut socket).await;
        setting.clock.advance(Duration::from_secs(2));
        gateway.reload(spec("opened"));
        for _ in 0..3 {
            setting.clock.advance(RECHECK);
            goes_on(&mut socket).await;
        }
        // The control: it is looked at.
        setting.clock.advance(HOUR);
        assert_eq!(closed(socket).await, (1008, "no longer allowed".into()));
    });
}

#[test]
fn a_reload_that_makes_a_path_hide_another_ends_what_it_let_in() {
    run(async {
        let (origin, setting) = (echo().await, Setting::new());
        let gateway = setting.spec(&origin).start().await;
        let mut socket = setting.connect(&gateway, "request.example", "/chat;x/room", None).await;
        let mut control = setting.connect(&gateway, "request.example", "/chat/room", None).await;
        setting.clock.advance(Duration::from_secs(2));
        gateway.reload(setting.spec(&origin));
        goes_on(&mut socket).await;
        gateway.reload(setting.spec(&origin).route("room", "path_prefix = '/chat/room'"));
        assert_eq!(closed(socket).await, (1008, "no longer allowed".into()));
        goes_on(&mut control).await;
    });
}
