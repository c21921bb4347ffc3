//! Throttles of a server as its users run it: across reloads, at the token endpoint, in explanations and metrics.

use serde_json::json;

use crate::support::{Connection, Folder, Server, folder::Settings, metrics::Metrics, until};

/// A throttle of the route `/limited`, and one of the token endpoint; a day earns back one unit or a few, so that no test is
/// too slow.
fn settings(rate: &str, key: &str, more: &str) -> Settings {
    let more = format!(
        r#"
[[throttle]]
name = "limited"
key = [{key}]
rate = "{rate}"
burst = 3
{more}

[[throttle]]
name = "tokens"
key = ["source.address"]
rate = "2/d"
all_routes = true
when = "route.name == 'authorization-server-token'"

[[throttle]]
name = "callers"
key = ["token.iss", "token.sub"]
rate = "2/d"
report = "always"
all_routes = true
when = "route.name == 'private'"

[[route]]
name = "limited"
path = "/limited"
auth = "public"
throttles = ["limited"]
respond = {{ body = "come in" }}
"#
    );
    Settings { more, ..Settings::default() }
}

fn statuses(connection: &mut Connection, path: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| connection.get(path).unwrap().status).collect()
}

#[test]
fn a_limit_survives_reloads_while_its_key_is_unchanged() {
    let folder = Folder::new(&settings("3/d", "\"source.address\"", ""));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(statuses(&mut connection, "/limited", 4), [200, 200, 200, 429]);
    // Nothing, something else, the rate, and what becomes of who is refused.
    for (rate, more) in [("3/d", ""), ("3/d", "report = \"never\""), ("4/d", ""), ("3/h", "ipv6_prefix = 64")]
    {
        folder.configure(&settings(rate, "\"source.address\"", more));
        assert!(server.reload().0);
        let answer = connection.get("/limited").unwrap();
        assert_eq!(answer.status, 429, "{rate} {more}");
        assert_eq!(answer.head.field("ratelimit").is_none(), more.contains("never"), "{rate} {more}");
    }
    // A configuration that is refused changes nothing.
    folder.configure(&settings("3/d", "\"sorce.address\"", ""));
    assert!(!server.reload().0);
    assert_eq!(statuses(&mut connection, "/limited", 1), [429]);
    // Another key has used nothing.
    folder.configure(&settings("3/d", "\"source.address\", \"request.host\"", ""));
    assert!(server.reload().0);
    assert_eq!(statuses(&mut connection, "/limited", 4), [200, 200, 200, 429]);
    // A dry run lets everybody in, and goes on counting.
    folder.configure(&settings("3/d", "\"source.address\", \"request.host\"", "dry_run = true"));
    assert!(server.reload().0);
    assert_eq!(statuses(&mut connection, "/limited", 2), [200, 200]);
    until("requests to be counted", || {
        let metrics = Metrics::of(&server);
        let count = |outcome: &str| {
            metrics
                .get(&format!("cardea_throttle_requests_total{{throttle=\"limited\",outcome=\"{outcome}\"}}"))
        };
        let of_keys = |name: &str| metrics.get(&format!("cardea_throttle_{name}{{throttle=\"limited\"}}"));
        assert_eq!((of_keys("keys"), of_keys("evictions_total")), (Some(1.0), Some(0.0)));
        ((count("admitted"), count("limited"), count("dry_run_limited")) == (Some(6.0), Some(7.0), Some(2.0)))
            .then_some(())
    });
    server.stop();
}

#[test]
fn the_token_endpoint_refuses_invalid_requests_before_verification() {
    let folder = Folder::new(&settings("3/d", "", ""));
    let server = Server::start(&folder);
    let (id, secret) = folder.create_client("billing");
    let mut connection = server.connect();
    let token = connection.token(&id, &secret).unwrap().member("access_token").unwrap();
    assert_eq!(connection.token(&id, "wrong").unwrap().status, 401);
    for secret in [secret.as_str(), "wrong"] {
        let answer = connection.token(&id, secret).unwrap();
        assert_eq!(answer.status, 429);
        assert_eq!(answer.member("error").as_deref(), Some("temporarily_unavailable"));
        assert_eq!(answer.member("code").as_deref(), Some("rate_limited"));
        let retry_after: u64 = answer.head.field("retry-after").unwrap().parse().unwrap();
        assert!((43_000..=43_200).contains(&retry_after), "{retry_after}");
        assert_eq!(answer.head.field("ratelimit-policy"), Some("\"tokens\";q=2;w=86400"));
    }

    // What is asked about is not charged, by a process of its own as by the server.
    let explain = |more: &[&str]| {
        let arguments = ["explain", "GET", "https://gateway.test/private", "--json", "--token", &token];
        let ran = folder.run(&[&arguments[..], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.json()["throttles"].clone()
    };
    let standing = |fits: bool, remaining: u64| json!([{ "throttle": "callers", "cost": 1, "fits": fits, "remaining": remaining, "burst": 2, "in_flight": null, "max_in_flight": null, "dry_run": false }]);
    assert_eq!(explain(&[]), standing(true, 1));
    assert_eq!(explain(&[]), standing(true, 1));
    for remaining in ["r=1", "r=0"] {
        let answer = connection.get_with_token("/private", &token).unwrap();
        let told = answer.head.field("ratelimit").unwrap_or_default();
        assert!(answer.status == 200 && told.contains(remaining), "{told}");
    }
    assert_eq!(connection.get_with_token("/private", &token).unwrap().status, 429);
    server.stop();
}
