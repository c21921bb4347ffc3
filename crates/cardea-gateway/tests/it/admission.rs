//! Admission with real requests: order, age, clients that leave, reloads, and whether every permit returns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use cardea_gateway::{
    builtin::{BuiltIn, BuiltInFuture, BuiltInRequest, ErrorFormat},
    gateway::Phase,
};
use cardea_guard::AdmissionFigures;
use cardea_http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    builtin::Echo,
    http2,
    support::{
        Client, Harness, Origin, Spec,
        certificates::Certificates,
        get,
        origin::OK,
        run,
        under_way::{Ticking, Way, begin},
        until,
    },
};

/// An origin that answers as often as it is let, and knows how many it has answered at once at most.
pub(crate) struct Gated {
    pub(crate) origin: Origin,
    pub(crate) let_go: Arc<Semaphore>,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Gated {
    pub(crate) async fn start() -> Self {
        let let_go = Arc::new(Semaphore::new(0));
        let [now, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (released, highest) = (Arc::clone(&let_go), Arc::clone(&most));
        let origin = Origin::start(move |mut visit| {
            let (released, now, highest) = (Arc::clone(&released), Arc::clone(&now), Arc::clone(&highest));
            async move {
                loop {
                    visit.request().await?;
                    highest.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    released.acquire().await.unwrap().forget();
                    now.fetch_sub(1, SeqCst);
                    visit.send(OK).await?;
                }
            }
        })
        .await;
        Self { origin, let_go, most }
    }

    pub(crate) fn spec(&self, toml: &str) -> Spec {
        Spec::to(&self.origin).with(toml)
    }

    /// The paths that were asked for, in their order.
    fn paths(&self) -> Vec<String> {
        let text = self.origin.text();
        let lines = text.lines().filter_map(|line| line.strip_suffix(" HTTP/1.1"));
        lines.filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
    }

    pub(crate) async fn has_requests(&self, count: usize) {
        until("the origin has the requests", || self.origin.text().matches(" HTTP/1.1\r\n").count() >= count)
            .await;
    }
}

pub(crate) fn figures(gateway: &Harness, label: &str) -> AdmissionFigures {
    let model = gateway.gateway.model();
    let limit = model.admission.limits.iter().find(|limit| limit.label == label);
    limit.unwrap_or_else(|| panic!("no limit {label}")).limit.figures()
}

pub(crate) async fn waiting(gateway: &Harness, count: u32) {
    until("so many wait", || figures(gateway, "process").waiting == count).await;
}

/// Nothing is in flight any more, so each permit has returned.
pub(crate) async fn at_rest(gateway: &Harness) {
    until("nothing is in flight", || {
        let model = gateway.gateway.model();
        model.admission.limits.iter().all(|limit| {
            let figures = limit.limit.figures();
            (figures.in_flight, figures.waiting) == (0, 0)
        })
    })
    .await;
}

pub(crate) async fn sent(gateway: &Harness, request: impl AsRef<[u8]>) -> Client {
    let mut client = gateway.client().await;
    client.send(request).await;
    client
}

/// `count` requests, each of which waits before the next one comes.
async fn queue_up(gateway: &Harness, count: u32) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(sent(gateway, get(&format!("/{number}"))).await);
        waiting(gateway, number + 1).await;
    }
    clients
}

const ONE: &str = "admission = { max_in_flight = 1, max_queue = 10, max_age = '1m' }";

