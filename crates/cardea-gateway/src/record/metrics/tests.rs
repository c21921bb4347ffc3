//! Tests of the registry of metrics.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

static DURATION: HistogramDef<2> = HistogramDef::new(
    "http_server_request_duration_seconds",
    "Durations.",
    ["http_route", "http_response_status_class"],
    LATENCY_BOUNDS,
);
static ACTIVE: GaugeDef<0> = GaugeDef::new("http_server_active_requests", "Active.", []);
static CODES: CounterDef<2> =
    CounterDef::new("cardea_http_responses_total", "Responses.", ["http_route", "http_response_status_code"])
        .sharded();
static REFUSALS: CounterDef<2> =
    CounterDef::new("cardea_refusals_total", "Refusals.", ["reason", "status"]).sharded();
static REQUESTS: CounterDef<2> =
    CounterDef::new("cardea_requests_total", "Requests,\nby \\ route.", ["route", "method"]).sharded();
static RELOADS: CounterDef<0> = CounterDef::new("cardea_reloads_total", "Reloads.", []);
static EPOCH: GaugeDef<1> = GaugeDef::new("cardea_epoch", "Epoch.", ["issuer"]);
static SMALL: HistogramDef<0> = HistogramDef::new(
    "cardea_small_seconds",
    "Small.",
    [],
    &[Duration::from_millis(1), Duration::from_millis(2_500), Duration::from_secs(10)],
);

fn render(registry: &Registry) -> String {
    let mut out = String::new();
    registry.render(&mut out);
    out
}

/// Labels in their order.
type Labels = Vec<(String, String)>;

/// A sample: its name, its labels, its value.
type Sample = (String, Labels, f64);

/// A strict reader of the format, which panics at anything that it does not know.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut samples: Vec<Sample> = Vec::new();
    let mut metrics = HashSet::new();
    let mut current = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty());
            assert!(metrics.insert(name.to_owned()), "{name} comes twice");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"));
            current = (name.to_owned(), kind.to_owned());
            continue;
        }
        let sample = parse_sample(line);
        let suffix = sample.0.strip_prefix(&current.0).unwrap();
        let suffixes: &[&str] = if current.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line} under {}", current.0);
        assert!(!samples.iter().any(|other| (&other.0, &other.1) == (&sample.0, &sample.1)), "{line} twice");
        samples.push(sample);
    }
    check_histograms(&samples);
    samples
}

