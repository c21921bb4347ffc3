//! Routes that distribute their requests over several services.

use cardea_clock::{ManualClock, Wall};
use serde_json::json;

use crate::support::{Harness, Origin, Spec, get, run, until};

/// An origin whose responses name it.
async fn named(name: &str) -> Origin {
    Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())).await
}

fn service(name: &str, address: impl std::fmt::Display, keys: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\n{keys}\n[[service.endpoint]]\naddress = \"{address}\"\n")
}

/// The route `split` leads to `main` and `next` with these weights.
fn split(old: &Origin, new: &Origin, weights: [u32; 2], keys: &str) -> Spec {
    let [first, second] = weights;
    Spec::to(old).with(service("next", new.address, "")).route(
        "split",
        format!(
            "path_prefix = \"/split\"\n{keys}\nsplit = [{{ service = \"main\", weight = {first} }}, \
             {{ service = \"next\", weight = {second} }}]"
        ),
    )
}

/// A request with a value of the header that is the key.
fn keyed(key: u32) -> String {
    format!("GET /split HTTP/1.1\r\nHost: a.example\r\nX-Key: {key}\r\n\r\n")
}

/// Who answers to each of these requests.
async fn answers(gateway: &Harness, requests: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut client = gateway.client().await;
    let mut answers = Vec::new();
    for request in requests {
        let response = client.exchange(request).await;
        assert_eq!(response.status, 200);
        answers.push(response.text());
    }
    answers
}

const KEY: &str = "split_key = \"{request.headers.x-key}\"";

#[test]
fn requests_are_distributed_by_weight() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        for (weights, range) in [([3, 1], 60..140), ([1, 0], 0..1), ([0, 1], 400..401)] {
            let gateway = split(&old, &new, weights, "").start().await;
            let answers = answers(&gateway, std::iter::repeat_n(get("/split"), 400)).await;
            let count = answers.iter().filter(|answer| *answer == "new").count();
            assert!(range.contains(&count), "{weights:?}: {count}");
        }
    });
}

#[test]
fn a_key_stays_with_its_service_also_when_weights_change() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        let requests = || (0..200).map(keyed);
        let gateway = split(&old, &new, [9, 1], KEY).start().await;
        let first = answers(&gateway, requests()).await;
        assert_eq!(answers(&gateway, requests()).await, first);
        let canary = |answers: &[String]| answers.iter().filter(|answer| *answer == "new").count();
        assert!((5..45).contains(&canary(&first)), "{}", canary(&first));
        let gateway = split(&old, &new, [5, 5], KEY).start().await;
        let then = answers(&gateway, requests()).await;
        assert!(canary(&then) > canary(&first));
        for (before, after) in first.iter().zip(&then) {
            assert!(before == "old" || after == "new", "nobody goes back");
        }
    });
}

#[test]
fn a_request_without_its_key_goes_to_any_service() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        let gateway = split(&old, &new, [1, 1], KEY).start().await;
        let answers = answers(&gateway, std::iter::repeat_n(get("/split"), 60)).await;
        assert!(answers.contains(&"old".to_owned()) && answers.contains(&"new".to_owned()));
    });
}

#[test]
fn a_key_may_be_the_caller() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        let keys = "auth = { issuer = \"main\" }\nsplit_key = \"{token.sub}\"";
        let gateway = split(&old, &new, [1, 1], keys).start().await;
        let mut seen = std::collections::HashSet::new();
        for caller in 0..30 {
            let token = gateway.token_with(&json!({ "sub": format!("user-{caller}") }));
            let request =
                format!("GET /split HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n");
            let answers = answers(&gateway, std::iter::repeat_n(request, 3)).await;
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
            seen.insert(answers[0].clone());
        }
        assert_eq!(seen.len(), 2);
        assert_eq!(gateway.client().await.exchange(get("/split")).await.status, 401);
    });
}

