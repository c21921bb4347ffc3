//! The cost of a request's environment, compared with a dictionary per request and with a shared one that is copied on
//! change; and the cost of a policy: `cargo bench -p cardea-env --bench environment`.
//!
//! Each case does for one request what its name says. The dictionaries map each name to a function, as the table does;
//! they differ in who builds them, and when. Their values are read as those of the environment are.
#![expect(clippy::expect_used, reason = "what is compiled is constant")]

use std::collections::HashMap;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use bench_measure::{Case, Suite};
use cardea_env::{
    Attribute, AttributeOverrides, Condition, Family, HasOverrides, Key, Kind, Lookup as _, Map, MapOf,
    Names, Owned, Table, Value, json_object,
};
use serde_json::json;

struct Request {
    texts: [Vec<u8>; 24],
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    port: i64,
    claims: serde_json::Map<String, serde_json::Value>,
    overrides: AttributeOverrides,
}

impl HasOverrides for Request {
    fn overrides(&self) -> &AttributeOverrides {
        &self.overrides
    }
}

struct Headers;

impl MapOf for Headers {
    type Subject = Request;

    fn get<'a>(request: &'a Request, key: &[u8]) -> Value<'a> {
        Value::bytes(request.headers.iter().find(|(name, _)| name == key).map(|(_, value)| value))
    }

    fn each<'a>(
        request: &'a Request,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        request.headers.iter().try_for_each(|(name, value)| visit(Value::Bytes(name), Value::Bytes(value)))
    }
}

macro_rules! text {
    ($name:literal, $place:literal) => {
        Attribute {
            name: $name,
            kind: Kind::Text,
            doc: "-",
            read: |r: &Request| Value::Bytes(&r.texts[$place]),
        }
    };
}

static TABLE: Table<Request> = Table::new(
    &[
        text!("request.id", 0),
        text!("request.method", 1),
        text!("request.scheme", 2),
        text!("request.host", 3),
        text!("request.path", 4),
        text!("request.query", 5),
        text!("request.protocol", 6),
        text!("source.address", 7),
        text!("connection.peer", 8),
        text!("connection.listener", 9),
        text!("connection.tls.version", 10),
        text!("connection.tls.cipher_suite", 11),
        text!("connection.tls.sni", 12),
        text!("token.iss", 13),
        text!("token.sub", 14),
        text!("token.client_id", 15),
        text!("route.name", 16),
        text!("service.name", 17),
        text!("upstream.endpoint", 18),
        text!("upstream.region", 19),
        text!("response.reason", 20),
        text!("gateway.name", 21),
        text!("gateway.region", 22),
        text!("gateway.version", 23),
        Attribute { name: "destination.port", kind: Kind::Int, doc: "-", read: |r| Value::Int(r.port) },
    ],
    &[
        Family {
            prefix: "request.headers.",
            argument: "name",
            kind: Kind::Text,
            doc: "-",
            prepare: Key::field_name,
            read: |r, key| Headers::get(r, key.text.as_bytes()),
            map: Some(|r| Value::Map(Map::of::<Headers>(r))),
        },
        Family {
            prefix: "token.claims.",
            argument: "name",
            kind: Kind::Any,
            doc: "-",
            prepare: Key::verbatim,
            read: |r, key| r.claims.get(&*key.text).map_or(Value::Absent, cardea_env::json),
            map: Some(|r| json_object(&r.claims)),
        },
    ],
);

type Read = for<'a> fn(&'a Request) -> Value<'a>;
type Dictionary = HashMap<&'static str, Read>;

/// The names for cases that read three.
const THREE: [&str; 3] = ["request.path", "source.address", "destination.port"];

fn main() {
    bench_measure::run(benches);
}

/// All entries of the table, in a map of its own.
fn dictionary() -> Dictionary {
    let families = TABLE.families().filter_map(|family| Some((family.name(), family.map?)));
    TABLE.attributes().map(|attribute| (attribute.name, attribute.read)).chain(families).collect()
}

