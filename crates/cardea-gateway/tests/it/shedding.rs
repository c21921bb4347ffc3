//! Callers that are refused during an overload, with real requests: who they are, and for how long.

use std::{collections::BTreeSet, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_guard::Threshold;

use crate::{
    admission::{Gated, figures, sent},
    support::{Client, Spec, run},
};

const CALLERS: u8 = 60;
/// The least time after which it is decided anew who is refused.
const PERIOD: Duration = Duration::from_millis(500);

fn from(caller: u8, more: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.{caller}\r\n{more}\r\n")
}

fn spec(gated: &Gated, clock: &ManualClock, shed_callers: bool) -> Spec {
    let toml = format!(
        "trusted_proxies.prefixes = ['127.0.0.1/32']\n[admission]\nmax_in_flight = 1\nmax_queue = 0\n\
         shed_callers = {shed_callers}\npriority = \"'x-critical' in request.headers ? 'critical' : 'normal'\""
    );
    Spec { clock: Some(clock.clock()), ..gated.spec(&toml) }
}

/// One request of each caller, none of which finds a permit: who is refused as a caller.
async fn period(client: &mut Client, clock: &ManualClock) -> BTreeSet<u8> {
    clock.advance(PERIOD);
    let mut shed = BTreeSet::new();
    for caller in 1..=CALLERS {
        let refused = client.exchange(from(caller, "")).await;
        match (refused.status, refused.code().as_str()) {
            (503, "queue_shed") => assert!(shed.insert(caller)),
            other => assert_eq!(other, (503, "queue_full")),
        }
    }
    shed
}

#[test]
fn during_an_overload_the_same_callers_are_refused_and_afterwards_none() {
    run(async {
        let (gated, clock) = (Gated::start().await, ManualClock::new(Wall::from_unix_seconds(1_900_000_000)));
        let gateway = spec(&gated, &clock, true).start().await;
        let mut first = sent(&gateway, from(1, "")).await;
        gated.has_requests(1).await;
        let mut client = gateway.client().await;
        let mut periods = Vec::new();
        for _ in 0..16 {
            periods.push(period(&mut client, &clock).await);
            let critical = client.exchange(from(1, "X-Critical: 1\r\n")).await;
            assert_eq!(critical.code(), "queue_full", "the highest priority is never shed");
        }
        assert!(periods[0].is_empty() && periods[15].len() > usize::from(CALLERS) / 2, "{periods:?}");
        // Who is refused stays so, and others are spared while the overload is being found out.
        assert!(periods.windows(2).all(|pair| pair[0].is_subset(&pair[1])), "{periods:?}");
        let some = usize::from(CALLERS) / 6..usize::from(CALLERS) * 5 / 6;
        assert!(periods.iter().any(|shed| some.contains(&shed.len())), "{periods:?}");
        assert!(figures(&gateway, "process").threshold < Threshold::NONE);
        gated.let_go.add_permits(usize::from(CALLERS) * 16);
        assert_eq!(first.response().await.status, 200);
        for _ in 0..12 {
            clock.advance(PERIOD);
            for caller in 1..=CALLERS {
                assert_eq!(client.exchange(from(caller, "")).await.status, 200, "there are permits");
            }
        }
        assert_eq!(figures(&gateway, "process").threshold, Threshold::NONE);
    });
}

#[test]
fn without_shed_callers_all_callers_are_refused_alike() {
    run(async {
        let (gated, clock) = (Gated::start().await, ManualClock::new(Wall::from_unix_seconds(1_900_000_000)));
        let gateway = spec(&gated, &clock, false).start().await;
        let _first = sent(&gateway, from(1, "")).await;
        gated.has_requests(1).await;
        let mut client = gateway.client().await;
        for _ in 0..8 {
            assert!(period(&mut client, &clock).await.is_empty());
        }
    });
}