#[test]
fn requests_wait_for_their_turn_and_come_in_the_order_in_which_they_came() {
    run(async {
        let gated = Gated::start().await;
        let gateway =
            gated.spec(ONE).logging(["request.path", "queue.duration", "queue.priority"]).start().await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        let mut clients = queue_up(&gateway, 5).await;
        let process = figures(&gateway, "process");
        assert_eq!((process.in_flight, process.max_in_flight), (1, 1));
        assert!(process.oldest.is_some());
        gated.let_go.add_permits(6);
        assert_eq!(first.response().await.status, 200);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!(gated.paths(), ["/first", "/0", "/1", "/2", "/3", "/4"]);
        assert_eq!(gated.most.load(SeqCst), 1);
        at_rest(&gateway).await;
        let log = gateway.log(6).await;
        assert_eq!((&log[0]["queue.duration"], &log[0]["queue.priority"]), (&Value::Null, &json!("normal")));
        assert!(log[1]["queue.duration"].as_f64().is_some_and(|waited| waited > 0.0), "{}", log[1]);
        let metric = |name: &str| gateway.metric(name);
        assert_eq!(metric("cardea_admission_requests_total{limit=\"process\",outcome=\"admitted\"}"), 6);
        assert_eq!(metric("cardea_admission_queue_seconds_count{limit=\"process\"}"), 5);
    });
}

#[test]
fn who_can_not_wait_or_has_waited_for_too_long_is_told_when_to_come_back() {
    run(async {
        let gated = Gated::start().await;
        let limits = "admission = { max_in_flight = 1, max_queue = 1, max_age = '80ms' }";
        let gateway = gated.spec(limits).start().await;
        let mut first = sent(&gateway, get("/")).await;
        gated.has_requests(1).await;
        let mut second = sent(&gateway, get("/")).await;
        waiting(&gateway, 1).await;
        let full = gateway.client().await.exchange(get("/")).await;
        let expired = second.response().await;
        for (response, code) in [(&full, "queue_full"), (&expired, "queue_timeout")] {
            assert_eq!((response.status, response.code()), (503, code.to_owned()));
            assert_eq!(response.header("content-type"), Some("application/problem+json"));
            let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=4).contains(&seconds), "{seconds}");
            assert!(!response.closes());
        }
        gated.let_go.add_permits(1);
        assert_eq!(first.response().await.status, 200);
        // The connection goes on.
        gated.let_go.add_permits(1);
        assert_eq!(second.exchange(get("/")).await.status, 200);
        at_rest(&gateway).await;
        for outcome in ["queue_full", "queue_timeout"] {
            let name = format!("cardea_admission_requests_total{{limit=\"process\",outcome=\"{outcome}\"}}");
            assert_eq!(gateway.metric(&name), 1, "{outcome}");
        }
    });
}

