//! A host that asks for a client certificate: nobody reaches what stands behind it without one, by whatever name, listener
//! or protocol.

use super::lab::{Hello, Lab, Lengths, Recorder, Request, Way};
use crate::support::client::HOST;

const CERTIFICATES: &str = r#"
[[listener.tls.certificate]]
chain = "partners.pem"
key = "partners.key"
hosts = ["*.partners.test"]
client_certificate = "require"
client_authorities = ["staff"]
trust_domain = "partners"
"#;

const ROUTES: &str = r#"
[[route]]
name = "partners"
hosts = ["*.partners.test"]
path_prefix = "/"
auth = "public"
service = "origin"
request_headers = { set = { "x-route" = "partners" } }

[[route]]
name = "any"
path_prefix = "/any"
auth = "public"
service = "origin"

[[route]]
name = "open"
hosts = ["gateway.test"]
path_prefix = "/"
auth = "public"
service = "origin"
"#;

/// Hosts that the wildcard covers, in many spellings, and what is no host at all.
const COVERED: [&str; 22] = [
    "a.partners.test",
    "A.PARTNERS.TEST",
    "a.partners.test.",
    "a.partners.test:",
    "a.partners.test:443",
    "a.partners.test:80",
    "a.partners.test:8443",
    "a.partners.test:00443",
    "a.partners.test.:443",
    "A.Partners.Test.:81",
    "-.partners.test",
    "_.partners.test",
    "a.partners.test..",
    "a..partners.test",
    "a%2epartners.test",
    "%61.partners.test",
    "a.partners.test%2e",
    "user@a.partners.test",
    "a.partners.test@gateway.test",
    "a.partners.test,gateway.test",
    "gateway.test,a.partners.test",
    "a.partners.test/",
];

/// Hosts below it that it does not cover: a wildcard is one label, in routes as in certificates.
const DEEPER: [&str; 5] = [
    "x.y.partners.test",
    "X.Y.Partners.Test.",
    "x.y.partners.test:81",
    "x.y.z.partners.test",
    "partners.test",
];

const HELLOS: [Hello; 5] = [
    Hello::nameless(),
    Hello::to(HOST),
    Hello::to("a.partners.test"),
    Hello::to("x.y.partners.test"),
    Hello::to("other.test"),
];

#[test]
fn a_hosts_certificate_requirement_cannot_be_bypassed() {
    let lab = Lab::with(Recorder::start(Lengths::Decimal), CERTIFICATES, ROUTES);
    for way in Way::ALL {
        let record = lab.reach(way, &Request::get(HOST, "/")).expect("the control: another host is open");
        record.assert_canonical();
        for hello in if way.is_tls() { &HELLOS[..] } else { &HELLOS[..1] } {
            // Where the handshake asks for the certificate there is no connection without.
            let send = |request: &Request| {
                lab.connect(way, *hello).map(|mut wire| wire.send(request)).unwrap_or_default()
            };
            for host in COVERED {
                for target in ["/", "/any"] {
                    let status = send(&Request::get(host, target)).status;
                    assert_ne!(status, 200, "{way:?} {hello:?} {host}{target}");
                }
            }
            for host in DEEPER {
                assert_ne!(send(&Request::get(host, "/")).status, 200, "{way:?} {hello:?} {host}");
                // A route for any host is for these, too.
                if let Some(record) = lab.arrived(&send(&Request::get(host, "/any"))) {
                    assert!(record.only().values("x-route").is_empty(), "{way:?} {hello:?} {host}");
                }
            }
        }
    }
    for way in Way::ALL.into_iter().filter(|way| way.is_tls()) {
        // The controls: with a certificate, and with a name that the certificate of the host is for.
        let hello = Hello::to("a.partners.test").with_certificate();
        for host in ["a.partners.test", "A.PARTNERS.TEST", "a.partners.test.", "a.partners.test:443"] {
            let mut wire = lab.connect(way, hello).unwrap();
            let record = lab.arrived(&wire.send(&Request::get(host, "/")));
            record.unwrap_or_else(|| panic!("{way:?} {host}: the control")).assert_canonical();
        }
        // A certificate that was shown to another host counts for nothing, and the other way round.
        for (sni, host) in [(HOST, "a.partners.test"), ("a.partners.test", HOST)] {
            let mut wire = lab.connect(way, Hello::to(sni).with_certificate()).unwrap();
            assert_eq!(wire.send(&Request::get(host, "/")).status, 421, "{way:?} {sni} {host}");
        }
    }
    lab.finish("/");
}

