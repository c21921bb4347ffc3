//! Timelines of keys.

use std::time::Duration;

use super::*;
use cardea_store::SigningAlgorithm;

const HOUR: u64 = 3_600;

fn config() -> AuthorizationServerConfig {
    let issuer = url::Url::parse("https://id.example.com").unwrap();
    AuthorizationServerConfig {
        key_lifetime: Duration::from_secs(100 * HOUR),
        key_publish_ahead: Duration::from_secs(10 * HOUR),
        key_overlap: Duration::from_secs(5 * HOUR),
        ..AuthorizationServerConfig::new(issuer, "api")
    }
}

/// The plan in which only the configuration determines how long a key is published before it signs.
fn plan(stored: &[KeyRecord], config: &AuthorizationServerConfig, now: Wall) -> Plan {
    super::plan(stored, config, now.saturating_add(config.key_publish_ahead), now, now)
}

fn at(hours: u64) -> Wall {
    Wall::from_unix_seconds(1_700_000_000).saturating_add(Duration::from_secs(hours * HOUR))
}

fn key(kid: &str, activates: u64, remove: Option<u64>) -> KeyRecord {
    KeyRecord {
        kid: kid.into(),
        algorithm: SigningAlgorithm::Es256,
        wrapped: vec![],
        wrapping_key_id: String::new(),
        created_at: at(activates),
        activates_at: at(activates),
        remove_at: remove.map(at),
    }
}

#[test]
fn the_first_key_signs_at_once() {
    assert_eq!(plan(&[], &config(), at(7)), Plan { keys: vec![], changed: false, create: Some(at(7)) });
}

#[test]
fn a_successor_is_published_ahead_and_the_old_key_stays_for_the_overlap() {
    let config = config();
    let one = [key("1", 0, None)];
    assert_eq!(plan(&one, &config, at(89)).create, None);
    assert_eq!(plan(&one, &config, at(90)).create, Some(at(100)));

    let two = [key("1", 0, None), key("2", 100, None)];
    for hours in 90..105 {
        let plan = plan(&two, &config, at(hours));
        assert_eq!(plan.keys, [key("1", 0, Some(105)), key("2", 100, None)], "hour {hours}");
        assert_eq!(plan.create, None);
        let signing = signing_index(two.iter().map(|key| key.activates_at), at(hours));
        assert_eq!(signing, Some(usize::from(hours >= 100)), "hour {hours}");
    }
    assert_eq!(plan(&two, &config, at(105)).keys, [key("2", 100, None)]);
}

#[test]
fn after_a_long_sleep_the_old_key_signs_on_until_its_successor_is_known() {
    let config = config();
    let one = [key("1", 0, None)];
    assert_eq!(
        plan(&one, &config, at(1_000)),
        Plan { keys: one.to_vec(), changed: false, create: Some(at(1_010)) }
    );
}

#[test]
fn a_changed_algorithm_makes_a_key_but_only_one() {
    let config = AuthorizationServerConfig { algorithm: SigningAlgorithm::EdDsa, ..config() };
    let one = [key("1", 0, None)];
    assert_eq!(plan(&one, &config, at(1)).create, Some(at(11)));
    let two = [key("1", 0, None), KeyRecord { algorithm: SigningAlgorithm::EdDsa, ..key("2", 11, None) }];
    assert_eq!(plan(&two, &config, at(2)).create, None);
    assert_eq!(plan(&two, &config, at(20)).create, None);
}

#[test]
fn a_shorter_overlap_never_brings_a_removal_forward_and_a_longer_one_defers_it() {
    let two = [key("1", 0, Some(105)), key("2", 100, None)];
    let shorter = AuthorizationServerConfig { key_overlap: Duration::from_secs(2 * HOUR), ..config() };
    assert!(!plan(&two, &shorter, at(104)).changed);
    let longer = AuthorizationServerConfig { key_overlap: Duration::from_secs(9 * HOUR), ..config() };
    assert_eq!(plan(&two, &longer, at(104)).keys[0].remove_at, Some(at(109)));
}

#[test]
fn setting_the_clock_back_or_far_ahead_leaves_a_key_that_signs() {
    let two = [key("1", 10, Some(115)), key("2", 110, None)];
    let before = plan(&two, &config(), at(0));
    assert_eq!((before.keys.len(), before.create), (2, None));
    assert_eq!(signing_index(two.iter().map(|key| key.activates_at), at(0)), Some(0));
    assert_eq!(plan(&two, &config(), at(1_000_000)).keys, [key("2", 110, None)]);
}