fn parse_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let name = &line[..end];
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'));
    let mut labels = Vec::new();
    let mut rest = &line[end..];
    if let Some(mut inner) = rest.strip_prefix('{') {
        loop {
            let (label, tail) = inner.split_once("=\"").unwrap();
            assert!(label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
            let mut value = String::new();
            let mut letters = tail.char_indices();
            let end = loop {
                match letters.next().unwrap() {
                    (end, '"') => break end,
                    (_, '\\') => value.push(match letters.next().unwrap().1 {
                        '\\' => '\\',
                        '"' => '"',
                        'n' => '\n',
                        other => panic!("\\{other}"),
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            labels.push((label.to_owned(), value));
            inner = &tail[end + 1..];
            if let Some(tail) = inner.strip_prefix('}') {
                rest = tail;
                break;
            }
            inner = inner.strip_prefix(',').unwrap();
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '));
    (name.to_owned(), labels, value.parse().unwrap())
}

/// Buckets grow, the last is `+Inf` and equals the count.
fn check_histograms(samples: &[Sample]) {
    let mut last: HashMap<(String, Labels), (f64, f64)> = HashMap::new();
    for (name, labels, value) in samples {
        if let Some(base) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let (le, bound) = labels.pop().unwrap();
            assert_eq!(le, "le");
            let bound: f64 = bound.parse().unwrap();
            let before = last.insert((base.to_owned(), labels), (bound, *value));
            assert!(before.is_none_or(|before| before.0 < bound && before.1 <= *value));
        }
    }
    for ((base, labels), (bound, value)) in last {
        assert_eq!(bound, f64::INFINITY);
        let count = samples.iter().find(|sample| sample.0 == format!("{base}_count") && sample.1 == labels);
        assert_eq!(count.unwrap().2, value);
        assert!(samples.iter().any(|sample| sample.0 == format!("{base}_sum") && sample.1 == labels));
    }
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let same = |sample: &&Sample| {
        sample.0 == name
            && sample.1.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(labels.iter().copied())
    };
    samples.iter().find(same).map(|sample| sample.2)
}

#[test]
fn the_text_is_as_the_format_wants_it() {
    let registry = Registry::new();
    registry.counter(&REQUESTS, ["a\"\\\n", "GET"]).add(3);
    registry.counter(&RELOADS, []).increment();
    registry.gauge(&EPOCH, ["https://a"]).set(-7);
    let small = registry.histogram(&SMALL, []);
    small.observe(Duration::from_millis(1));
    small.observe(Duration::from_millis(2));
    small.observe(Duration::from_secs(11));
    assert_eq!(
        render(&registry),
        "# HELP cardea_epoch Epoch.\n\
         # TYPE cardea_epoch gauge\n\
         cardea_epoch{issuer=\"https://a\"} -7\n\
         # HELP cardea_reloads_total Reloads.\n\
         # TYPE cardea_reloads_total counter\n\
         cardea_reloads_total 1\n\
         # HELP cardea_requests_total Requests,\\nby \\\\ route.\n\
         # TYPE cardea_requests_total counter\n\
         cardea_requests_total{route=\"a\\\"\\\\\\n\",method=\"GET\"} 3\n\
         # HELP cardea_small_seconds Small.\n\
         # TYPE cardea_small_seconds histogram\n\
         cardea_small_seconds_bucket{le=\"0.001\"} 1\n\
         cardea_small_seconds_bucket{le=\"2.5\"} 2\n\
         cardea_small_seconds_bucket{le=\"10\"} 2\n\
         cardea_small_seconds_bucket{le=\"+Inf\"} 3\n\
         cardea_small_seconds_sum 11.003\n\
         cardea_small_seconds_count 3\n"
    );
    parse(&render(&registry));
}

#[test]
fn an_empty_registry_is_an_empty_text() {
    assert_eq!(render(&Registry::new()), "");
}

#[test]
fn the_same_labels_give_the_same_series() {
    let registry = Registry::new();
    registry.counter(&REQUESTS, ["a", "GET"]).increment();
    registry.counter(&REQUESTS, ["b", "GET"]).increment();
    let again = registry.counter(&REQUESTS, ["a", "GET"]);
    again.increment();
    assert_eq!(again.value(), 2);
    let samples = parse(&render(&registry));
    assert_eq!(samples.len(), 2);
    assert_eq!(value(&samples, "cardea_requests_total", &[("route", "a"), ("method", "GET")]), Some(2.0));
}

#[test]
fn threads_lose_no_counts() {
    const THREADS: usize = 4;
    const EACH: u64 = 10_000;
    let registry = Registry::new();
    let counter = registry.counter(&REQUESTS, ["a", "GET"]);
    let active = registry.up_down(&ACTIVE, []);
    let histogram = registry.histogram(&SMALL, []);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let _active = active.enter();
                    counter.increment();
                    histogram.observe(Duration::from_nanos(1));
                }
                // What one thread counts up another may count down.
                active.increment();
            });
        }
    });
    assert_eq!(active.value(), THREADS as i64);
    (0..THREADS).for_each(|_| active.decrement());
    assert_eq!((counter.value(), active.value()), (THREADS as u64 * EACH, 0));
    assert_eq!(histogram.count(), THREADS as u64 * EACH);
    let samples = parse(&render(&registry));
    assert_eq!(value(&samples, "http_server_active_requests", &[]), Some(0.0));
    assert_eq!(value(&samples, "cardea_small_seconds_sum", &[]), Some(0.000_04));
}

#[test]
fn bounds_are_inclusive() {
    let registry = Registry::new();
    let histogram = registry.histogram(&DURATION, ["/", "2xx"]);
    for bound in LATENCY_BOUNDS {
        histogram.observe(*bound);
        histogram.observe(*bound + Duration::from_nanos(1));
    }
    let samples = parse(&render(&registry));
    for (index, bound) in LATENCY_BOUNDS.iter().enumerate() {
        let bound = bound.as_secs_f64().to_string();
        let labels = [("http_route", "/"), ("http_response_status_class", "2xx"), ("le", bound.as_str())];
        let count = value(&samples, "http_server_request_duration_seconds_bucket", &labels);
        assert_eq!(count, Some(2.0 * index as f64 + 1.0), "{bound}");
    }
}

#[test]
fn series_are_bounded() {
    let registry = Registry::new();
    for index in 0..SERIES_MAX + 10 {
        registry.gauge(&EPOCH, [&index.to_string()]).set(1);
    }
    let overflow = registry.gauge(&EPOCH, ["one more"]);
    overflow.set(5);
    let text = render(&registry);
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), SERIES_MAX + 1);
    assert!(text.contains("cardea_epoch{issuer=\"_other\"} 5\n"));
}