#[test]
fn what_is_more_important_comes_first_and_is_not_kept_out_by_what_is_not() {
    run(async {
        let gated = Gated::start().await;
        let limits = "[admission]\nmax_in_flight = 1\nmax_queue = 3\nmax_age = '1m'\npriority = \"'x-batch' in request.headers ? 'low' : 'normal'\"";
        let gateway = gated
            .spec(limits)
            .route("urgent", "path_prefix = '/urgent'\nadmission.priority = 'high'")
            .logging(["request.path", "queue.priority"])
            .start()
            .await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        let batch = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Batch: 1\r\n\r\n");
        let mut low = Vec::new();
        for number in 0..2 {
            low.push(sent(&gateway, batch(&format!("/low/{number}"))).await);
            waiting(&gateway, number + 1).await;
        }
        let mut normal = sent(&gateway, get("/normal")).await;
        waiting(&gateway, 3).await;
        // The same, and what is as unimportant, finds no place.
        assert_eq!(gateway.client().await.exchange(batch("/low")).await.code(), "queue_full");
        let mut urgent = sent(&gateway, get("/urgent")).await;
        let displaced = low.pop().unwrap().response().await;
        assert_eq!((displaced.status, displaced.code()), (503, "queue_displaced".to_owned()));
        waiting(&gateway, 3).await;
        gated.let_go.add_permits(4);
        for client in [&mut first, &mut urgent, &mut normal, &mut low[0]] {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!(gated.paths(), ["/first", "/urgent", "/normal", "/low/0"]);
        let log = gateway.log(6).await;
        let urgent = log.iter().find(|line| line["request.path"] == "/urgent").unwrap();
        assert_eq!(urgent["queue.priority"], "high");
    });
}

#[test]
fn services_and_routes_have_limits_of_their_own_in_the_same_queue() {
    run(async {
        let gated = Gated::start().await;
        let other = Gated::start().await;
        let limits = format!(
            "[admission]\nmax_in_flight = 3\nmax_age = '1m'\n[[service]]\nname = 'main'\nadmission.max_in_flight = 2\n\
             [[service]]\nname = 'other'\nendpoint = [{{ address = '{}' }}]",
            other.origin.address
        );
        let gateway = gated
            .spec(&limits)
            .route("search", "path_prefix = '/search'\nadmission.max_in_flight = 1")
            .route("elsewhere", "path_prefix = '/elsewhere'\nservice = 'other'")
            .start()
            .await;
        let mut search = sent(&gateway, get("/search/1")).await;
        gated.has_requests(1).await;
        let mut second = sent(&gateway, get("/search/2")).await;
        waiting(&gateway, 1).await;
        // It waits for its route alone: others pass it.
        let mut main = sent(&gateway, get("/main/1")).await;
        gated.has_requests(2).await;
        let mut third = sent(&gateway, get("/main/2")).await;
        waiting(&gateway, 2).await;
        let mut elsewhere = sent(&gateway, get("/elsewhere/1")).await;
        other.has_requests(1).await;
        let mut fourth = sent(&gateway, get("/elsewhere/2")).await;
        waiting(&gateway, 3).await;
        let shown = |label: &str| {
            let AdmissionFigures { in_flight, waiting, .. } = figures(&gateway, label);
            (in_flight, waiting)
        };
        assert_eq!(
            [shown("process"), shown("service/main"), shown("route/search")],
            [(3, 3), (2, 2), (1, 1)]
        );
        other.let_go.add_permits(1);
        assert_eq!(elsewhere.response().await.status, 200);
        other.has_requests(2).await;
        // What comes back in `main` goes to the first of the two that wait for it.
        gated.let_go.add_permits(1);
        assert_eq!(search.response().await.status, 200);
        gated.has_requests(3).await;
        assert_eq!(gated.paths().iter().filter(|path| *path == "/search/2").count(), 1);
        gated.let_go.add_permits(3);
        other.let_go.add_permits(1);
        for client in [&mut second, &mut main, &mut third, &mut fourth] {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!((gated.most.load(SeqCst), other.most.load(SeqCst)), (2, 1));
        at_rest(&gateway).await;
    });
}

/// In each way to leave, with each kind of request.
#[test]
fn a_client_that_leaves_leaves_the_queue_at_once() {
    const POST: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n";
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(ONE).start().await;
        let mut first = sent(&gateway, get("/")).await;
        gated.has_requests(1).await;
        let pipelined = get("/one") + &get("/two");
        let chunked =
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let expecting = POST.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
        let requests = [
            get("/one"),
            pipelined,
            POST.to_owned(),
            format!("{POST}0123"),
            format!("{POST}0123456789"),
            chunked.to_owned(),
            expecting,
        ];
        for request in &requests {
            for resets in [false, true] {
                let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
                if resets {
                    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
                let mut client = Client::over(stream);
                client.send(request).await;
                waiting(&gateway, 1).await;
                if !resets {
                    client.finish().await;
                    waiting(&gateway, 0).await;
                }
                drop(client);
                waiting(&gateway, 0).await;
            }
        }
        let left = 2 * requests.len() as u64;
        until("they are counted", || {
            gateway.metric("cardea_admission_requests_total{limit=\"process\",outcome=\"left\"}") == left
        })
        .await;
        // None of them was carried, and the place is free for who comes next.
        let mut last = sent(&gateway, get("/last")).await;
        waiting(&gateway, 1).await;
        gated.let_go.add_permits(2);
        assert_eq!(first.response().await.status, 200);
        assert_eq!(last.response().await.status, 200);
        assert_eq!(gated.paths(), ["/", "/last"]);
        at_rest(&gateway).await;
    });
}

#[test]
fn a_stream_of_http2_that_is_reset_leaves_the_queue_and_the_others_stay() {
    run(async {
        let gated = Gated::start().await;
        let (gateway, certificates) = http2::gateway_with(&gated.origin, ONE).await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        let begin = |client: &mut http2::Client, method: &str, path: &str| {
            let uri = format!("https://a.example{path}");
            let request = http2::request(method, &uri).body(()).unwrap();
            client.send.send_request(request, method == "GET").unwrap()
        };
        let (first, _first_body) = begin(&mut client, "GET", "/first");
        gated.has_requests(1).await;
        let (second, second_body) = begin(&mut client, "GET", "/second");
        waiting(&gateway, 1).await;
        let (third, mut third_body) = begin(&mut client, "POST", "/third");
        waiting(&gateway, 2).await;
        let (fourth, _fourth_body) = begin(&mut client, "GET", "/fourth");
        waiting(&gateway, 3).await;
        third_body.send_reset(h2::Reason::CANCEL);
        waiting(&gateway, 2).await;
        drop((second, second_body));
        waiting(&gateway, 1).await;
        gated.let_go.add_permits(2);
        for response in [first, fourth] {
            assert_eq!(http2::collect(response).await.unwrap().status, 200);
        }
        assert!(http2::collect(third).await.is_err());
        assert_eq!(gated.paths(), ["/first", "/fourth"]);
        at_rest(&gateway).await;
    });
}

#[test]
fn a_crowd_that_leaves_at_once_leaves_nothing_behind() {
    run(async {
        let gated = Gated::start().await;
        let limits = "admission = { max_in_flight = 1, max_queue = 1000, max_age = '1m' }";
        let gateway = gated.spec(limits).start_with_workers(2).await;
        let mut first = sent(&gateway, get("/")).await;
        gated.has_requests(1).await;
        let mut crowd = Vec::new();
        for _ in 0..400 {
            crowd.push(sent(&gateway, get("/crowd")).await);
        }
        waiting(&gateway, 400).await;
        drop(crowd);
        waiting(&gateway, 0).await;
        gated.let_go.add_permits(2);
        assert_eq!(first.response().await.status, 200);
        assert_eq!(gateway.client().await.exchange(get("/last")).await.status, 200);
        assert_eq!(gated.paths(), ["/", "/last"]);
        at_rest(&gateway).await;
    });
}

#[test]
fn many_clients_on_several_workers_never_are_more_than_the_limit() {
    const CLIENTS: usize = 64;
    const EACH: usize = 20;
    run(async {
        for (limit, queue) in [(1, 1_000), (5, 1_000), (24, 10), (40, 0)] {
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (at_once, highest) = (Arc::clone(&now), Arc::clone(&most));
            let origin = Origin::start(move |mut visit| {
                let (now, most) = (Arc::clone(&at_once), Arc::clone(&highest));
                async move {
                    loop {
                        visit.request().await?;
                        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                        tokio::task::yield_now().await;
                        now.fetch_sub(1, SeqCst);
                        visit.send(OK).await?;
                    }
                }
            })
            .await;
            let limits =
                format!("admission = {{ max_in_flight = {limit}, max_queue = {queue}, max_age = '1m' }}");
            let gateway = Spec::to(&origin).with(limits).start_with_workers(4).await;
            let mut clients = tokio::task::JoinSet::new();
            for number in 0..CLIENTS {
                let address = gateway.address;
                clients.spawn(async move {
                    let mut outcomes = [0; 2];
                    let mut client = Client::connect(address).await;
                    for _ in 0..EACH {
                        let status = client.exchange(get(&format!("/{number}"))).await.status;
                        outcomes[usize::from(status != 200)] += 1;
                        assert!(matches!(status, 200 | 503), "{status}");
                    }
                    outcomes
                });
            }
            let mut outcomes = [0; 2];
            while let Some(of_one) = clients.join_next().await {
                let of_one = of_one.unwrap();
                outcomes = [outcomes[0] + of_one[0], outcomes[1] + of_one[1]];
            }
            assert!(most.load(SeqCst) <= limit, "{} of {limit}", most.load(SeqCst));
            assert_eq!(origin.text().matches(" HTTP/1.1\r\n").count(), outcomes[0]);
            if queue >= CLIENTS {
                assert_eq!(outcomes[1], 0, "there was room for all of them");
            }
            at_rest(&gateway).await;
        }
    });
}

#[test]
fn a_reload_changes_limits_at_once() {
    run(async {
        let gated = Gated::start().await;
        let spec = |limit: u32| {
            gated.spec(&format!("admission = {{ max_in_flight = {limit}, max_queue = 10, max_age = '1m' }}"))
        };
        let gateway = spec(1).start().await;
        let mut clients = vec![sent(&gateway, get("/")).await];
        gated.has_requests(1).await;
        clients.extend(queue_up(&gateway, 4).await);
        gateway.reload(spec(3));
        gated.has_requests(3).await;
        waiting(&gateway, 2).await;
        gateway.reload(spec(1));
        // Three are in flight: nobody is admitted until two of them have ended, and one more.
        gated.let_go.add_permits(2);
        until("two have ended", || figures(&gateway, "process").in_flight == 1).await;
        waiting(&gateway, 2).await;
        gated.let_go.add_permits(3);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        at_rest(&gateway).await;
        assert_eq!(gated.most.load(SeqCst), 3);
    });
}

#[test]
fn a_reload_without_the_limit_or_the_service_leaves_nobody_behind() {
    run(async {
        let (gated, other) = (Gated::start().await, Gated::start().await);
        let gateway = gated
            .spec(ONE)
            .with("[[service]]\nname = 'main'\nadmission = { max_in_flight = 1, max_queue = 10 }")
            .start()
            .await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        let mut clients = queue_up(&gateway, 2).await;
        let limits = gateway.gateway.model().admission.limits.clone();
        gateway.reload(Spec::to(&other.origin));
        // Requests of the new configuration have no limit.
        let mut fresh = [sent(&gateway, get("/fresh")).await, sent(&gateway, get("/fresh")).await];
        other.has_requests(2).await;
        other.let_go.add_permits(2);
        for client in &mut fresh {
            assert_eq!(client.response().await.status, 200);
        }
        // Those of the old one go on by it, one by one.
        gated.let_go.add_permits(3);
        assert_eq!(first.response().await.status, 200);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!(gated.paths(), ["/first", "/0", "/1"]);
        assert_eq!(gated.most.load(SeqCst), 1);
        until("nothing is in flight", || limits.iter().all(|limit| limit.limit.figures().in_flight == 0))
            .await;
    });
}

#[test]
fn a_limit_that_is_absent_for_one_reload_still_counts_what_is_in_flight() {
    run(async {
        let gated = Gated::start().await;
        let limits = "[admission]\nmax_in_flight = 10\nmax_age = '1m'\n[[service]]\nname = 'main'\nadmission = { max_in_flight = 1, max_queue = 10 }";
        let gateway = gated.spec(limits).start().await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        gateway.reload(gated.spec("[admission]\nmax_in_flight = 10\nmax_age = '1m'"));
        gateway.reload(gated.spec(limits));
        assert_eq!(figures(&gateway, "service/main").in_flight, 1);
        let mut second = sent(&gateway, get("/second")).await;
        waiting(&gateway, 1).await;
        gated.let_go.add_permits(2);
        assert_eq!(first.response().await.status, 200);
        assert_eq!(second.response().await.status, 200);
        assert_eq!(
            (gated.paths(), gated.most.load(SeqCst)),
            (vec!["/first".to_owned(), "/second".to_owned()], 1)
        );
        at_rest(&gateway).await;
    });
}

#[test]
fn a_draining_gateway_serves_who_waits_and_at_the_end_tells_them() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(ONE).start().await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        let mut clients = queue_up(&gateway, 2).await;
        gateway.gateway.advance(Phase::Draining);
        gateway.gateway.advance(Phase::Stopping);
        gated.let_go.add_permits(1);
        assert_eq!(first.response().await.status, 200);
        gated.has_requests(2).await;
        waiting(&gateway, 1).await;
        gateway.gateway.advance(Phase::Ending);
        let told = clients[1].response().await;
        assert_eq!((told.status, told.code()), (503, "drain_deadline".to_owned()));
        gated.let_go.add_permits(1);
        assert_eq!(clients[0].response().await.status, 200);
        at_rest(&gateway).await;
    });
}

