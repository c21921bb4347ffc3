//! Fields by which proxies tell origins what to believe: those that a client wrote do not reach the origin.

use std::net::Ipv4Addr;

use super::lab::{Hello, Lab, PUNCTUATION, Request, Way, origin::variable};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"
"#;

// `Early-Data` is not among them: no intermediary may remove it (RFC 8470 §5.1), and it makes a service more careful only.
const HINTS: [&str; 11] = [
    "X-Forwarded-Ssl",
    "X-Forwarded-Scheme",
    "X-Forwarded-Protocol",
    "Front-End-Https",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "True-Client-IP",
    "X-Client-IP",
    "Proxy",
    "X-Request-Id",
];

fn hints(punctuation: char) -> Vec<(String, String)> {
    HINTS.iter().map(|name| (name.replace('-', &punctuation.to_string()), "1".to_owned())).collect()
}

#[test]
fn hints_of_a_client_go_no_further() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for punctuation in PUNCTUATION {
            let get = Request::get(HOST, "/").with("X-Plain", "mine");
            let fields = hints(punctuation);
            for request in [get.clone().all(&fields), get.streamed(b"body", &fields)] {
                let Some(record) = lab.reach(way, &request) else { continue };
                let environment = record.only().environment();
                for name in HINTS {
                    let values = environment.get(&variable(name)).cloned().unwrap_or_default();
                    assert!(!values.contains(&"1"), "{way:?} {punctuation:?}: {name} is {values:?}");
                }
            }
        }
        let control = lab.reach(way, &Request::get(HOST, "/").with("X-Plain", "mine")).unwrap();
        assert_eq!(control.only().values("x-plain"), ["mine"]);
    }
    lab.finish("/");
}

#[test]
fn hints_of_a_trusted_proxy_are_kept() {
    let lab = Lab::new(&format!("[trusted_proxies]\nprefixes = [\"127.0.0.1/32\"]\n{ROUTES}"));
    let request = Request::get(HOST, "/").with("X-Forwarded-Ssl", "on").with("True-Client-IP", "192.0.2.1");
    for way in [Way::Plain, Way::Tls, Way::TlsH2] {
        let record = lab.reach(way, &request).expect("the control");
        assert_eq!(record.only().values("x-forwarded-ssl"), ["on"], "{way:?}");
        assert_eq!(record.only().values("true-client-ip"), ["192.0.2.1"], "{way:?}");
        let mut wire = lab.connect_from(Ipv4Addr::new(127, 0, 0, 2), way, false, Hello::to(HOST)).unwrap();
        let record = lab.arrived(&wire.send(&request)).expect("the control");
        let seen = record.only();
        assert!(
            seen.values("x-forwarded-ssl").is_empty() && seen.values("true-client-ip").is_empty(),
            "{way:?}"
        );
    }
    // Through a trusted load balancer comes a client that is not trusted, whatever it says of itself.
    for way in [Way::Proxy, Way::ProxyTls, Way::ProxyTlsH2] {
        let record = lab.reach(way, &request).expect("the control");
        let seen = record.only();
        assert!(
            seen.values("x-forwarded-ssl").is_empty() && seen.values("true-client-ip").is_empty(),
            "{way:?}"
        );
    }
    lab.finish("/");
}
