//! What a wall clock that was wrong for a while leaves behind.

use std::time::Duration;

use cardea_issuer::{Key, RotateWhen};
use cardea_store::KeyRecord;

use crate::support::{Fixture, GRANT, START, basic_of, config};

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

impl Fixture {
    async fn maintained(&self) {
        self.server.maintain(self.now()).await.unwrap().writes.unwrap();
    }

    /// Runs for that long at a clock that goes evenly.
    async fn maintained_for(&self, duration: Duration, step: Duration) {
        for _ in 0..duration.as_secs() / step.as_secs() {
            self.clock.advance(step);
            self.maintained().await;
        }
    }

    async fn signing_keys(&self) -> Vec<Key> {
        self.server.list_keys(self.now()).await.unwrap()
    }

    fn in_days(&self, days: u32) -> i64 {
        self.now().wall.saturating_add(DAY * days).unix_seconds()
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_does_not_stop_the_rotation() {
    // The control: without the excursion, the key that is created after 29 days signs after 30 days.
    for excursion in [Duration::ZERO, DAY * 40, DAY * 400, DAY * 365 * 20] {
        let fixture = Fixture::new().await;
        fixture.maintained_for(Duration::from_secs(20), Duration::from_secs(5)).await;
        fixture.clock.step_wall_forward(excursion);
        fixture.maintained_for(Duration::from_secs(5), Duration::from_secs(5)).await;
        fixture.clock.step_wall_back(excursion);
        fixture.maintained_for(MINUTE * 2, Duration::from_secs(5)).await;
        let keys = fixture.signing_keys().await;
        assert_eq!(keys.len(), if excursion.is_zero() { 1 } else { 2 }, "{excursion:?}");
        assert!(keys[0].signing && keys.iter().all(|key| key.activates_at <= fixture.in_days(1)), "{keys:?}");
        if let [old, new] = &keys[..] {
            let overlap = i64::try_from(config().key_overlap.as_secs()).unwrap();
            assert_eq!(old.remove_at, Some(new.activates_at + overlap));
            assert!(new.activates_at > fixture.in_days(1) - 120, "published for a day before it signs");
        }
        let mut signers = vec![];
        for _ in 0..70 * 4 {
            fixture.maintained_for(DAY / 4, DAY / 8).await;
            let keys = fixture.signing_keys().await;
            let signer = keys.iter().find(|key| key.signing).unwrap().kid.clone();
            if signers.last() != Some(&signer) {
                signers.push(signer);
            }
        }
        assert!((3..=4).contains(&signers.len()), "{excursion:?}: {signers:?}");
    }
}

#[tokio::test]
async fn a_clock_that_is_ahead_for_a_moment_removes_no_key() {
    let fixture = Fixture::new().await;
    fixture.maintained_for(MINUTE * 2, Duration::from_secs(5)).await;
    let old = fixture.signing_keys().await[0].kid.clone();
    fixture.server.rotate_key(RotateWhen::Now, fixture.now()).await.unwrap();
    fixture.maintained_for(Duration::from_secs(5), Duration::from_secs(5)).await;
    assert!(!fixture.server.clock_has_stepped());
    fixture.clock.step_wall_forward(DAY * 3);
    fixture.maintained_for(Duration::from_secs(20), Duration::from_secs(5)).await;
    assert!(fixture.server.clock_has_stepped());
    fixture.clock.step_wall_back(DAY * 3);
    fixture.maintained_for(MINUTE * 2, Duration::from_secs(5)).await;
    assert!(!fixture.server.clock_has_stepped());
    let keys = fixture.signing_keys().await;
    assert!(keys.iter().any(|key| key.kid == old), "the tokens that it has signed are valid: {keys:?}");
    // The control: it is removed when the overlap is over.
    fixture.maintained_for(config().key_overlap + DAY, DAY / 8).await;
    let keys = fixture.signing_keys().await;
    assert!(keys.iter().all(|key| key.kid != old), "{keys:?}");
    // A time that lasts is believed.
    fixture.clock.step_wall_forward(DAY * 3);
    fixture.maintained_for(MINUTE, Duration::from_secs(5)).await;
    assert!(fixture.server.clock_has_stepped());
    fixture.maintained_for(MINUTE, Duration::from_secs(5)).await;
    assert!(!fixture.server.clock_has_stepped());
}

#[tokio::test]
async fn a_first_key_of_a_clock_that_was_ahead_gets_its_successor_in_time() {
    let fixture = Fixture::new().await;
    fixture.clock.step_wall_back(DAY * 400);
    fixture.maintained_for(MINUTE * 2, Duration::from_secs(5)).await;
    let keys = fixture.signing_keys().await;
    assert!(keys[0].signing && keys[0].activates_at <= fixture.in_days(0), "{keys:?}");
    fixture.maintained_for(DAY * 30, DAY / 8).await;
    assert_eq!(fixture.signing_keys().await.len(), 2);
}

/// A clock that is behind for a moment makes every key appear to be far ahead.
#[tokio::test]
async fn a_clock_that_was_behind_makes_no_key_sign_early() {
    for (behind_for, steps) in [(Duration::from_secs(10), "briefly"), (MINUTE * 30, "for long")] {
        let fixture = Fixture::new().await;
        fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
        fixture.maintained_for(MINUTE * 5, Duration::from_secs(5)).await;
        let before = fixture.signing_keys().await;
        fixture.clock.step_wall_back(DAY * 400);
        fixture.maintained_for(behind_for, Duration::from_secs(5)).await;
        fixture.clock.step_wall_forward(DAY * 400);
        assert!(fixture.signing_keys().await[0].signing, "{steps}, before maintenance");
        fixture.maintained().await;
        let after = fixture.signing_keys().await;
        assert!(after[0].signing, "{steps}");
        assert!(after[1].activates_at >= before[1].activates_at, "{steps}: {before:?} {after:?}");
        if steps == "briefly" {
            assert_eq!(after, before);
        }
    }
}

#[tokio::test]
async fn rotating_brings_a_misdated_key_back_at_once() {
    let fixture = Fixture::new().await;
    fixture.clock.step_wall_forward(DAY * 400);
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    fixture.maintained().await;
    fixture.clock.step_wall_back(DAY * 400);
    let keys = fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    assert_eq!(
        keys.iter().map(|key| key.activates_at).collect::<Vec<_>>(),
        [START.unix_seconds(), fixture.in_days(1)]
    );
    assert!(keys[0].remove_at.unwrap() < fixture.in_days(3));
    // The mark of the publication is no longer in the future: it would let the key sign although nobody published it.
    assert_eq!(fixture.store.published_through().await.unwrap(), Some(fixture.now().wall));
}

/// A mark in the future would say that keys were published while no process ran.
#[tokio::test]
async fn a_publication_that_was_marked_ahead_is_marked_again() {
    let fixture = Fixture::new().await;
    fixture.clock.step_wall_forward(DAY * 10);
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    fixture.maintained().await;
    fixture.clock.step_wall_back(DAY * 10);
    let mut set = fixture.store.keys().await.unwrap();
    let now = fixture.now().wall;
    set.keys[1] = KeyRecord { created_at: now, activates_at: now.saturating_add(DAY), ..set.keys[1].clone() };
    fixture.store.replace_keys(set.version, &set.keys).await.unwrap();
    assert!(fixture.store.published_through().await.unwrap() > Some(now), "the control");
    fixture.maintained().await;
    assert_eq!(fixture.store.published_through().await.unwrap(), Some(now));
}

#[tokio::test]
async fn a_client_that_was_disabled_while_the_clock_was_ahead_can_be_repaired() {
    // The controls: a revocation during the life of the present keys stays, because their tokens could become valid.
    for (ahead, repaired) in [(DAY, 503), (DAY * 30, 503), (DAY * 400, 200), (DAY * 365 * 20, 200)] {
        for is_enabled_ahead in [true, false] {
            let fixture = Fixture::new().await;
            let client = fixture.client().await;
            let id = &client.client.client_id;
            fixture.clock.step_wall_forward(ahead);
            fixture.server.disable_client(id, fixture.now()).await.unwrap();
            if is_enabled_ahead {
                fixture.server.enable_client(id, fixture.now()).await.unwrap();
                fixture.clock.step_wall_back(ahead);
                assert_eq!(fixture.post(&[&basic_of(&client)], GRANT).await.status, 503);
                fixture.server.disable_client(id, fixture.now()).await.unwrap();
            } else {
                fixture.clock.step_wall_back(ahead);
            }
            fixture.clock.advance(MINUTE);
            let enabled = fixture.server.enable_client(id, fixture.now()).await.unwrap();
            assert_eq!(fixture.post(&[&basic_of(&client)], GRANT).await.status, repaired, "{ahead:?}");
            let through = enabled.tokens_revoked_through.unwrap();
            assert_eq!(through == fixture.in_days(0), repaired == 200, "{ahead:?}");
            let again = fixture.server.show_client(id).await.unwrap();
            assert_eq!(again.tokens_revoked_through, Some(through));
        }
    }
}

/// A rotation with the right clock ends the old secrets that one with a wrong clock left valid.
#[tokio::test]
async fn an_overlap_that_was_set_while_the_clock_was_ahead_is_shortened_by_another_rotation() {
    let fixture = Fixture::new().await;
    let old = fixture.client().await;
    let id = &old.client.client_id;
    fixture.clock.step_wall_forward(DAY * 400);
    fixture.server.rotate_secret(id, DAY, None, fixture.now()).await.unwrap();
    fixture.clock.step_wall_back(DAY * 400);
    let newest = fixture.server.rotate_secret(id, DAY, None, fixture.now()).await.unwrap();
    fixture.clock.advance(DAY - MINUTE);
    assert_eq!(fixture.post(&[&basic_of(&old)], GRANT).await.status, 200, "the control");
    fixture.clock.advance(MINUTE * 2);
    assert_eq!(fixture.post(&[&basic_of(&old)], GRANT).await.status, 401);
    assert_eq!(fixture.post(&[&basic_of(&newest)], GRANT).await.status, 200);
}