#[test]
fn permits_return_however_an_exchange_ends() {
    run(async {
        let limits = "admission = { max_in_flight = 2, max_queue = 10, max_age = '1m' }";
        let closing = Origin::start(|mut visit| async move { visit.head().await.map(drop) }).await;
        let cut = Origin::closing("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal").await;
        let silent = Origin::silent().await;
        for (origin, name) in [(&closing, "closing"), (&cut, "cut"), (&silent, "silent")] {
            let spec = Spec::to(origin).with(limits).public("timeouts.response_head = '100ms'");
            let gateway = spec.start().await;
            for _ in 0..5 {
                let mut client = sent(&gateway, get("/")).await;
                drop(client.try_response(false).await);
            }
            let abandoned = [sent(&gateway, get("/")).await, sent(&gateway, get("/")).await];
            until("they are in flight", || figures(&gateway, "process").in_flight > 0 || name != "silent")
                .await;
            drop(abandoned);
            at_rest(&gateway).await;
        }
        // Nothing listens there.
        let gone = Origin::ok().await;
        let gateway = Spec::to(&gone).with(limits).start().await;
        drop(gone);
        for _ in 0..5 {
            let response = gateway.client().await.exchange(get("/")).await;
            assert!(response.status >= 502, "{}", response.status);
        }
        at_rest(&gateway).await;
    });
}

