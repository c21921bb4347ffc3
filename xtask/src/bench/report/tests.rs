//! Tests of reports.

use super::*;

static COST: Metric = Metric { name: "cpu_us_per_unit", unit: "µs", better: Better::Lower };
static RATE: Metric = Metric { name: "requests_per_second", unit: "1/s", better: Better::Higher };

fn report() -> Report {
    let mut report = Report::new("proxy");
    for value in [10.0, 30.0, 20.0] {
        report.add("small", Subject::Cardea, &COST, value);
        report.add("small", Subject::Again, &COST, value + 1.0);
        report.add("small", Subject::Nginx, &COST, value + 2.0);
        report.add("small", Subject::Haproxy, &COST, value * 2.0);
        report.add("small", Subject::Relay, &COST, value / 2.0);
        report.add("small", Subject::Cardea, &RATE, value);
        report.add("small", Subject::Nginx, &RATE, value * 2.0);
    }
    report
}

#[test]
fn the_median_is_in_the_middle() {
    for (values, expected) in [
        (vec![], None),
        (vec![3.0], Some(3.0)),
        (vec![3.0, 1.0], Some(2.0)),
        (vec![9.0, 1.0, 2.0], Some(2.0)),
        (vec![4.0, 1.0, 2.0, 3.0], Some(2.5)),
    ] {
        assert_eq!(median(&values), expected, "{values:?}");
    }
}

#[test]
fn a_ratio_above_one_means_that_cardea_is_better_whatever_the_metric() {
    let report = report();
    let entries = report.entries();
    let find = |subject: &str, metric: &str| {
        entries.iter().find(|entry| entry.subject == subject && entry.metric == metric).unwrap()
    };
    let cost = find("cardea", COST.name);
    assert_eq!((cost.median, cost.min, cost.max, cost.rounds), (Some(20.0), Some(10.0), Some(30.0), 3));
    assert_eq!((cost.best_peer.as_deref(), cost.ratio_to_best_peer), (Some("nginx"), Some(1.1)));
    let rate = find("cardea", RATE.name);
    assert_eq!((rate.best_peer.as_deref(), rate.ratio_to_best_peer), (Some("nginx"), Some(0.5)));
    // The limit and Cardea's other selves are no peers, and the ratio is Cardea's.
    for subject in ["nginx", "haproxy", "relay", "cardea-again"] {
        assert_eq!(find(subject, COST.name).ratio_to_best_peer, None, "{subject}");
    }
}

#[test]
fn json_has_the_documented_keys() {
    let json = serde_json::to_value(&report().entries()[0]).unwrap();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    for key in [
        "bench",
        "case",
        "subject",
        "metric",
        "unit",
        "median",
        "min",
        "max",
        "rounds",
        "best_peer",
        "ratio_to_best_peer",
    ] {
        assert!(keys.contains(&key), "{key}");
    }
    assert_eq!(keys.len(), 11);
}

#[test]
fn the_table_has_a_row_for_each_case_with_ratios_and_noise() {
    let mut report = report();
    report.add("large", Subject::Cardea, &COST, 1234.4);
    let subjects = [Subject::Cardea, Subject::Nginx, Subject::Haproxy, Subject::Relay];
    let table = report.table(&COST, &subjects);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2][1..3], ["small", "20.0 (10.0–30.0)"]);
    assert_eq!(rows[2][6..], ["nginx", "1.10", "0.50", "+5.0 %", ""]);
    assert_eq!(rows[3][1..4], ["large", "1234 (1234–1234)", "–"]);
    assert_eq!(rows[3][6..], ["–", "–", "–", "–", ""]);
    assert_eq!(report.largest_noise(&COST), Some(0.050_000_000_000_000_044));
}

#[test]
fn what_is_missing_is_said_once_in_the_table_and_below_it() {
    let mut report = report();
    for _ in 0..2 {
        report.add_missing("large", Subject::Nginx, &COST, "it is not installed");
    }
    assert_eq!(Report::new("proxy").missing(), "");
    assert_eq!(report.missing(), "\n- not measured: large, nginx: it is not installed\n");
    let table = report.table(&COST, &[Subject::Cardea, Subject::Nginx]);
    assert!(
        table.lines().any(|line| line.starts_with("| large") && line.contains("not measured")),
        "{table}"
    );
    let entry = report.entries().pop().unwrap();
    assert_eq!((entry.median, entry.rounds), (None, 0));
}

#[test]
fn a_report_is_complete_when_cardea_was_measured_in_each_case() {
    let mut report = Report::new("proxy");
    assert!(!report.is_complete());
    report.add("small", Subject::Cardea, &COST, 1.0);
    assert!(report.is_flawless());
    report.add_missing("small", Subject::Nginx, &COST, "it is not installed");
    assert!(report.is_complete() && !report.is_flawless());
    report.add_missing("large", Subject::Cardea, &COST, "it ended");
    assert!(!report.is_complete());
}

#[test]
fn details_leave_out_who_has_no_figures() {
    let details = report().details(&[&RATE], &[Subject::Cardea, Subject::Nginx, Subject::Relay]);
    assert_eq!(details.lines().count(), 4, "{details}");
    assert!(details.contains("requests_per_second (1/s)"), "{details}");
}

#[test]
fn metrics_without_a_better_direction_are_not_compared() {
    static FATE: Metric = Metric { name: "status_503", unit: "%", better: Better::Neither };
    let mut report = report();
    report.add("small", Subject::Cardea, &FATE, 10.0);
    report.add("small", Subject::Nginx, &FATE, 20.0);
    let entries = report.entries();
    let ours = entries.iter().find(|entry| entry.subject == "cardea" && entry.metric == FATE.name).unwrap();
    assert_eq!((ours.median, ours.best_peer.as_deref(), ours.ratio_to_best_peer), (Some(10.0), None, None));
}
