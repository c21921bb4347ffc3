//! Tests of a connection's liveness and end.

use cardea_clock::{ManualClock, Wall};
use cardea_http::{BodyLength, Fields, Method, h1::HeadLimits};
use cardea_upstream::{Connections, EndpointConfig, ServiceConfig, ServiceState};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{
    super::{Connection as Reservation, Exchange},
    *,
};
use crate::upstream::{HeadError, OutgoingHead, Pooled};

/// SETTINGS without any, and the acknowledgement of the gateway's.
const SETTINGS: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

/// The header of a PING.
const PING_HEADER: [u8; 9] = [0, 0, 8, 6, 0, 0, 0, 0, 0];

/// A connection with an exchange, at some time of a clock that stands still.
struct Scene {
    service: Arc<ServiceState<Pooled>>,
    driver: Driver,
    exchange: Exchange,
    far: UnixStream,
    clock: ManualClock,
}

fn scene() -> Scene {
    let endpoint = EndpointConfig::new("10.0.0.1:80".parse().unwrap());
    let config = ServiceConfig::new("s", vec![endpoint]);
    let service = ServiceState::<Pooled>::reconcile(&config, None, Connections::Kept).unwrap();
    let endpoint = Arc::clone(service.endpoints().next().unwrap().1);
    let (near, far) = UnixStream::pair().unwrap();
    let clock = ManualClock::new(Wall::from_unix_seconds(2_000_000_000));
    let limits = Limits { head: HeadLimits::default(), streams_max: 100 };
    let codec = cardea_http::h2::Connection::new(
        Arc::new(super::config(limits, Scheme::Http)),
        elapsed(clock.clock().mono()),
    );
    let link = Link::new(&endpoint, codec, endpoint.permit().unwrap(), clock.clock());
    let reservation = Reservation::new(Arc::clone(&link));
    let head = OutgoingHead {
        method: Method::Get,
        target: b"/",
        fields: &Fields::default(),
        length: BodyLength::None,
        accepts_trailers: false,
    };
    let exchange = Exchange::begin(reservation, head);
    Scene { service, driver: Driver::new(link, Transport::Unix(near)), exchange, far, clock }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_silent_endpoint_is_asked_whether_it_is_alive_once_in_a_while() {
    run(async {
        let Scene { mut driver, exchange, mut far, clock, .. } = scene();
        far.write_all(&SETTINGS).await.unwrap();
        poll_once(&mut driver).await;
        clock.advance(PING_AFTER);
        // The timer was armed for real time; a fresh one looks at the clock at once.
        driver.timer = Timer::new(clock.clock());
        poll_once(&mut driver).await;
        let now = clock.clock().mono();
        assert_eq!(driver.liveness.answer_by, now.saturating_add(PING_WAIT));
        assert_eq!(driver.liveness.ask_at, now.saturating_add(PING_AGAIN));
        let mut sent = [0; 512];
        let count = far.read(&mut sent).await.unwrap();
        assert!(sent[..count].ends_with(&[&PING_HEADER[..], &PING].concat()), "{:?}", &sent[..count]);
        // Whatever it sends, it is alive; and it is not asked again at once.
        far.write_all(&[0, 0, 8, 6, 1, 0, 0, 0, 0]).await.unwrap();
        far.write_all(&PING).await.unwrap();
        poll_once(&mut driver).await;
        assert_eq!((driver.liveness.answer_by, driver.stage), (Mono::MAX, Stage::Open));
        assert_eq!(driver.liveness.ask_at, now.saturating_add(PING_AGAIN));
        drop(exchange);
    });
}

#[test]
fn an_endpoint_that_does_not_answer_ends_its_exchanges() {
    run(async {
        let Scene { service, mut driver, mut exchange, mut far, clock } = scene();
        far.write_all(&SETTINGS).await.unwrap();
        poll_once(&mut driver).await;
        let endpoint = Arc::clone(service.endpoints().next().unwrap().1);
        assert_eq!(endpoint.connections(), 1);
        driver.liveness.answer_by = clock.clock().mono();
        driver.timer = Timer::new(clock.clock());
        poll_once(&mut driver).await;
        let mut head = ResponseHead::default();
        let polled = exchange.poll_head(&mut Context::from_waker(Waker::noop()), &mut head);
        assert_eq!(polled, Poll::Ready(Err(HeadError::Reset)), "it was alive since");
        assert_eq!(endpoint.connections(), 0);
        drop(exchange);
        assert!(endpoint.pool().is_empty());
    });
}

#[test]
fn a_connection_without_streams_waits_in_the_pool_and_ends_with_it() {
    run(async {
        let Scene { service, mut driver, exchange, mut far, .. } = scene();
        far.write_all(&SETTINGS).await.unwrap();
        poll_once(&mut driver).await;
        drop(exchange);
        let endpoint = Arc::clone(service.endpoints().next().unwrap().1);
        assert_eq!((endpoint.pool().len(), endpoint.connections()), (1, 1));
        endpoint.pool().clear();
        assert_eq!(endpoint.connections(), 0, "another one may be made at once");
        std::future::poll_fn(|cx| driver.poll(cx)).await;
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        // GOAWAY without an error.
        assert!(sent.ends_with(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "{sent:?}");
    });
}

/// Lets the driver do what it can do now.
async fn poll_once(driver: &mut Driver) {
    // The runtime learns first what there is to be received.
    for _ in 0..4 {
        tokio::task::yield_now().await;
        std::future::poll_fn(|cx| {
            let _ = driver.poll(cx);
            Poll::Ready(())
        })
        .await;
    }
}
