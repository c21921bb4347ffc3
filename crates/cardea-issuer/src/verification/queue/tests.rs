//! Who finds a place in the queue, and who goes first.

use super::*;

fn verify(profile: &str) -> (Work, oneshot::Receiver<bool>) {
    let (answer, receiver) = oneshot::channel();
    let stored = StoredSecret::stand_in(profile).unwrap();
    (Work::Verify { stored, secret: Presented::default(), taken: Arc::default(), answer }, receiver)
}

const SHA512: &str = "pbkdf2-sha512;i=1;l=64";
const BCRYPT: &str = "bcrypt;c=4";
const WAIT: Duration = Duration::from_secs(2);

#[test]
fn the_queue_is_bounded_and_each_class_leaves_places_to_those_before_it() {
    let mut queue = Queue::new(8, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    let mut push = |queue: &mut Queue, class, count: usize| {
        let (works, mut waiting): (Vec<_>, Vec<_>) = (0..count).map(|_| verify(SHA512)).unzip();
        receivers.append(&mut waiting);
        queue.push(works, class, now)
    };
    assert!(push(&mut queue, Class::Suspect, 4));
    assert!(!push(&mut queue, Class::Suspect, 1));
    assert!(push(&mut queue, Class::Doubtful, 2));
    assert!(!push(&mut queue, Class::Suspect, 1), "nothing is behind it");
    assert!(!push(&mut queue, Class::Usual, 7), "more than it may ever have");
    assert!(push(&mut queue, Class::Usual, 4), "suspects and what is doubtful give up their places");
    assert_eq!(lengths(&queue), [0, 4, 1, 0, 1], "all but their share");
    assert!(!push(&mut queue, Class::Usual, 3), "all or nothing");
    assert!(!push(&mut queue, Class::Familiar, 6));
    assert_eq!(queue.len(), 6, "nothing is given up for nothing");
    assert!(push(&mut queue, Class::Familiar, 5));
    assert_eq!(lengths(&queue), [5, 1, 1, 0, 1]);
    assert!(!push(&mut queue, Class::Familiar, 1));
    assert!(!push(&mut queue, Class::Usual, 1));
    assert_eq!((queue.len(), queue.oldest()), (8, Some(now)));
    assert!(push(&mut queue, Class::Failed, 1), "its share, though the familiar have all the rest");
    assert_eq!(lengths(&queue), [4, 1, 1, 1, 1]);
    assert!(!push(&mut queue, Class::Failed, 1));
}

fn lengths(queue: &Queue) -> [usize; LINES] {
    [0, 1, 2, 3, 4].map(|line: usize| queue.lines[line].waiting.len())
}

#[test]
fn whether_a_job_would_be_taken_is_what_becomes_of_one_and_changes_nothing() {
    let mut queue = Queue::new(16, WAIT);
    let mut receivers = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    for number in 0..400_u64 {
        let now = Mono::from_nanos(number * 20_000_000);
        let class =
            [Class::Suspect, Class::Usual, Class::Failed, Class::Doubtful, Class::Familiar, Class::Later]
                [number as usize * 7 % 6];
        let before = lengths(&queue);
        let admits = queue.admits(class, now);
        assert_eq!(lengths(&queue), before);
        let (work, receiver) = verify(SHA512);
        receivers.push(receiver);
        assert_eq!(queue.push(vec![work], class, now), admits, "{number} {class:?} {before:?}");
        *(if admits { &mut taken } else { &mut refused }) += 1;
        if number % 3 == 0 {
            queue.pop();
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
    queue.closed = true;
    assert!(
        !queue.admits(Class::Familiar, Mono::from_nanos(1))
            && !queue.admits(Class::Later, Mono::from_nanos(1))
    );
}

#[test]
fn who_goes_away_gives_its_place_up_and_nothing_is_hashed_for_it() {
    let mut queue = Queue::new(4, WAIT);
    let now = Mono::from_nanos(5);
    let (works, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| verify(SHA512)).unzip();
    assert!(queue.push(works, Class::Familiar, now));
    assert!(!push_one(&mut queue, now));
    drop(receivers);
    assert!(push_one(&mut queue, now));
    assert_eq!(queue.len(), 1);
}

#[test]
fn in_a_line_that_stands_the_oldest_give_their_places_up() {
    let mut queue = Queue::new(2, WAIT);
    let mut receivers = Vec::new();
    for (seconds, taken) in [(0, true), (0, true), (0, false), (9, true), (10, true), (11, true)] {
        let (work, receiver) = verify(SHA512);
        receivers.push(receiver);
        let now = Mono::from_nanos(seconds * 1_000_000_000);
        assert_eq!(queue.push(vec![work], Class::Usual, now), taken, "{seconds}");
        assert!(queue.len() <= 2);
    }
}

#[test]
fn the_familiar_go_first_and_each_line_has_a_turn() {
    let mut queue = Queue::new(64, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    for (class, profile) in [
        (Class::Suspect, "pbkdf2-sha512;i=5;l=64"),
        (Class::Failed, "pbkdf2-sha512;i=4;l=64"),
        (Class::Doubtful, "pbkdf2-sha512;i=3;l=64"),
        (Class::Usual, "pbkdf2-sha512;i=2;l=64"),
        (Class::Familiar, "pbkdf2-sha512;i=1;l=64"),
    ] {
        for _ in 0..3 {
            let (work, receiver) = verify(profile);
            receivers.push(receiver);
            assert!(queue.push(vec![work], class, now));
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
fn in_a_line_that_stands_who_came_last_goes_first() {
    let (began, later) = (Mono::from_nanos(0), Mono::from_nanos(2_000_000_000));
    for (now, expected) in [(began, Some(Prf::HmacSha512)), (later, Some(Prf::HmacSha1))] {
        for any in [true, false] {
            let mut queue = Queue::new(8, WAIT);
            let ((first, _one), (last, _two)) = (verify(SHA512), verify("pbkdf2-sha1;i=1;l=20"));
            queue.push(vec![first], Class::Usual, began);
            queue.push(vec![last], Class::Usual, now);
            let next = if any { queue.pop() } else { expected.and_then(|lanes| queue.pop_for(lanes)) };
            assert_eq!(next.and_then(|work| work.lanes()), expected, "{now:?} {any}");
        }
    }
}

fn push_one(queue: &mut Queue, now: Mono) -> bool {
    let (work, receiver) = verify(SHA512);
    let pushed = queue.push(vec![work], Class::Usual, now);
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
    queue.push(vec![suspect], Class::Suspect, now);
    queue.push(vec![gone, usual], Class::Usual, now);
    drop(left);
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(Some(Prf::HmacSha512)));
    assert!(queue.pop().is_none());
}

#[test]
fn what_nobody_waits_for_takes_no_place_and_is_last() {
    let mut queue = Queue::new(2, WAIT);
    let now = Mono::from_nanos(5);
    let mut receivers = Vec::new();
    let mut push = |queue: &mut Queue, profile, class| {
        let (work, receiver) = verify(profile);
        receivers.push(receiver);
        queue.push(vec![work], class, now)
    };
    for _ in 0..LATER_MAX {
        assert!(push(&mut queue, SHA512, Class::Later));
    }
    assert!(!push(&mut queue, SHA512, Class::Later));
    assert_eq!((queue.len(), queue.oldest()), (0, None));
    assert!(push(&mut queue, BCRYPT, Class::Usual));
    assert!(queue.pop_for(Prf::HmacSha512).is_none(), "it joins no batch");
    assert_eq!(queue.pop().map(|work| work.lanes()), Some(None), "the usual one, bcrypt");
    assert!(queue.pop().is_none() && queue.pop_later().is_some());
}

#[test]
fn jobs_for_the_same_lanes_are_found_behind_others() {
    let mut queue = Queue::new(8, WAIT);
    let now = Mono::from_nanos(5);
    let (other, _one) = verify(BCRYPT);
    let (wanted, _two) = verify(SHA512);
    queue.push(vec![other, wanted], Class::Usual, now);
    assert!(queue.pop_for(Prf::HmacSha1).is_none());
    assert!(queue.pop_for(Prf::HmacSha512).is_some());
    assert_eq!(queue.len(), 1);
}