#[test]
fn a_request_stays_with_a_service_that_fails() {
    run(async {
        let old = named("old").await;
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let gateway = Spec::to(&old)
            .with(service("next", gone, ""))
            .route(
                "split",
                "path_prefix = \"/split\"\nsplit = [{ service = \"main\", weight = 0 }, { service = \"next\", weight = 1 }]",
            )
            .start()
            .await;
        let mut client = gateway.client().await;
        for _ in 0..3 {
            assert_eq!(client.exchange(get("/split")).await.status, 502);
        }
        assert_eq!(old.connections(), 0);
    });
}

/// Keys for which the first and the second service is chosen, on any gateway with equal weights.
async fn keys_of(old: &Origin, new: &Origin) -> [u32; 2] {
    let gateway = split(old, new, [1, 1], KEY).start().await;
    let answers = answers(&gateway, (0..50).map(keyed)).await;
    ["old", "new"].map(|name| answers.iter().position(|answer| answer == name).unwrap() as u32)
}

#[test]
fn the_throttles_of_the_chosen_service_count_once() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        let [of_old, of_new] = keys_of(&old, &new).await;
        let clock = ManualClock::new(Wall::from_unix_seconds(1_900_000_000));
        let throttle =
            |name: &str, keys: &str| format!("[[throttle]]\nname = \"{name}\"\nrate = \"1/h\"\n{keys}\n");
        // All but the request that each of the rows ends with are admitted.
        for (of_route, of_services, key, requests) in [
            ("both", "both", "[]", [of_old, of_new, of_old]),
            ("", "both", "[]", [of_old, of_new, of_old]),
            ("both", "", "['service.name']", [of_old, of_old, of_old]),
            ("", "both", "['service.name']", [of_old, of_old, of_old]),
        ] {
            let counted = |by: &str| match by {
                "" => String::new(),
                by => format!("throttles = ['{by}']"),
            };
            let keys = format!("{KEY}\n{}", counted(of_route));
            let services = ["main", "next"]
                .map(|name| format!("[[service]]\nname = '{name}'\n{}\n", counted(of_services)));
            let spec = split(&old, &new, [1, 1], &keys);
            let spec =
                spec.with(services.concat()).with(throttle("both", &format!("key = {key}\nburst = 2")));
            let gateway = Spec { clock: Some(clock.clock()), ..spec }.start().await;
            let mut client = gateway.client().await;
            let mut statuses = Vec::new();
            for request in requests {
                statuses.push(client.exchange(keyed(request)).await.status);
            }
            assert_eq!(statuses, [200, 200, 429], "{of_route} {of_services} {key}");
            let other = if key == "[]" { 429 } else { 200 };
            assert_eq!(client.exchange(keyed(of_new)).await.status, other, "{of_route} {of_services} {key}");
        }
    });
}

#[test]
fn the_limit_of_the_chosen_service_counts() {
    run(async {
        let (old, new) = (named("old").await, named("new").await);
        let [of_old, of_new] = keys_of(&old, &new).await;
        let silent = Origin::silent().await;
        let gateway = split(&old, &silent, [1, 1], KEY)
            .with("[[service]]\nname = 'next'\nadmission = { max_in_flight = 1, max_queue = 0 }")
            .start()
            .await;
        let mut waiting = gateway.client().await;
        waiting.send(keyed(of_new)).await;
        silent.until(|text| text.contains("/split")).await;
        let mut client = gateway.client().await;
        let refused = client.exchange(keyed(of_new)).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "queue_full"));
        assert_eq!(client.exchange(keyed(of_old)).await.status, 200);
        let limits = gateway.gateway.model().admission.limits.clone();
        assert_eq!((limits.len(), limits[0].label.as_str()), (1, "service/next"));
        assert_eq!(limits[0].limit.figures().in_flight, 1);
        drop(waiting);
        until("the permit is returned", || limits[0].limit.figures().in_flight == 0).await;
    });
}
