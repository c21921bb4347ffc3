//! The store, used as rustls does.

use std::time::Duration;

use cardea_clock::{ManualClock, Wall};
use rustls::server::StoresServerSessions;

use super::{SESSION_BYTES, Sessions};
use crate::ServerTlsConfig;

fn config(sessions_max: usize, lifetime_s: u64) -> ServerTlsConfig {
    ServerTlsConfig { sessions_max, session_lifetime: Duration::from_secs(lifetime_s), ..Default::default() }
}

fn clock() -> ManualClock {
    ManualClock::new(Wall::from_unix_seconds(1_800_000_000))
}

#[test]
fn a_session_is_found_often_and_taken_once() {
    let sessions = Sessions::new(&config(10, 60), false, &clock().clock()).unwrap();
    assert!(sessions.can_cache());
    assert!(sessions.put(vec![1; 32], vec![7; 200]));
    assert_eq!(sessions.get(&[1; 32]), Some(vec![7; 200]));
    assert_eq!(sessions.get(&[1; 32]), Some(vec![7; 200]));
    assert_eq!(sessions.take(&[1; 32]), Some(vec![7; 200]));
    assert_eq!((sessions.take(&[1; 32]), sessions.get(&[1; 32])), (None, None));
    let stats = sessions.stats();
    assert_eq!((stats.hits, stats.misses, stats.sessions, stats.bytes), (3, 2, 0, 0));
}

#[test]
fn ids_that_are_not_ours_find_nothing() {
    let sessions = Sessions::new(&config(10, 60), false, &clock().clock()).unwrap();
    assert!(sessions.put(vec![1; 32], vec![7]));
    for id in [[].as_slice(), &[1], &[1; 31], &[1; 33], &[0; 32], &[1; 100_000]] {
        assert_eq!((sessions.get(id), sessions.take(id)), (None, None));
    }
    assert!(!sessions.put(vec![1; 31], vec![7]));
    assert_eq!(sessions.take(&[1; 32]), Some(vec![7]));
}

#[test]
fn a_session_ends_with_its_lifetime_and_is_wiped_without_being_asked_for() {
    let clock = clock();
    let sessions = Sessions::new(&config(10, 60), false, &clock.clock()).unwrap();
    assert!(sessions.put(vec![1; 32], vec![7; 100]) && sessions.put(vec![2; 32], vec![7; 100]));
    clock.advance(Duration::from_secs(59));
    sessions.reclaim();
    assert!(sessions.get(&[1; 32]).is_some());
    clock.advance(Duration::from_secs(1));
    assert_eq!((sessions.get(&[1; 32]), sessions.stats().sessions), (None, 1));
    sessions.reclaim();
    assert_eq!((sessions.stats().sessions, sessions.stats().bytes), (0, 0));
}

#[test]
fn number_and_bytes_are_bounded() {
    let sessions = Sessions::new(&config(10, 60), false, &clock().clock()).unwrap();
    for number in 0..50 {
        assert!(sessions.put(vec![number; 32], vec![7; 100]));
    }
    assert_eq!((sessions.stats().sessions, sessions.stats().evicted), (10, 40));
    for number in 0..50 {
        sessions.put(vec![number; 32], vec![7; 3 * SESSION_BYTES]);
        assert!(sessions.stats().bytes <= 10 * SESSION_BYTES);
    }
    assert!(!sessions.put(vec![99; 32], vec![7; 11 * SESSION_BYTES]));
}

#[test]
fn none_or_no_lifetime_is_no_resumption() {
    for config in [config(0, 60), config(10, 0)] {
        let sessions = Sessions::new(&config, false, &clock().clock()).unwrap();
        assert!(!sessions.can_cache() && !sessions.put(vec![1; 32], vec![7]));
        assert_eq!(sessions.take(&[1; 32]), None);
    }
}

#[test]
fn debug_output_shows_no_secrets() {
    let sessions = Sessions::new(&config(10, 60), false, &clock().clock()).unwrap();
    sessions.put(vec![77; 32], vec![78; 100]);
    let shown = format!("{sessions:?}");
    assert!(shown.contains("sessions: 1") && !shown.contains("77") && !shown.contains("78"));
}