/// Panics where it is asked to.
#[derive(Debug)]
struct Panicking;

impl BuiltIn for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn methods(&self) -> Option<&'static [Method]> {
        None
    }

    fn body_bytes_max(&self) -> Option<u64> {
        Some(8)
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn answer<'a>(&'a self, _: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        Box::pin(async { panic!("on purpose") })
    }
}

#[test]
fn a_panic_returns_its_permit() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with(ONE).route("panic", "path_prefix = '/panic'\nbuiltin = 'token'");
        let spec = Spec { builtin: Some(Arc::new(Panicking)), ..spec };
        let gateway = spec.start_with_workers(2).await;
        for _ in 0..3 {
            assert!(sent(&gateway, get("/panic")).await.try_response(false).await.is_err());
        }
        at_rest(&gateway).await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 200);
    });
}

#[test]
fn built_in_services_come_first_and_have_their_format() {
    run(async {
        let gated = Gated::start().await;
        let limits = "admission = { max_in_flight = 1, max_queue = 1, max_age = '1m' }";
        let spec = gated.spec(limits).route("token", "path = '/token'\nbuiltin = 'token'");
        let gateway = Spec { builtin: Some(Arc::new(Echo(ErrorFormat::Oauth))), ..spec }.start().await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        let mut normal = sent(&gateway, get("/normal")).await;
        waiting(&gateway, 1).await;
        let post = "POST /token HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
        let mut token = sent(&gateway, post).await;
        assert_eq!(normal.response().await.code(), "queue_displaced");
        let refused = gateway.client().await.exchange(post).await;
        let document: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((refused.status, &document["error"]), (503, &json!("temporarily_unavailable")));
        assert!(refused.header("retry-after").is_some());
        gated.let_go.add_permits(1);
        assert_eq!(first.response().await.status, 200);
        assert_eq!(token.response().await.status, 418);
        at_rest(&gateway).await;
    });
}

