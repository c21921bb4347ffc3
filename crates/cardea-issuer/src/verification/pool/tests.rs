//! The order of jobs on a hash thread, judged by which jobs have an answer and not by a clock.

use cardea_kdf::Password;
use tokio::task::yield_now;

use super::*;

const NOW: Mono = Mono::from_nanos(7);
/// Some seconds of a core: no answer comes before another one by chance.
const LONG: u32 = 10_000_000;

fn pool() -> HashPool {
    HashPool::new(1, 16, Duration::from_secs(2), Arc::default())
}

fn bytes(text: &str) -> Presented {
    Arc::new(Password::new(text.as_bytes().to_vec().into()))
}

/// A hash of that priority that has started.
async fn long_hash(
    pool: &Arc<HashPool>,
    priority: Priority,
) -> tokio::task::JoinHandle<Result<Option<String>, HashError>> {
    let (target, own) = (Target::new(LONG).unwrap(), Arc::clone(pool));
    let task = tokio::spawn(async move { own.hash(bytes("anew"), target, [1; 16], priority, NOW).await });
    while pool.shared.counters.read().hashes_made == 0 {
        yield_now().await;
    }
    task
}

#[tokio::test]
async fn a_background_hash_delays_no_other_job_on_a_single_thread() {
    let pool = Arc::new(pool());
    let background = long_hash(&pool, Priority::Background).await;
    // One that shares its lanes, one that has its own lanes, and one that has none.
    for profile in ["pbkdf2-sha512;i=1000;l=64", "pbkdf2-sha1;i=1000;l=20", "bcrypt;c=4"] {
        let job = (StoredSecret::dummy(profile).unwrap(), bytes("guess"));
        let answer = pool
            .verify(vec![job], Priority::ManyFailures, &Arc::default(), Duration::from_secs(60), NOW)
            .await;
        assert_eq!(answer, Ok(vec![false]), "{profile}");
        assert!(!background.is_finished(), "{profile} was answered first");
    }
    background.abort();
}

#[tokio::test]
async fn a_background_job_runs_once_no_other_job_waits() {
    let pool = pool();
    let target = Target::new(10_000).unwrap();
    let made = pool.hash(bytes("anew"), target, [1; 16], Priority::Background, NOW).await;
    assert_eq!(made, Ok(target.hash(b"anew", &[1; 16]).ok()));
}

#[tokio::test]
async fn closing_the_pool_does_not_wait_for_background_jobs() {
    let pool = Arc::new(pool());
    let background = long_hash(&pool, Priority::Background).await;
    pool.shared.lock().closed = true;
    assert_eq!(background.await.unwrap(), Err(HashError::Stopped));
}
