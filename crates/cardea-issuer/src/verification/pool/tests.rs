//! Who goes first on a hash thread, told by who has an answer and not by a clock.

use cardea_kdf::Password;
use tokio::task::yield_now;

use super::*;

const NOW: Mono = Mono::from_nanos(7);
/// Some seconds of a core: no answer comes before another one by chance.
const LONG: u32 = 10_000_000;

fn pool() -> Pool {
    Pool::new(1, 16, Duration::from_secs(2), Arc::default())
}

fn bytes(text: &str) -> Presented {
    Arc::new(Password::new(text.as_bytes().to_vec().into()))
}

/// A hash that is under way, in that class.
async fn long_hash(pool: &Arc<Pool>, class: Class) -> tokio::task::JoinHandle<Result<Option<String>, Busy>> {
    let (target, own) = (Target::new(LONG).unwrap(), Arc::clone(pool));
    let task = tokio::spawn(async move { own.hash(bytes("anew"), target, [1; 16], class, NOW).await });
    while pool.shared.counters.read().hashes_made == 0 {
        yield_now().await;
    }
    task
}

#[tokio::test]
async fn a_hash_for_later_makes_nobody_wait_though_there_is_one_thread() {
    let pool = Arc::new(pool());
    let later = long_hash(&pool, Class::Later).await;
    // One that shares its lanes, one that has lanes of its own, and one that has none.
    for profile in ["pbkdf2-sha512;i=1000;l=64", "pbkdf2-sha1;i=1000;l=20", "bcrypt;c=4"] {
        let job = (StoredSecret::stand_in(profile).unwrap(), bytes("guess"));
        let answer =
            pool.verify(vec![job], Class::Suspect, &Arc::default(), Duration::from_secs(60), NOW).await;
        assert_eq!(answer, Ok(vec![false]), "{profile}");
        assert!(!later.is_finished(), "{profile} was answered first");
    }
    later.abort();
}

#[tokio::test]
async fn what_is_for_later_is_done_once_nobody_waits() {
    let pool = pool();
    let target = Target::new(10_000).unwrap();
    let made = pool.hash(bytes("anew"), target, [1; 16], Class::Later, NOW).await;
    assert_eq!(made, Ok(target.hash(b"anew", &[1; 16]).ok()));
}

#[tokio::test]
async fn the_end_waits_for_nothing_that_is_for_later() {
    let pool = Arc::new(pool());
    let later = long_hash(&pool, Class::Later).await;
    pool.shared.lock().closed = true;
    assert_eq!(later.await.unwrap(), Err(Busy::Stopped));
}