#[test]
fn what_is_answered_at_once_takes_no_place() {
    run(async {
        let gated = Gated::start().await;
        let limits = "admission = { max_in_flight = 1, max_queue = 0 }";
        let gateway = gated
            .spec(limits)
            .route("static", "path = '/static'\nrespond = { status = 200, body = 'here' }")
            .route("moved", "path = '/moved'\nredirect = { to = '/elsewhere' }")
            .start()
            .await;
        let mut first = sent(&gateway, get("/first")).await;
        gated.has_requests(1).await;
        assert_eq!(gateway.client().await.exchange(get("/static")).await.status, 200);
        assert!(matches!(gateway.client().await.exchange(get("/moved")).await.status, 300..400));
        assert_eq!(gateway.client().await.exchange(get("/")).await.code(), "queue_full");
        gated.let_go.add_permits(1);
        assert_eq!(first.response().await.status, 200);
    });
}

#[test]
fn streams_leave_their_place_to_requests_as_far_as_there_is_room_for_streams() {
    run(async {
        let streaming = Ticking::start().await;
        let certificates = Certificates::new();
        let limits = "admission = { max_in_flight = 3, max_queue = 0, max_streams = 2, stream_after = '1s' }";
        let gateway = Spec::to(&streaming.origin).with(certificates.listener()).with(limits).start().await;
        let mut under_way = Vec::new();
        let connect = |alpn: &'static str| {
            let (certificates, address) = (&certificates, gateway.address);
            async move {
                let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
                certificates.connect(tcp, "a.example", &[alpn]).await
            }
        };
        let counted = || (figures(&gateway, "process").in_flight, figures(&gateway, "streams").in_flight);
        for way in [Way::WebSocket, Way::Http1, Way::Http2] {
            under_way.push(begin(way, connect(way.alpn()).await, ("a.example", "/"), &[]).await);
        }
        // The tunnel is one at once, the first response once it is old enough; for the second there is no room.
        until("the first response is a stream", || counted() == (1, 2)).await;
        streaming.all_go_on(&mut under_way).await;
        drop(under_way.remove(0));
        // The second response may take its place, if it has not asked for one yet.
        until("the tunnel has ended", || matches!(counted(), (1, 1) | (0, 2))).await;
        streaming.all_go_on(&mut under_way).await;
        drop(under_way);
        at_rest(&gateway).await;
    });
}

