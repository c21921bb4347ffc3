//! A request that waits, for a connection or for another attempt, is not sent once its right has ended.

use cardea_clock::Wall;
use cardea_upstream::Address;
use tokio::sync::watch;

use crate::support::{Harness, Origin, Spec, certificates::Certificates, run};

/// Reads a request, and closes once it is told to.
async fn closing_when_told(told: &watch::Sender<bool>) -> Origin {
    let told = told.subscribe();
    Origin::start(move |mut visit| {
        let mut told = told.clone();
        async move {
            visit.request().await?;
            let _ = told.wait_for(|told| *told).await;
            Ok(())
        }
    })
    .await
}

fn requests_at(origins: &[Origin; 2]) -> usize {
    origins.iter().map(|origin| origin.text().matches("PUT /api").count()).sum()
}

fn put(gateway: &Harness) -> String {
    let token = gateway.token();
    format!(
        "PUT /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\nContent-Length: 5\r\n\r\nhello"
    )
}

fn revoke(gateway: &Harness) {
    gateway.gateway.model().authenticator.revocations().revoke("main", "alice", Wall::MAX, Wall::MAX);
}

#[test]
fn a_request_is_not_sent_again_after_its_caller_was_revoked() {
    run(async {
        for is_revoked in [false, true] {
            let told = watch::Sender::new(false);
            let origins = [closing_when_told(&told).await, closing_when_told(&told).await];
            let addresses = origins.each_ref().map(|origin| Address::Tcp(origin.address));
            let gateway = Spec::to_addresses(addresses).start().await;
            let mut client = gateway.client().await;
            client.send(put(&gateway)).await;
            tokio::select! {
                () = origins[0].until(|text| text.contains("hello")) => {}
                () = origins[1].until(|text| text.contains("hello")) => {}
            }
            if is_revoked {
                revoke(&gateway);
            }
            told.send_replace(true);
            let response = client.response().await;
            let seen = (response.status, response.code(), requests_at(&origins));
            let expected = if is_revoked { (401, "token_revoked", 1) } else { (502, "upstream_aborted", 2) };
            assert_eq!((seen.0, seen.1.as_str(), seen.2), expected);
        }
    });
}

#[test]
fn a_request_that_waits_for_a_connection_ends_with_its_right() {
    run(async {
        // It accepts connections and makes no handshake.
        let origin = Origin::start(|mut visit| async move {
            visit.bytes(1).await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let certificates = Certificates::new();
        let spec = Spec::to(&origin).with(certificates.service("a.example"));
        let gateway = spec.with("timeouts.connect = '30s'").start().await;
        let mut client = gateway.client().await;
        client.send(put(&gateway)).await;
        origin.until(|text| !text.is_empty()).await;
        revoke(&gateway);
        let response = client.response().await;
        assert_eq!((response.status, response.code().as_str()), (401, "token_revoked"));
        assert!(!origin.text().contains("PUT"));
    });
}
