//! Shares of clients with real requests: what one client may have of an adaptive limit, and who is told apart.

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    admission::{Gated, at_rest, figures, sent, waiting},
    support::run,
};

const FOUR: &str = "trusted_proxies.prefixes = ['127.0.0.1/32']\n\
    [admission]\nmax_in_flight = 'adaptive'\nfloor = 4\nceiling = 4\nmax_queue = 20\nmax_age = '1m'\n";

fn from(address: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: {address}\r\n\r\n")
}

#[test]
fn a_client_gets_no_more_than_its_share_while_another_one_waits() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(FOUR).start().await;
        let mut clients = Vec::new();
        for number in 0..6 {
            clients.push(sent(&gateway, from("192.0.2.1")).await);
            gated.has_requests(usize::min(number + 1, 4)).await;
        }
        // It is alone: it has all permits, and may wait for more.
        waiting(&gateway, 2).await;
        assert_eq!(figures(&gateway, "process").reserved, 0);
        clients.push(sent(&gateway, from("192.0.2.2")).await);
        waiting(&gateway, 3).await;
        assert_eq!(figures(&gateway, "process").reserved, 1);
        let refused = gateway.client().await.exchange(from("192.0.2.1")).await;
        assert_eq!((refused.status, refused.code()), (503, "queue_share".to_owned()));
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=4).contains(&seconds), "{seconds}");
        assert!(!refused.closes());
        // The controls: clients that have little wait.
        clients.push(sent(&gateway, from("192.0.2.2")).await);
        waiting(&gateway, 4).await;
        clients.push(sent(&gateway, from("192.0.2.3")).await);
        waiting(&gateway, 5).await;
        gated.let_go.add_permits(9);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!(gated.most.load(SeqCst), 4);
        at_rest(&gateway).await;
        let name = "cardea_admission_requests_total{limit=\"process\",outcome=\"queue_share\"}";
        assert_eq!(gateway.metric(name), 1);
    });
}

#[test]
fn with_a_share_of_all_no_clients_are_told_apart() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(&format!("{FOUR}client_share = 100\n")).start().await;
        let mut clients = Vec::new();
        for (number, address) in [1, 1, 1, 1, 2, 2, 1].into_iter().enumerate() {
            clients.push(sent(&gateway, from(&format!("192.0.2.{address}"))).await);
            if number < 4 {
                gated.has_requests(number + 1).await;
            } else {
                waiting(&gateway, number as u32 - 3).await;
            }
        }
        gated.let_go.add_permits(7);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        at_rest(&gateway).await;
    });
}

/// A client that leaves, at whatever stage, gives back what it has.
#[test]
fn what_a_client_has_ends_with_its_requests() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(FOUR).start().await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(sent(&gateway, from("192.0.2.1")).await);
        }
        gated.has_requests(4).await;
        clients.push(sent(&gateway, from("192.0.2.1")).await);
        clients.push(sent(&gateway, from("192.0.2.2")).await);
        waiting(&gateway, 2).await;
        assert_eq!(gateway.client().await.exchange(from("192.0.2.1")).await.code(), "queue_share");
        drop(clients);
        at_rest(&gateway).await;
        // Nothing is left of it: all but what is reserved for others is free to it.
        let again = [
            sent(&gateway, from("192.0.2.1")).await,
            sent(&gateway, from("192.0.2.1")).await,
            sent(&gateway, from("192.0.2.1")).await,
        ];
        gated.has_requests(7).await;
        assert_eq!(gateway.client().await.exchange(from("192.0.2.1")).await.code(), "queue_share");
        drop(again);
        at_rest(&gateway).await;
    });
}