#[test]
fn unused_accounts_are_removed_on_request() {
    let registry = Registry::new();
    let kept = registry.counter(&REQUESTS, ["kept", "GET"]);
    registry.counter(&REQUESTS, ["gone", "GET"]).increment();
    registry.counter(&RELOADS, []).increment();
    assert_eq!(parse(&render(&registry)).len(), 3);
    registry.prune();
    kept.increment();
    let samples = parse(&render(&registry));
    assert_eq!(samples.len(), 1);
    assert_eq!(value(&samples, "cardea_requests_total", &[("route", "kept"), ("method", "GET")]), Some(1.0));
}

#[test]
fn collectors_are_read_when_asked() {
    let registry = Registry::new();
    let gauge = registry.gauge(&EPOCH, ["x"]);
    registry.collect_gauge(&ACTIVE, move |samples| samples.push(&["surplus"], gauge.value() as f64 / 2.0));
    registry.collect_counter(&CODES, |samples| {
        for code in ["200", "404"] {
            samples.push(&["a", code], 1e18);
        }
    });
    registry.gauge(&EPOCH, ["x"]).set(5);
    let samples = parse(&render(&registry));
    assert_eq!(value(&samples, "http_server_active_requests", &[]), Some(2.5));
    let labels = [("http_route", "a"), ("http_response_status_code", "404")];
    assert_eq!(value(&samples, "cardea_http_responses_total", &labels), Some(1e18));

    // A later one takes the place; one without values shows nothing.
    registry.collect_gauge(&ACTIVE, |_| {});
    assert!(!render(&registry).contains("http_server_active_requests"));
    let mut special = String::new();
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, 1e21] {
        text::sample(&mut special, "x", "", number);
    }
    assert_eq!(special, "x NaN\nx +Inf\nx -Inf\nx 0.1\nx 1000000000000000000000\n");
}

#[test]
fn a_second_metric_of_the_same_name_harms_nothing() {
    static OTHER: GaugeDef<1> = GaugeDef::new("cardea_epoch", "Other.", ["other"]);
    let registry = Registry::new();
    registry.gauge(&EPOCH, ["a"]).set(1);
    let hidden = registry.gauge(&OTHER, ["a"]);
    hidden.set(2);
    registry.collect_gauge(&EPOCH, |samples| samples.push(&["b"], 3.0));
    assert_eq!(hidden.value(), 2);
    let samples = parse(&render(&registry));
    assert_eq!(samples.len(), 1);
    assert_eq!(value(&samples, "cardea_epoch", &[("issuer", "a")]), Some(1.0));
}

#[test]
fn the_registry_counts_its_own_series() {
    let registry = Arc::new(Registry::new());
    registry.collect_series();
    let _held = [registry.counter(&REQUESTS, ["a", "GET"]), registry.counter(&REQUESTS, ["b", "GET"])];
    let _one = registry.counter(&RELOADS, []);
    let samples = parse(&render(&registry));
    assert_eq!(value(&samples, "cardea_metric_series", &[("metric", "cardea_requests_total")]), Some(2.0));
    assert_eq!(value(&samples, "cardea_metric_series", &[("metric", "cardea_reloads_total")]), Some(1.0));
    // It does not keep itself alive.
    assert_eq!(Arc::strong_count(&registry), 1);
}

#[test]
fn instruments_have_a_series_for_what_happened() {
    let registry = Registry::new();
    let route = StatusClasses::new(&DURATION, "/api");
    let codes = StatusCodes::new(&CODES, "/api");
    for status in [200, 204, 503, 100, 599, 99, 600, 0, u16::MAX] {
        route.observe(&registry, status, Duration::from_millis(1));
        codes.increment(&registry, status);
    }
    let samples = parse(&render(&registry));
    let count = |class| {
        let labels = [("http_route", "/api"), ("http_response_status_class", class)];
        value(&samples, "http_server_request_duration_seconds_count", &labels)
    };
    let counts = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"].map(count);
    assert_eq!(counts, [Some(4.0), Some(1.0), Some(2.0), None, None, Some(2.0)]);
    let code = |code| {
        let labels = [("http_route", "/api"), ("http_response_status_code", code)];
        value(&samples, "cardea_http_responses_total", &labels)
    };
    assert_eq!(
        [code("200"), code("599"), code("none"), code("404")],
        [Some(1.0), Some(1.0), Some(4.0), None]
    );
}