#[test]
fn a_target_in_absolute_form_is_no_way_around() {
    let lab = Lab::with(Recorder::start(Lengths::Decimal), CERTIFICATES, ROUTES);
    for way in Way::H1 {
        let scheme = if way.is_tls() { "https" } else { "http" };
        for host in COVERED {
            for (authority, target) in [
                (host.to_owned(), format!("{scheme}://{host}/")),
                (HOST.to_owned(), format!("{scheme}://{host}/any")),
                (host.to_owned(), format!("{scheme}://{HOST}/any")),
                (host.to_owned(), format!("{}://{host}/any", scheme.to_ascii_uppercase())),
                (host.to_owned(), format!("{scheme}://user@{host}/any")),
            ] {
                let mut wire = lab.connect(way, Hello::to(HOST)).unwrap();
                let answer = wire.send(&Request::get(&authority, &target));
                assert_ne!(answer.status, 200, "{way:?} Host: {authority}, {target}");
            }
        }
        let record =
            lab.reach(way, &Request::get(HOST, &format!("{scheme}://{HOST}/any"))).expect("the control");
        assert_eq!(record.only().target(), "/any");
    }
    // Two authorities in HTTP/2.
    for host in COVERED {
        let answer = lab.send(Way::TlsH2, &Request::get(HOST, "/any").with("host", host));
        assert_ne!(answer.status, 200, "{host}");
        let answer = lab.send(Way::TlsH2, &Request::get(host, "/any").with("host", HOST));
        assert_ne!(answer.status, 200, "{host}");
    }
    lab.finish("/");
}

#[test]
fn a_connection_from_before_a_reload_is_held_against_what_is_required_now() {
    let off =
        CERTIFICATES.replace("client_certificate = \"require\"\nclient_authorities = [\"staff\"]\n", "");
    let lab = Lab::with(Recorder::start(Lengths::Decimal), &off, ROUTES);
    let ways = Way::ALL.into_iter();
    let mut wires: Vec<_> =
        ways.map(|way| (way, lab.connect(way, Hello::to("a.partners.test")).unwrap())).collect();
    for (way, wire) in &mut wires {
        let record = lab.arrived(&wire.send(&Request::get("a.partners.test", "/")));
        record.unwrap_or_else(|| panic!("{way:?}: the control")).assert_canonical();
    }
    lab.reload(CERTIFICATES, ROUTES);
    for (way, wire) in &mut wires {
        assert_ne!(wire.send(&Request::get("a.partners.test", "/")).status, 200, "{way:?}");
    }
    drop(wires);
    lab.finish("/");
}

const BOUND: &str = r#"
[[route]]
name = "inside"
path = "/inside"
listeners = ["http", "unix"]
auth = "public"
service = "origin"

[[route]]
name = "open"
hosts = ["gateway.test"]
path = "/"
auth = "public"
service = "origin"
"#;

#[test]
fn a_route_is_found_on_its_listeners_alone() {
    let lab = Lab::with(Recorder::start(Lengths::Decimal), CERTIFICATES, BOUND);
    for way in Way::ALL {
        let is_bound = matches!(way, Way::Plain | Way::Unix);
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            let answer = lab.send(way, &Request::get(HOST, "/inside").method(method));
            assert_eq!(answer.status, if is_bound { 200 } else { 404 }, "{way:?} {method}");
            assert!(is_bound || !answer.head.to_ascii_lowercase().contains("\"allow\""), "{answer:?}");
            lab.arrived(&answer);
        }
        // A header that names a listener is nobody's listener, nor is an authority.
        for name in ["X-Listener", "Listener", "Forwarded"] {
            let request = Request::get(HOST, "/inside").with(name, "http");
            let answer = lab.send(way, &request);
            assert_eq!(lab.arrived(&answer).is_some(), is_bound, "{way:?} {name}");
        }
        // What a host requires binds where a route is bound, too.
        assert_ne!(lab.send(way, &Request::get("a.partners.test", "/inside")).status, 200, "{way:?}");
    }
    lab.reload(CERTIFICATES, &BOUND.replace("\"http\", \"unix\"", "\"https\""));
    for way in Way::ALL {
        let answer = lab.send(way, &Request::get(HOST, "/inside"));
        assert_eq!(lab.arrived(&answer).is_some(), matches!(way, Way::Tls | Way::TlsH2), "{way:?}");
    }
    lab.finish("/");
}
