//! The cost of a record of twelve fields and of a header template: `cargo bench -p cardea-env`.
#![expect(clippy::expect_used, reason = "both are constant and compile")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use bench_measure::Suite;
use cardea_env::{
    Attribute, CommonFields, CommonForm, CommonLog, Escape, Family, HasOverrides, Inline, JsonRecord, Key,
    Kind, Table, Template, Value,
};

struct Request {
    method: Vec<u8>,
    path: Vec<u8>,
    host: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    address: IpAddr,
    time: i64,
    duration: Duration,
    status: i64,
}

impl HasOverrides for Request {}

static TABLE: Table<Request> = Table::new(
    &[
        Attribute { name: "request.method", kind: Kind::Text, doc: "-", read: |r| Value::Bytes(&r.method) },
        Attribute { name: "request.path", kind: Kind::Text, doc: "-", read: |r| Value::Bytes(&r.path) },
        Attribute { name: "request.host", kind: Kind::Text, doc: "-", read: |r| Value::Bytes(&r.host) },
        Attribute {
            name: "request.id",
            kind: Kind::Text,
            doc: "-",
            read: |_| Value::Inline(Inline::from_array(*b"01jd5x9q3kz8r7v6t4s2p1n0m5")),
        },
        Attribute { name: "request.time", kind: Kind::Time, doc: "-", read: |r| Value::Time(r.time) },
        Attribute {
            name: "source.address",
            kind: Kind::Address,
            doc: "-",
            read: |r| Value::Address(r.address),
        },
        Attribute { name: "response.code", kind: Kind::Int, doc: "-", read: |r| Value::Int(r.status) },
        Attribute {
            name: "response.duration",
            kind: Kind::Duration,
            doc: "-",
            read: |r| Value::duration(Some(r.duration)),
        },
    ],
    &[Family {
        prefix: "request.headers.",
        argument: "name",
        kind: Kind::Text,
        doc: "-",
        prepare: Key::field_name,
        read: |r, key| {
            Value::bytes(
                r.headers.iter().find(|(name, _)| name == key.text.as_bytes()).map(|(_, value)| value),
            )
        },
        map: None,
    }],
);

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    let request = request();
    let fields = [
        ("time", "request.time"),
        ("id", "request.id"),
        ("address", "source.address"),
        ("method", "request.method"),
        ("host", "request.host"),
        ("path", "request.path"),
        ("status", "response.code"),
        ("duration_ms", "response.duration"),
        ("bytes", "response.code"),
        ("agent", "request.headers.user-agent"),
        ("referer", "request.headers.referer"),
        ("tenant", "request.headers.x-tenant"),
    ];
    let record = JsonRecord::compile(fields, &TABLE).expect("the fields are in the table");
    let template = Template::compile("for={source.address};host={request.host};proto=https", &TABLE)
        .expect("the attributes are in the table");
    let mut out = Vec::with_capacity(4 * 1024);
    suite.case("json-record-12-fields", |case| {
        case.counted("cardea", || {
            out.clear();
            record.write(black_box(&request), &mut out);
            out.len()
        });
    });
    let fields = CommonFields {
        user: "request.headers.x-tenant",
        query: "request.headers.x-query",
        protocol: "request.headers.x-protocol",
        status: "response.code",
        size: "response.code",
        ..CommonFields::default()
    };
    let combined =
        CommonLog::compile(CommonForm::Combined, &fields, &TABLE).expect("the fields are in the table");
    suite.case("combined-log", |case| {
        case.counted("cardea", || {
            out.clear();
            combined.write(black_box(&request), &mut out);
            out.len()
        });
    });
    suite.case("header-template-2-values", |case| {
        case.counted("cardea", || {
            out.clear();
            template.render(black_box(&request), Escape::HeaderValue, &mut out);
            out.len()
        });
    });
}

fn request() -> Request {
    Request {
        method: b"GET".to_vec(),
        path: b"/api/v1/tenants/4711/orders".to_vec(),
        host: b"api.example.com".to_vec(),
        headers: vec![
            (b"accept".to_vec(), b"*/*".to_vec()),
            (b"user-agent".to_vec(), b"Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101".to_vec()),
            (b"referer".to_vec(), b"https://www.example.com/orders".to_vec()),
        ],
        address: [203, 0, 113, 77].into(),
        time: 1_763_690_951_123_456_789,
        duration: Duration::from_micros(1_842),
        status: 200,
    }
}