#[test]
fn a_service_makes_no_series_without_end() {
    let registry = Registry::new();
    let codes = StatusCodes::new(&CODES, "a");
    // The same twice, so that codes are found again wherever they are.
    for status in (100..600).chain(100..600) {
        codes.increment(&registry, status);
    }
    let samples = parse(&render(&registry));
    assert_eq!(samples.len(), StatusCodes::CODES_MAX + 1);
    assert_eq!(samples.iter().map(|sample| sample.2).sum::<f64>(), 1_000.0);
    let labels = [("http_route", "a"), ("http_response_status_code", "_other")];
    let told_apart = 2.0 * StatusCodes::CODES_MAX as f64;
    assert_eq!(value(&samples, "cardea_http_responses_total", &labels), Some(1_000.0 - told_apart));
    let labels = [("http_route", "a"), ("http_response_status_code", "100")];
    assert_eq!(value(&samples, "cardea_http_responses_total", &labels), Some(2.0), "the first are kept");
}

#[test]
fn reasons_are_counted_by_their_text_and_status() {
    let registry = Registry::new();
    let reasons = Reasons::new(&REFUSALS);
    // The same text at another address.
    let other: &'static str = String::from("token_expired").leak();
    for (reason, status) in [("token_expired", 401), (other, 401), ("token_expired", 403), ("overloaded", 0)]
    {
        reasons.increment(&registry, reason, status);
    }
    let samples = parse(&render(&registry));
    let count =
        |reason, status| value(&samples, "cardea_refusals_total", &[("reason", reason), ("status", status)]);
    let counts = [("token_expired", "401"), ("token_expired", "403"), ("overloaded", "none")]
        .map(|(reason, status)| count(reason, status));
    assert_eq!(counts, [Some(2.0), Some(1.0), Some(1.0)]);
    assert_eq!((reasons.value("token_expired"), reasons.value("other")), (3, 0));
    // More than there is room for are counted all the same.
    for status in 1..3_000 {
        reasons.increment(&registry, "many", status);
    }
    let samples = parse(&render(&registry));
    assert_eq!(samples.iter().map(|sample| sample.2).sum::<f64>(), 3_003.0);
    assert!(samples.len() <= Reasons::ROOM + 1);
}

#[test]
fn a_snapshot_is_prepared_once_for_all_collectors() {
    let registry = Registry::new();
    let prepared = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (one, two) = (Arc::clone(&prepared), Arc::clone(&prepared));
    registry.before_render(move || _ = one.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let other = Arc::clone(&prepared);
    let read = move || two.load(std::sync::atomic::Ordering::Relaxed) as f64;
    registry.collect_gauge(&EPOCH, move |samples| samples.push(&["x"], read()));
    registry.collect_gauge(&ACTIVE, move |samples| {
        samples.push(&[], other.load(std::sync::atomic::Ordering::Relaxed) as f64);
    });
    for round in [1.0, 2.0] {
        let values: Vec<_> = parse(&render(&registry)).iter().map(|sample| sample.2).collect();
        assert_eq!(values, [round, round]);
    }
}

#[test]
fn definitions_tell_their_unit() {
    let units = [&SMALL.definition(), &ACTIVE.definition(), &REQUESTS.definition()].map(Definition::unit);
    assert_eq!(units, [Some("seconds"), None, None]);
    static BYTES: GaugeDef<0> = GaugeDef::new("cardea_kept_bytes", "Bytes.", []);
    static WHEN: GaugeDef<0> = GaugeDef::new("cardea_kept_timestamp_seconds", "When.", []);
    static CPU: CounterDef<0> = CounterDef::new("cardea_cpu_seconds_total", "CPU.", []);
    let units = [BYTES.definition(), WHEN.definition(), CPU.definition()].map(|definition| definition.unit());
    assert_eq!(units, [Some("bytes"), Some("timestamp_seconds"), Some("seconds")]);
}

proptest! {
    #[test]
    fn label_values_come_back_whatever_they_are(route in any::<String>(), method in "[\"\\\\\n,={} a]{0,8}") {
        let registry = Registry::new();
        registry.counter(&REQUESTS, [&route, &method]).increment();
        let samples = parse(&render(&registry));
        prop_assert_eq!(&samples[0].1[0].1, &route);
        prop_assert_eq!(&samples[0].1[1].1, &method);
    }
}
