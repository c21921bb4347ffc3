//! A gateway with a configuration, origins that follow a script, raw clients.

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod http2_origin;
pub(crate) mod origin;
pub(crate) mod tokens;
pub(crate) mod under_way;

use std::{future::Future, time::Duration};

pub(crate) use client::Client;
pub(crate) use gateway::{Harness, Spec, add_rules, unchecked};
pub(crate) use origin::Origin;

/// How long a test may take: far more than any needs.
pub(crate) const TEST_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs a test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TEST_TIME_MAX, test).await.expect("the test hangs");
    });
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut every = tokio::time::interval(Duration::from_millis(2));
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        every.tick().await;
    }
    panic!("never: {what}");
}

/// A `GET` without a body.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}
