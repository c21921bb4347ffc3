//! What counts as a difference between two configurations.

use super::{Fixture, LEAST};
use crate::config::Happened;

/// What differs between these two, and in which keys.
fn differences(before: &str, after: &str) -> Vec<(Happened, String, Vec<String>)> {
    let load = |more: &str| Fixture::new(&format!("{LEAST}{more}")).config();
    let (before, after) = (load(before), load(after));
    let found = before.fingerprint.differences(&after.fingerprint).into_iter();
    found.map(|one| (one.happened, format!("{} {}", one.kind, one.name), one.keys)).collect()
}

const SERVICE: &str = "[[service]]\nname = \"s\"\nendpoint = [{ address = \"a.test:1\" }]\n";

#[test]
fn defaults_order_and_other_spellings_are_no_differences() {
    for (before, after) in [
        ("", "[limits]\nconnections_max = 20000\n"),
        ("", "# A remark.\n[timeouts]\nrequest = \"5m\"\n"),
        ("[timeouts]\nrequest = \"1m\"\n", "[timeouts]\nrequest = \"60s\"\n"),
        (SERVICE, &format!("{SERVICE}pool = {{ idle_max = 1024 }}\n")),
        (SERVICE, &format!("{SERVICE}[limits]\n")),
    ] {
        assert_eq!(differences(before, after), [], "{before:?} and {after:?}");
        assert_eq!(differences(after, before), [], "{after:?} and {before:?}");
    }
}

#[test]
fn what_has_a_name_is_added_changed_and_removed_under_it() {
    let changed = SERVICE.replace("a.test:1", "a.test:2");
    let one = |happened, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        vec![(happened, "service s".to_owned(), keys)]
    };
    assert_eq!(differences("", SERVICE), one(Happened::Added, &[]));
    assert_eq!(differences(SERVICE, ""), one(Happened::Removed, &[]));
    assert_eq!(differences(SERVICE, &changed), one(Happened::Changed, &["endpoint"]));
    let pooled = format!("{SERVICE}connect_timeout = \"1s\"\npool = {{ idle_max = 7 }}\n");
    assert_eq!(differences(SERVICE, &pooled), one(Happened::Changed, &["connect_timeout", "pool.idle_max"]));
    let setting = differences("", "[timeouts]\nrequest = \"7m\"\n");
    assert_eq!(setting, [(Happened::Changed, "setting timeouts.request".to_owned(), vec![])]);
}