/// The limit begins with 32. It is raised once requests have waited for it, and the service has answered quickly.
#[test]
fn an_adaptive_limit_learns_from_responses_and_survives_a_reload() {
    run(async {
        let gated = Gated::start().await;
        let adaptive = "[[service]]\nname = 'main'\n\
             admission = { max_in_flight = 'adaptive', ceiling = 64, max_queue = 20, max_age = '1m' }";
        let gateway = gated.spec(adaptive).start().await;
        let limit = || figures(&gateway, "service/main").max_in_flight;
        assert_eq!(limit(), 32);
        let mut clients = Vec::new();
        for _ in 0..40 {
            clients.push(gateway.client().await);
        }
        let mut asked = 0;
        while limit() == 32 {
            for client in &mut clients {
                client.send(get("/")).await;
            }
            asked += clients.len();
            until("the queue has the rest", || {
                let figures = figures(&gateway, "service/main");
                figures.in_flight == figures.max_in_flight.min(40)
            })
            .await;
            gated.let_go.add_permits(clients.len());
            for client in &mut clients {
                assert_eq!(client.response().await.status, 200);
            }
        }
        assert_eq!(limit(), 64);
        assert!(asked >= 100, "{asked}");
        at_rest(&gateway).await;
        gateway.reload(gated.spec(adaptive));
        assert_eq!(limit(), 64);
        gateway.reload(gated.spec(&adaptive.replace("ceiling = 64", "ceiling = 50")));
        assert_eq!(limit(), 50);
        gateway.reload(gated.spec(&adaptive.replace("'adaptive', ceiling = 64", "3")));
        assert_eq!(limit(), 3);
    });
}
