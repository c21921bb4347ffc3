//! Properties that hold for any text, value and request, and the absence of allocations in reads.

use std::net::IpAddr;
use std::time::Duration;

use cardea_env::{
    Attribute, Escape, Family, HasOverrides, Inline, JsonRecord, Key, Kind, Table, Template, Value,
};
use proptest::prelude::*;

#[derive(Clone, Debug, Default)]
struct Request {
    text: Vec<u8>,
    other: Option<Vec<u8>>,
    number: i64,
    duration: Duration,
    time: i64,
    address: Option<IpAddr>,
}

impl HasOverrides for Request {}

static TABLE: Table<Request> = Table::new(
    &[
        Attribute { name: "text", kind: Kind::Text, doc: "Text.", read: |r| Value::Bytes(&r.text) },
        Attribute { name: "number", kind: Kind::Int, doc: "Number.", read: |r| Value::Int(r.number) },
        Attribute { name: "positive", kind: Kind::Bool, doc: "Sign.", read: |r| Value::Bool(r.number > 0) },
        Attribute {
            name: "duration",
            kind: Kind::Duration,
            doc: "Duration.",
            read: |r| Value::duration(Some(r.duration)),
        },
        Attribute { name: "time", kind: Kind::Time, doc: "Time.", read: |r| Value::Time(r.time) },
        Attribute {
            name: "address",
            kind: Kind::Address,
            doc: "Address.",
            read: |r| r.address.map_or(Value::Absent, Value::Address),
        },
        Attribute {
            name: "id",
            kind: Kind::Text,
            doc: "Id.",
            read: |_| Value::Inline(Inline::from_array(*b"01jd5x9q3kz8r7v6t4s2p1n0m5")),
        },
    ],
    &[Family {
        prefix: "headers.",
        argument: "name",
        kind: Kind::Text,
        doc: "Header.",
        prepare: Key::field_name,
        read: |r, key| if &*key.text == "other" { Value::bytes(r.other.as_ref()) } else { Value::Absent },
        map: None,
    }],
);

const FIELDS: [(&str, &str); 12] = [
    ("time", "time"),
    ("id", "id"),
    ("address", "address"),
    ("path", "text"),
    ("other", "headers.other"),
    ("none", "headers.none"),
    ("status", "number"),
    ("secure", "positive"),
    ("duration", "duration"),
    ("duration_ms", "duration"),
    ("bytes", "number"),
    ("agent", "text"),
];

/// Arbitrary bytes, often significant ones.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80),
        proptest::collection::vec(
            proptest::sample::select(b"\r\n\0\t \"\\{}a\x7F\x80\xC3\xA9".to_vec()),
            0..40
        ),
        any::<String>().prop_map(String::into_bytes),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let address = prop_oneof![Just(None), any::<IpAddr>().prop_map(Some)];
    (
        bytes(),
        proptest::option::of(bytes()),
        any::<i64>(),
        (0..i64::MAX as u64).prop_map(Duration::from_nanos),
        any::<i64>(),
        address,
    )
        .prop_map(|(text, other, number, duration, time, address)| Request {
            text,
            other,
            number,
            duration,
            time,
            address,
        })
}

/// The text that a JSON parser must return for these bytes: UTF-8 if valid, else Latin-1.
fn as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

