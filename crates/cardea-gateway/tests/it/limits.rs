//! Bounds on connections: what gives way at the limit, and what one address may have.

use std::{net::SocketAddr, time::Duration};

use cardea_clock::{ManualClock, Wall};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{
    Client, Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until,
};

/// A client behind an address of the loopback network.
async fn from(gateway: &Harness, address: [u8; 4]) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((address, 0))).unwrap();
    Client::over(socket.connect(gateway.address).await.unwrap())
}

#[test]
fn a_full_gateway_closes_the_connection_that_has_been_idle_for_the_longest() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with("limits.connections_max = 4");
        let gateway = spec.start().await;
        let mut idle = Vec::new();
        for _ in 0..4 {
            let mut client = gateway.client().await;
            assert_eq!(client.exchange(get("/")).await.status, 200);
            let begun = gateway.gateway.clock.mono();
            until("the clock goes on", || gateway.gateway.clock.mono() > begun).await;
            idle.push(client);
        }
        let mut others = Vec::new();
        for mut oldest in idle.drain(..2) {
            let mut other = gateway.client().await;
            assert_eq!(other.exchange(get("/")).await.status, 200);
            oldest.ended().await;
            others.push(other);
        }
        for mut younger in idle {
            assert_eq!(younger.exchange(get("/")).await.status, 200, "the control");
        }
        assert_eq!(gateway.metric("cardea_idle_connections_closed_total{reason=\"connections_max\"}"), 2);
    });
}

#[test]
fn a_connection_above_its_prefixs_share_evicts_no_other_prefix() {
    run(async {
        let origin = Origin::ok().await;
        let limits = "limits = { connections_max = 2, connections_per_prefix_max = 1 }";
        let spec = Spec::to(&origin).with(limits);
        let gateway = spec.start().await;
        let mut victim = from(&gateway, [127, 0, 0, 2]).await;
        assert_eq!(victim.exchange(get("/")).await.status, 200);
        let mut greedy = from(&gateway, [127, 0, 0, 3]).await;
        assert_eq!(greedy.exchange(get("/")).await.status, 200);
        for _ in 0..20 {
            from(&gateway, [127, 0, 0, 3]).await.ended().await;
        }
        assert_eq!(victim.exchange(get("/")).await.status, 200);
        assert_eq!(greedy.exchange(get("/")).await.status, 200);
        // The control: one that may come in takes the place of the one that has been idle for longer.
        assert_eq!(from(&gateway, [127, 0, 0, 4]).await.exchange(get("/")).await.status, 200);
        victim.ended().await;
    });
}

#[test]
fn silent_connections_do_not_block_active_clients() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with("limits.connections_max = 8");
        let gateway = spec.start().await;
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(gateway.client().await);
        }
        for _ in 0..20 {
            assert_eq!(gateway.client().await.exchange(get("/")).await.status, 200);
        }
    });
}

#[test]
fn a_connection_in_use_does_not_give_way() {
    run(async {
        let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let released = std::sync::Arc::clone(&release);
        let origin = Origin::start(move |mut visit| {
            let released = std::sync::Arc::clone(&released);
            async move {
                visit.request().await?;
                released.acquire().await.unwrap().forget();
                visit.send(OK).await
            }
        })
        .await;
        let spec = Spec::to(&origin).with("limits.connections_max = 2");
        let gateway = spec.start().await;
        let (mut head, mut waiting) = (gateway.client().await, gateway.client().await);
        waiting.send(get("/")).await;
        head.send("GET / HTTP/1.1\r\n").await;
        origin.until(|received| received.contains("\r\n\r\n")).await;
        until("the head is begun", || gateway.gateway.idle_connections() == 0).await;
        let mut third = gateway.client().await;
        third.send(get("/")).await;
        let begun = gateway.gateway.clock.mono();
        until("it was tried a few times to make room", || {
            gateway.gateway.clock.mono().saturating_since(begun) > std::time::Duration::from_millis(200)
        })
        .await;
        assert_eq!(gateway.gateway.connections(), 3, "the third waits");
        release.add_permits(3);
        assert_eq!(waiting.response().await.status, 200);
        // Idle now: it gives way to the one that waits.
        waiting.ended().await;
        assert_eq!(third.response().await.status, 200);
        head.send("Host: a.example\r\n\r\n").await;
        assert_eq!(head.response().await.status, 200);
    });
}