#[test]
fn the_number_of_keys_is_bounded() {
    let keys: Vec<KeyRecord> =
        (0..KEYS_MAX).map(|index| key(&index.to_string(), index as u64, Some(10_000))).collect();
    assert_eq!(plan(&keys, &config(), at(9_000)).create, None);
}

#[test]
fn an_unpublished_period_delays_the_key() {
    let made = |hours| KeyRecord { created_at: at(hours), ..key("2", 100, None) };
    for (what, created, through, now, activates) in [
        ("published all the time", 90, 99, 100, 100),
        ("gone for a moment", 90, 99, 100, 100),
        ("gone for three hours in between", 90, 92, 95, 103),
        ("gone when it was to sign", 90, 97, 102, 105),
        ("gone as soon as it was made", 90, 80, 140, 150),
        ("signs already", 90, 101, 140, 100),
        ("made to sign at once", 100, 80, 140, 100),
    ] {
        let mut keys = [key("1", 0, None), made(created)];
        let withheld = withhold(&mut keys, at(through), &config(), at(now));
        assert_eq!((keys[1].activates_at, withheld), (at(activates), activates != 100), "{what}");
        assert_eq!(keys[0], key("1", 0, None), "{what}");
    }
}

#[test]
fn a_key_that_signs_is_never_withheld_again() {
    let keys = [key("1", 0, None), KeyRecord { created_at: at(90), ..key("2", 100, None) }];
    for (what, marked, now, due) in [
        ("nothing was ever written", None, 91, true),
        ("a moment ago", Some(91), 91, false),
        ("some time ago", Some(91), 92, true),
        ("before it signed", Some(99), 100, true),
        ("since it signs", Some(100), 100, false),
        ("long after", Some(100), 1_000, false),
        ("the clock was set back", Some(99), 95, true),
        ("marked ahead of its activation", Some(500), 95, true),
    ] {
        assert_eq!(is_mark_due(&keys, marked.map(at), &config(), at(now)), due, "{what}");
    }
    assert!(!is_mark_due(&keys[..1], None, &config(), at(5)), "the first key waited for nobody");
    let mut signs = keys;
    assert!(!withhold(&mut signs, at(100), &config(), at(1_000)));
}

#[test]
fn misdated_keys_are_corrected_in_their_order() {
    let config = config();
    let made = |kid, created, activates| KeyRecord { created_at: at(created), ..key(kid, activates, None) };
    let dates = |keys: &[KeyRecord]| -> Vec<(Wall, Wall)> {
        keys.iter().map(|key| (key.created_at, key.activates_at)).collect()
    };
    for (what, keys, expected) in [
        ("nothing to correct", vec![made("1", 0, 0), made("2", 45, 61)], vec![(0, 0), (45, 61)]),
        ("created ahead", vec![made("1", 0, 0), made("2", 900, 910)], vec![(0, 0), (50, 60)]),
        (
            "withheld by a clock that was ahead",
            vec![made("1", 0, 0), made("2", 45, 900)],
            vec![(0, 0), (45, 60)],
        ),
        ("to sign at once", vec![made("1", 0, 0), made("2", 900, 900)], vec![(0, 0), (50, 50)]),
        ("the first", vec![made("1", 900, 900)], vec![(50, 50)]),
        ("the first, created before", vec![made("1", 45, 900)], vec![(50, 50)]),
        (
            "at once after one that waits",
            vec![made("1", 0, 0), made("2", 45, 55), made("3", 900, 900)],
            vec![(0, 0), (45, 55), (50, 55)],
        ),
    ] {
        let mut keys = keys;
        set_removals(&mut keys, &config);
        let corrected = redate(&mut keys, &config, at(60), at(50));
        let expected: Vec<_> = expected.into_iter().map(|(made, signs)| (at(made), at(signs))).collect();
        assert_eq!(dates(&keys), expected, "{what}");
        assert_eq!(corrected.is_empty(), what == "nothing to correct");
        for pair in keys.windows(2) {
            assert_eq!(
                pair[0].remove_at,
                Some(pair[1].activates_at.saturating_add(config.key_overlap)),
                "{what}"
            );
        }
        assert!(redate(&mut keys, &config, at(60), at(50)).is_empty(), "{what}");
    }
}