proptest! {
    #[test]
    fn a_json_record_gives_the_values_back(request in request()) {
        let record = JsonRecord::compile(FIELDS, &TABLE).unwrap();
        let mut out = Vec::new();
        record.write(&request, &mut out);
        prop_assert_eq!(out.pop(), Some(b'\n'));
        prop_assert!(!out.contains(&b'\n') && !out.contains(&b'\r'));

        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(parsed["path"].as_str().map(str::to_owned), Some(as_text(&request.text)));
        prop_assert_eq!(
            parsed.get("other").and_then(|other| other.as_str()).map(str::to_owned),
            request.other.as_deref().map(as_text)
        );
        prop_assert!(parsed.get("none").is_none());
        prop_assert_eq!(parsed["status"].as_i64(), Some(request.number));
        prop_assert_eq!(parsed["secure"].as_bool(), Some(request.number > 0));
        let address = parsed["address"].as_str().map(|address| address.parse().unwrap());
        prop_assert_eq!(address, request.address);
        let seconds = request.duration.as_secs_f64();
        prop_assert!((parsed["duration"].as_f64().unwrap() - seconds).abs() <= 1e-6 + seconds * 1e-12);
        let millis = seconds * 1e3;
        prop_assert!((parsed["duration_ms"].as_f64().unwrap() - millis).abs() <= 1e-3 + millis * 1e-12);
        prop_assert_eq!(parsed["time"].as_str().unwrap().len(), 24);
    }

    #[test]
    fn a_header_value_never_ends_early(
        request in request(),
        before in "[^{}]{0,10}",
        after in "[^{}]{0,10}",
    ) {
        let text = format!("{before}{{text}}{{headers.other|\r\nx: y}}{{address}}{after}");
        let template = Template::compile(&text, &TABLE).unwrap();
        let mut out = b" kept\n".to_vec();
        template.render(&request, Escape::HeaderValue, &mut out);
        let value = out.strip_prefix(b" kept\n").unwrap();
        prop_assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
        prop_assert_eq!(value, value.trim_ascii());
    }

    #[test]
    fn an_expression_in_a_header_value_never_ends_it_early(request in request()) {
        let text = "{= text + '\\r\\nx: y' + (has(headers.other) ? headers.other : '\\u0000')}{= [text, '\\n']}";
        let template = Template::compile(text, &TABLE).unwrap();
        let mut out = Vec::new();
        template.render(&request, Escape::HeaderValue, &mut out);
        prop_assert!(!out.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
        prop_assert_eq!(out.as_slice(), out.trim_ascii());
    }

    #[test]
    fn keys_are_the_same_only_for_the_same_values(one in request(), other in request()) {
        let template = Template::compile_raw("{text}{headers.other}{headers.none}{number}", &TABLE).unwrap();
        let key = |request: &Request| {
            let mut out = Vec::new();
            template.render_key(request, &mut out);
            out
        };
        let same = one.text == other.text && one.other == other.other && one.number == other.number;
        prop_assert_eq!(key(&one) == key(&other), same);
        // Moving bytes from one value to the next gives another key, and so does an absent instead of an empty value.
        let mut moved = one.clone();
        if let (Some(byte), Some(other)) = (moved.text.pop(), moved.other.as_mut()) {
            other.insert(0, byte);
            prop_assert_ne!(key(&one), key(&moved));
        }
        let (mut absent, mut empty) = (one.clone(), one);
        absent.other = None;
        empty.other = Some(Vec::new());
        prop_assert_ne!(key(&absent), key(&empty));
    }

    #[test]
    fn an_unaltered_header_value_is_the_value(request in request()) {
        let template = Template::compile("{text}", &TABLE).unwrap();
        let mut out = Vec::new();
        let rendered = template.render(&request, Escape::HeaderValue, &mut out);
        prop_assert_eq!(rendered.altered, out != request.text);
    }

    #[test]
    fn a_log_field_stays_between_its_quotes(request in request()) {
        let template = Template::compile("\"{text}\"", &TABLE).unwrap();
        let mut out = Vec::new();
        template.render(&request, Escape::LogField, &mut out);
        prop_assert!(out.iter().all(|byte| matches!(byte, 0x20..=0x7E)));
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'"').count(), 2);
    }

    #[test]
    fn percent_encoding_decodes_to_the_value(request in request()) {
        let template = Template::compile("{text}", &TABLE).unwrap();
        let mut out = Vec::new();
        template.render(&request, Escape::Percent, &mut out);
        let mut decoded = Vec::new();
        let mut rest = out.as_slice();
        while let Some((byte, tail)) = rest.split_first() {
            if *byte == b'%' {
                let digits = std::str::from_utf8(&tail[..2]).unwrap();
                decoded.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &tail[2..];
            } else {
                prop_assert!(byte.is_ascii_alphanumeric() || b"-._~".contains(byte));
                decoded.push(*byte);
                rest = tail;
            }
        }
        prop_assert_eq!(decoded, request.text);
    }

    #[test]
    fn compiling_arbitrary_text_points_into_it(
        text in prop_oneof![any::<String>(), "[{}|.a-z é]{0,30}", "(\\{(text|numbr|headers\\.x)\\|?\\}|\\{\\{|x){0,8}"],
    ) {
        match Template::compile(&text, &TABLE) {
            Ok(template) => {
                template.render(&Request::default(), Escape::None, &mut Vec::new());
            }
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.position) && error.position <= text.len());
                prop_assert!(!error.message.contains(['\n', '\r']));
            }
        }
    }

    #[test]
    fn escaped_braces_are_the_text_itself(text in any::<String>()) {
        let template = Template::compile(&text.replace('{', "{{").replace('}', "}}"), &TABLE).unwrap();
        prop_assert_eq!(template.constant(), Some(text.as_bytes()));
    }
}

#[test]
fn rendering_allocates_nothing() {
    let request = Request {
        text: b"/api/\"v1\"/users/\xE9?x".to_vec(),
        other: Some(b"tenant\r\n".to_vec()),
        number: -200,
        duration: Duration::from_millis(12),
        time: 1_763_690_951_123_456_789,
        address: Some("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap()),
    };
    let record = JsonRecord::compile(FIELDS, &TABLE).unwrap();
    let text = "{text} {number} {positive} {duration} {time} {address} {id} {headers.other} {headers.none|-}";
    let template = Template::compile(text, &TABLE).unwrap();
    let mut out = Vec::with_capacity(8 * 1024);

    let control = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8])));
    assert_eq!(control.count_total, 1);
    let measured = allocation_counter::measure(|| {
        record.write(&request, &mut out);
        for escape in [Escape::None, Escape::HeaderValue, Escape::Json, Escape::LogField, Escape::Percent] {
            template.render(&request, escape, &mut out);
        }
    });
    assert_eq!(measured.count_total, 0);
    assert!(out.len() > 1_000);
}