#[test]
fn a_connection_has_its_time_for_the_handshake_however_long_it_has_waited_for_its_turn() {
    run(async {
        let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let released = std::sync::Arc::clone(&release);
        let origin = Origin::start(move |mut visit| {
            let released = std::sync::Arc::clone(&released);
            async move {
                visit.request().await?;
                released.acquire().await.unwrap().forget();
                visit.send(OK).await
            }
        })
        .await;
        let (certificates, clock) = (Certificates::new(), ManualClock::new(Wall::from_unix_seconds(0)));
        let spec = Spec::to(&origin)
            .with(certificates.listener())
            .with("limits.connections_max = 1\ntimeouts.tls_handshake = '10s'");
        let spec = Spec { clock: Some(clock.clock()), ..spec };
        let time = Duration::from_secs(10);
        let gateway = spec.start().await;
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let mut first = Client::over(certificates.connect(tcp, "a.example", &[]).await);
        first.send(get("/")).await;
        origin.until(|received| received.contains("\r\n\r\n")).await;
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let second = async {
            let mut second = Client::over(certificates.connect(tcp, "a.example", &[]).await);
            second.exchange(get("/")).await
        };
        let others = async {
            until("the second waits", || gateway.gateway.connections() == 2).await;
            clock.advance(10 * time);
            release.add_permits(2);
            assert_eq!(first.response().await.status, 200);
            first.ended().await;
        };
        let (response, ()) = tokio::join!(second, others);
        assert_eq!(response.status, 200);
        // The control: who got a place and says nothing keeps it no longer than that.
        let silent = TcpStream::connect(gateway.address).await.unwrap();
        until("it shakes hands", || gateway.gateway.handshakes_under_way() == 1).await;
        clock.advance(time);
        Client::over(silent).ended().await;
    });
}

#[test]
fn one_prefix_has_no_more_connections_than_its_share() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).with("limits.connections_per_prefix_max = 3");
        let gateway = spec.start().await;
        let mut greedy = Vec::new();
        for _ in 0..3 {
            let mut client = from(&gateway, [127, 0, 0, 2]).await;
            assert_eq!(client.exchange(get("/")).await.status, 200);
            greedy.push(client);
        }
        for _ in 0..20 {
            let mut client = from(&gateway, [127, 0, 0, 2]).await;
            client.try_send(get("/")).await;
            assert!(client.try_response(false).await.is_err(), "closed at once");
        }
        assert!(
            gateway.has_metric("cardea_excess_connections_total{bound=\"connections_per_prefix_max\"} 20")
        );
        for last in 3..6 {
            let mut other = from(&gateway, [127, 0, 0, last]).await;
            assert_eq!(other.exchange(get("/")).await.status, 200, "the control: another address");
        }
        assert_eq!(greedy[0].exchange(get("/")).await.status, 200);
        drop(greedy.pop());
        until("its place is free", || gateway.gateway.connections() == 2).await;
        assert_eq!(from(&gateway, [127, 0, 0, 2]).await.exchange(get("/")).await.status, 200);
    });
}

#[test]
fn trusted_proxies_have_no_share() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .with("limits.connections_per_prefix_max = 3")
            .with("trusted_proxies.prefixes = ['127.0.0.2']");
        let gateway = spec.start().await;
        let mut clients = Vec::new();
        for _ in 0..10 {
            let mut client = from(&gateway, [127, 0, 0, 2]).await;
            assert_eq!(client.exchange(get("/")).await.status, 200);
            clients.push(client);
        }
    });
}
