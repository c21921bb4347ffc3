//! Tokens before a clock that stands still or is stepped: none lives longer than its bound.

use std::time::Duration;

use cardea_clock::{LAG_MAX, ManualClock, Wall};
use cardea_gateway::workers::Workers;
use cardea_identity::SKEW_DEFAULT;
use serde_json::json;

use crate::support::{Harness, Origin, Spec, get, run, until};

/// In 2030.
const BEGUN: i64 = 1_900_000_000;

/// What is left of a token of the tests when they begin, with the skew.
const LEFT: Duration = Duration::from_secs(300).saturating_add(SKEW_DEFAULT);

async fn gateway(clock: &ManualClock) -> (Origin, Harness, String) {
    let origin = Origin::ok().await;
    let gateway = Spec { clock: Some(clock.clock()), ..Spec::to(&origin) }.start().await;
    let token = gateway.issuer.token(BEGUN, &json!({"exp": BEGUN + 300}));
    (origin, gateway, token)
}

/// Over a connection of its own, and then over the same again: the answers to both.
async fn ask(gateway: &Harness, token: &str) -> [u16; 2] {
    let request = get("/api").replacen("\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n"), 1);
    let mut client = gateway.client().await;
    [client.exchange(&request).await.status, client.exchange(&request).await.status]
}

#[test]
fn a_refresher_that_stops_extends_no_token_by_more_than_the_bound() {
    run(async {
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN));
        let (_origin, gateway, token) = gateway(&clock).await;
        let mut kept = gateway.client().await;
        let request = get("/api").replacen("\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n"), 1);
        assert_eq!(kept.exchange(&request).await.status, 200);
        clock.advance(LEFT.checked_sub(Duration::from_nanos(1)).unwrap());
        assert_eq!((kept.exchange(&request).await.status, ask(&gateway, &token).await), (200, [200; 2]));
        // The refresher stands still from here on. A request has the exact time, because its duration is reported.
        clock.advance_unpublished(Duration::from_nanos(1));
        assert_eq!((kept.exchange(&request).await.status, ask(&gateway, &token).await), (401, [401; 2]));
        // All else has the coarse one, and a worker looks after that.
        clock.advance_unpublished(LAG_MAX);
        assert!(!gateway.gateway.clock.is_refreshed());
        Workers::here().watch_clock(&gateway.gateway.clock);
        until("a worker has looked", || gateway.gateway.clock.late_refreshes() == 1).await;
        assert_eq!(gateway.gateway.clock.now(), gateway.gateway.clock.precise());
        assert_eq!((kept.exchange(&request).await.status, ask(&gateway, &token).await), (401, [401; 2]));
    });
}

#[test]
fn stepping_the_wall_clock_back_and_forth_extends_no_verdict() {
    run(async {
        for steps in [[-600, 600], [-3_600, 7_200], [300, -300], [0, 30], [-300, 0], [30, -200]] {
            let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN + 100));
            let (_origin, gateway, token) = gateway(&clock).await;
            assert_eq!(ask(&gateway, &token).await, [200; 2], "the control");
            let step = |seconds: i64| {
                let by = Duration::from_secs(seconds.unsigned_abs());
                if seconds < 0 { clock.step_wall_back(by) } else { clock.step_wall_forward(by) }
            };
            step(steps[0]);
            clock.advance(LEFT / 2);
            step(steps[1]);
            clock.advance(LEFT / 2);
            let behind = steps[0] + steps[1] < 0;
            // By a calendar that was put back for good it is valid again, but no verdict from before says so.
            assert_eq!(ask(&gateway, &token).await, [if behind { 200 } else { 401 }; 2], "{steps:?}");
            let verified = if behind { 2 } else { 1 };
            let metric = format!("cardea_token_verdicts_total{{source=\"verification\"}} {verified}");
            assert!(gateway.has_metric(&metric), "{steps:?}");
        }
    });
}

#[test]
fn the_wall_clock_is_followed_where_it_is_stepped_beyond_a_tokens_end() {
    run(async {
        let clock = ManualClock::new(Wall::from_unix_seconds(BEGUN));
        let (_origin, gateway, token) = gateway(&clock).await;
        assert_eq!(ask(&gateway, &token).await, [200; 2]);
        clock.step_wall_forward(LEFT);
        assert_eq!(ask(&gateway, &token).await, [401; 2]);
    });
}