fn benches(suite: &mut Suite) {
    suite.case("environment-untouched", |case| each(case, |_, _| 0, |_, _| 0, |_, _| 0));
    suite.case("environment-read-3", |case| {
        each(
            case,
            |names, request| {
                let dictionary = names.dictionary(request);
                THREE.iter().filter(|name| dictionary.contains(name)).count()
            },
            |dictionary, request| read_three(dictionary, request),
            |dictionary, request| read_three(dictionary, request),
        );
        let names = Names::new(&TABLE);
        let references = THREE.map(|name| names.resolve(name).expect("it is in the table"));
        let request = request();
        case.counted("cardea-compiled", || {
            let request = black_box(&request);
            references.iter().filter(|reference| !reference.read(request).is_absent()).count()
        });
    });
    suite.case("environment-read-headers", |case| {
        each(
            case,
            |names, request| headers(names.dictionary(request).get("request.headers")),
            |dictionary, request| headers(dictionary["request.headers"](request)),
            |dictionary, request| headers(dictionary["request.headers"](request)),
        );
    });
    suite.case("environment-remove-1", |case| {
        let path = TABLE.resolve("request.path").expect("it is in the table");
        each(
            case,
            move |_, request| {
                request.overrides.remove(&path).expect("it is a name");
                usize::from(path.read(request).is_absent())
            },
            |dictionary, _| usize::from(dictionary.remove("request.path").is_some()),
            |dictionary, _| usize::from(Arc::make_mut(dictionary).remove("request.path").is_some()),
        );
    });
    suite.case("environment-clear", |case| {
        each(
            case,
            |names, request| {
                request.overrides.clear();
                usize::from(names.dictionary(request).contains("request.path"))
            },
            |dictionary, _| {
                dictionary.clear();
                dictionary.len()
            },
            |dictionary, _| {
                Arc::make_mut(dictionary).clear();
                dictionary.len()
            },
        );
    });
    suite.case("environment-snapshot", |case| {
        each(
            case,
            |names, request| names.dictionary(request).snapshot().len(),
            |dictionary, request| snapshot(dictionary, request),
            |dictionary, request| snapshot(dictionary, request),
        );
    });
    policies(suite);
}

/// A case with its three subjects, and the operation of each for one request.
fn each(
    case: &mut Case<'_>,
    mut ours: impl FnMut(&Names<Request>, &mut Request) -> usize,
    mut built: impl FnMut(&mut Dictionary, &Request) -> usize,
    mut shared: impl FnMut(&mut Arc<Dictionary>, &Request) -> usize,
) {
    let names = Names::new(&TABLE);
    let mut request = request();
    case.counted("cardea", || {
        request.overrides = AttributeOverrides::new();
        ours(black_box(&names), black_box(&mut request))
    });
    case.counted("dictionary-per-request", || {
        let mut dictionary = dictionary();
        built(black_box(&mut dictionary), black_box(&request))
    });
    let original = Arc::new(dictionary());
    case.counted("copy-on-write", || {
        let mut dictionary = Arc::clone(&original);
        shared(black_box(&mut dictionary), black_box(&request))
    });
}

fn read_three(dictionary: &Dictionary, request: &Request) -> usize {
    THREE.iter().filter(|name| dictionary.get(**name).is_some_and(|read| !read(request).is_absent())).count()
}

fn headers(value: Value<'_>) -> usize {
    let Value::Map(map) = value else { return 0 };
    let mut bytes = 0;
    let _ = map.each(&mut |_, value| {
        if let Value::Bytes(value) = value {
            bytes += value.len();
        }
        ControlFlow::Continue(())
    });
    bytes
}

fn snapshot(dictionary: &Dictionary, request: &Request) -> usize {
    let values =
        dictionary.iter().filter_map(|(name, read)| Some(((*name).to_owned(), Owned::of(read(request))?)));
    values.collect::<HashMap<String, Owned>>().len()
}

/// The first has a counterpart in `bench/micro` with the same name.
fn policies(suite: &mut Suite) {
    let cases = [
        (
            "policy-3-comparisons-1-claim",
            "request.method == 'GET' && request.host == 'api.example.com' && destination.port == 443 \
             && token.claims.level >= 3",
        ),
        ("policy-role", "'admin' in token.claims.realm_access.roles"),
        (
            "policy-network-and-prefix",
            "ip('10.1.2.3') in cidr('10.0.0.0/8') && request.path.startsWith('/api/')",
        ),
        ("policy-pattern", "request.path.matches('^/api/v[0-9]+/')"),
    ];
    let request = request();
    for (name, text) in cases {
        suite.case(name, |case| {
            let condition = Condition::compile(text, &TABLE).expect("it compiles");
            assert_eq!(condition.test(&request), Ok(true));
            case.counted("cardea", || condition.test(black_box(&request)));
        });
    }
}

fn request() -> Request {
    let claims = json!({
        "iss": "https://id.example", "sub": "client-4711", "aud": "api", "exp": 4_102_444_800_i64, "iat": 1_800_000_000,
        "jti": "0f2a", "client_id": "client-4711", "scope": "read write", "tenant": "acme", "level": 3,
        "email_verified": true, "azp": "portal", "realm_access": {"roles": ["user", "ops", "admin"]},
    });
    let text = |place: usize| match place {
        1 => b"GET".to_vec(),
        3 => b"api.example.com".to_vec(),
        4 => b"/api/v1/tenants/4711/orders".to_vec(),
        place => format!("value-{place}").into_bytes(),
    };
    let header =
        |place: usize| (format!("x-header-{place}").into_bytes(), format!("value-{place}").into_bytes());
    Request {
        texts: std::array::from_fn(text),
        headers: (0..12).map(header).collect(),
        port: 443,
        claims: claims.as_object().cloned().expect("an object"),
        overrides: AttributeOverrides::new(),
    }
}
