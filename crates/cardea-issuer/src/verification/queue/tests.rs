//! Which jobs are added to the queue, and which are served first.

use super::*;

fn verify(profile: &str) -> (Work, oneshot::Receiver<bool>) {
    let (answer, receiver) = oneshot::channel();
    let stored = StoredSecret::dummy(profile).unwrap();
    (Work::Verify { stored, secret: Presented::default(), taken: Arc::default(), answer }, receiver)
}

const SHA512: &str = "pbkdf2-sha512;i=1;l=64";
const BCRYPT: &str = "bcrypt;c=4";
const WAIT: Duration = Duration::from_secs(2);

#[test]
fn the_queue_is_bounded_and_each_level_leaves_room_for_higher_ones() {
    let mut queue = Queue::new(8, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    let mut push = |queue: &mut Queue, priority, count: usize| {
        let (works, mut waiting): (Vec<_>, Vec<_>) = (0..count).map(|_| verify(SHA512)).unzip();
        receivers.append(&mut waiting);
        queue.push(works, priority, now)
    };
    assert!(push(&mut queue, Priority::ManyFailures, 4));
    assert!(!push(&mut queue, Priority::ManyFailures, 1));
    assert!(push(&mut queue, Priority::TargetedClient, 2));
    assert!(!push(&mut queue, Priority::ManyFailures, 1), "nothing is behind it");
    assert!(!push(&mut queue, Priority::Normal, 7), "more than it may ever have");
    assert!(push(&mut queue, Priority::Normal, 4), "jobs of lower levels are evicted");
    assert_eq!(lengths(&queue), [0, 4, 1, 0, 1], "all but their share");
    assert!(!push(&mut queue, Priority::Normal, 3), "all or nothing");
    assert!(!push(&mut queue, Priority::KnownPair, 6));
    assert_eq!(queue.len(), 6, "nothing is evicted in vain");
    assert!(push(&mut queue, Priority::KnownPair, 5));
    assert_eq!(lengths(&queue), [5, 1, 1, 0, 1]);
    assert!(!push(&mut queue, Priority::KnownPair, 1));
    assert!(!push(&mut queue, Priority::Normal, 1));
    assert_eq!((queue.len(), queue.oldest()), (8, Some(now)));
    assert!(push(&mut queue, Priority::FewFailures, 1), "its share, though known pairs have the rest");
    assert_eq!(lengths(&queue), [4, 1, 1, 1, 1]);
    assert!(!push(&mut queue, Priority::FewFailures, 1));
}

fn lengths(queue: &Queue) -> [usize; LEVELS] {
    [0, 1, 2, 3, 4].map(|level: usize| queue.levels[level].waiting.len())
}

#[test]
fn admits_agrees_with_push_and_changes_nothing() {
    let mut queue = Queue::new(16, WAIT);
    let mut receivers = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    for number in 0..400_u64 {
        let now = Mono::from_nanos(number * 20_000_000);
        let priority = [
            Priority::ManyFailures,
            Priority::Normal,
            Priority::FewFailures,
            Priority::TargetedClient,
            Priority::KnownPair,
            Priority::Background,
        ][number as usize * 7 % 6];
        let before = lengths(&queue);
        let admits = queue.admits(priority, now);
        assert_eq!(lengths(&queue), before);
        let (work, receiver) = verify(SHA512);
        receivers.push(receiver);
        assert_eq!(queue.push(vec![work], priority, now), admits, "{number} {priority:?} {before:?}");
        *(if admits { &mut taken } else { &mut refused }) += 1;
        if number % 3 == 0 {
            queue.pop();
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
    queue.closed = true;
    assert!(
        !queue.admits(Priority::KnownPair, Mono::from_nanos(1))
            && !queue.admits(Priority::Background, Mono::from_nanos(1))
    );
}

#[test]
fn abandoned_jobs_leave_the_queue_and_are_not_hashed() {
    let mut queue = Queue::new(4, WAIT);
    let now = Mono::from_nanos(5);
    let (works, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| verify(SHA512)).unzip();
    assert!(queue.push(works, Priority::KnownPair, now));
    assert!(!push_one(&mut queue, now));
    drop(receivers);
    assert!(push_one(&mut queue, now));
    assert_eq!(queue.len(), 1);
}

#[test]
fn in_a_standing_queue_the_oldest_jobs_are_evicted() {
    let mut queue = Queue::new(2, WAIT);
    let mut receivers = Vec::new();
    for (seconds, taken) in [(0, true), (0, true), (0, false), (9, true), (10, true), (11, true)] {
        let (work, receiver) = verify(SHA512);
        receivers.push(receiver);
        let now = Mono::from_nanos(seconds * 1_000_000_000);
        assert_eq!(queue.push(vec![work], Priority::Normal, now), taken, "{seconds}");
        assert!(queue.len() <= 2);
    }
}

#[test]
fn known_pairs_go_first_and_each_level_has_a_turn() {
    let mut queue = Queue::new(64, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    for (priority, profile) in [
        (Priority::ManyFailures, "pbkdf2-sha512;i=5;l=64"),
        (Priority::FewFailures, "pbkdf2-sha512;i=4;l=64"),
        (Priority::TargetedClient, "pbkdf2-sha512;i=3;l=64"),
        (Priority::Normal, "pbkdf2-sha512;i=2;l=64"),
        (Priority::KnownPair, "pbkdf2-sha512;i=1;l=64"),
    ] {
        for _ in 0..3 {
            let (work, receiver) = verify(profile);
            receivers.push(receiver);
            assert!(queue.push(vec![work], priority, now));
        }
    }
    let iterations = |work: Option<Work>| match work {
        Some(Work::Verify { stored, .. }) => stored.lane_job().map(|job| job.iterations.get()),
        _ => None,
    };
    let order: Vec<_> = (0..15).filter_map(|_| iterations(queue.pop_for(Prf::HmacSha512))).collect();
    assert_eq!(order, [1, 1, 3, 1, 4, 2, 3, 5, 2, 2, 3, 4, 4, 5, 5]);
}

#[test]
fn in_a_standing_queue_the_newest_job_goes_first() {
    let (began, later) = (Mono::from_nanos(0), Mono::from_nanos(2_000_000_000));
    for (now, expected) in [(began, Some(Prf::HmacSha512)), (later, Some(Prf::HmacSha1))] {
        for any in [true, false] {
            let mut queue = Queue::new(8, WAIT);
            let ((first, _one), (last, _two)) = (verify(SHA512), verify("pbkdf2-sha1;i=1;l=20"));
            queue.push(vec![first], Priority::Normal, began);
            queue.push(vec![last], Priority::Normal, now);
            let next = if any { queue.pop() } else { expected.and_then(|lanes| queue.pop_for(lanes)) };
            assert_eq!(next.and_then(|work| work.lanes()), expected, "{now:?} {any}");
        }
    }
}

fn push_one(queue: &mut Queue, now: Mono) -> bool {
    let (work, receiver) = verify(SHA512);
    let pushed = queue.push(vec![work], Priority::Normal, now);
    drop(receiver);
    pushed
}

#[test]
fn usual_jobs_go_first_and_abandoned_ones_not_at_all() {
    let mut queue = Queue::new(8, WAIT);
    let now = Mono::from_nanos(5);
    let (suspect, _one) = verify(SHA512);
    let (gone, left) = verify(BCRYPT);
    let (usual, _two) = verify(BCRYPT);
    queue.push(vec![suspect], Priority::ManyFailures, now);
    queue.push(vec![gone, usual], Priority::Normal, now);
    drop(left);
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(Some(Prf::HmacSha512)));
    assert!(queue.pop().is_none());
}

#[test]
fn background_jobs_come_last_and_use_no_queue_slots() {
    let mut queue = Queue::new(2, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    let mut push = |queue: &mut Queue, profile, priority| {
        let (work, receiver) = verify(profile);
        receivers.push(receiver);
        queue.push(vec![work], priority, now)
    };
    for _ in 0..BACKGROUND_MAX {
        assert!(push(&mut queue, SHA512, Priority::Background));
    }
    assert!(!push(&mut queue, SHA512, Priority::Background));
    assert_eq!((queue.len(), queue.oldest()), (0, None));
    assert!(push(&mut queue, BCRYPT, Priority::Normal));
    assert!(queue.pop_for(Prf::HmacSha512).is_none(), "it joins no batch");
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
    assert!(queue.pop().is_none() && queue.pop_background().is_some());
}

#[test]
fn jobs_for_the_same_lanes_are_found_behind_others() {
    let mut queue = Queue::new(8, WAIT);
    let now = Mono::from_nanos(5);
    let (other, _one) = verify(BCRYPT);
    let (wanted, _two) = verify(SHA512);
    queue.push(vec![other, wanted], Priority::Normal, now);
    assert!(queue.pop_for(Prf::HmacSha1).is_none());
    assert!(queue.pop_for(Prf::HmacSha512).is_some());
    assert_eq!(queue.len(), 1);
}
