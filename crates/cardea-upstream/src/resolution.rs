//! When names are resolved, and what becomes of answers. Who asks the DNS is the caller's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

use crate::names::{ADDRESSES_MAX, Change, Query, Resolved, ResolvedNames};

/// How long an answer is used at least: a TTL of 0 must not make the gateway ask all the time.
const TTL_MIN: Duration = Duration::from_secs(1);
/// And at most: who changes a record with a long TTL by mistake does not wait for a day.
const TTL_MAX: Duration = Duration::from_secs(300);

/// The wait after a failure; it doubles with each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What a look-up has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses.
    Found {
        /// At least one.
        addresses: Vec<Resolved>,
        /// For how long.
        ttl: Duration,
        /// Why some of them are those of an earlier answer.
        partial: Option<String>,
    },
    /// The name has no addresses: NXDOMAIN, or no records of the kind.
    Missing,
    /// Nobody has said whether it has.
    Failed(String),
}

/// What a look-up has come to, in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// All addresses are known.
    Resolved,
    /// Some of them are those of an earlier answer.
    Partial,
    /// The name has none.
    Missing,
    /// No name server has answered usefully.
    Failed,
}

impl AnswerKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Resolved, Self::Partial, Self::Missing, Self::Failed];

    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Partial => "partial",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

/// What is known of a name, for metrics.
#[derive(Clone, Debug)]
pub struct NameStats {
    /// The name.
    pub query: Query,
    /// In the order of [`AnswerKind::ALL`].
    pub answers: [u64; AnswerKind::ALL.len()],
    /// Addresses that are used.
    pub addresses: usize,
    /// When it was last resolved.
    pub resolved_at: Option<Mono>,
}

/// The names of endpoints, and when each is to be looked up.
#[derive(Debug, Default)]
pub struct Resolutions {
    /// Locked after `names`, where both are.
    resolved: Arc<ResolvedNames>,
    names: Mutex<BTreeMap<Query, State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    due: Mono,
    /// It is being looked up.
    running: bool,
    /// Look-ups in a row that were not resolved wholly.
    failures: u32,
    missing_since: Option<Mono>,
    last: Option<AnswerKind>,
    resolved_at: Option<Mono>,
    answers: [u64; AnswerKind::ALL.len()],
}

impl Resolutions {
    /// What names were resolved to.
    #[must_use]
    pub fn resolved(&self) -> &Arc<ResolvedNames> {
        &self.resolved
    }

    /// Keeps these names, and no others. New ones are due at once.
    pub fn follow<'a>(&self, queries: impl IntoIterator<Item = &'a Query>, now: Mono) {
        let mut names = self.lock();
        let mut previous = std::mem::take(&mut *names);
        for query in queries {
            let kept = previous.remove(query).unwrap_or_else(|| State { due: now, ..State::default() });
            names.insert(query.clone(), kept);
        }
        self.resolved.retain(|query| names.contains_key(query));
    }

    /// Makes all names due: the name servers have changed.
    pub fn restart(&self, now: Mono) {
        self.lock().values_mut().for_each(|state| state.due = now);
    }

    /// Those of these names that were never looked up. They count as being looked up from now on.
    pub fn begin_new<'a>(&self, queries: impl IntoIterator<Item = &'a Query>) -> Vec<Query> {
        let mut names = self.lock();
        let mut begun = Vec::new();
        for query in queries {
            let state = names.entry(query.clone()).or_default();
            if state.last.is_none() && !state.running {
                state.running = true;
                begun.push(query.clone());
            }
        }
        begun
    }

    /// Up to `max` names that are due. They count as being looked up from now on.
    pub fn begin_due(&self, now: Mono, max: usize) -> Vec<Query> {
        let mut names = self.lock();
        let due = names.iter_mut().filter(|(_, state)| !state.running && state.due <= now);
        let begin = |(query, state): (&Query, &mut State)| {
            state.running = true;
            query.clone()
        };
        due.take(max).map(begin).collect()
    }

    /// When the next name is due; none if there is none that is not being looked up.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        self.lock().values().filter(|state| !state.running).map(|state| state.due).min()
    }

    /// Notes the answer for a name, and says whether the name has other addresses now.
    ///
    /// Addresses stay while nobody answers. While the answer is that there are none, they stay for `keep_missing`.
    pub fn record(
        &self,
        query: &Query,
        answer: Answer,
        now: Mono,
        keep_missing: Duration,
        random: u64,
    ) -> bool {
        let mut names = self.lock();
        // It is not wanted any more.
        let Some(state) = names.get_mut(query) else { return false };
        state.running = false;
        let (kind, problem, ttl) = match &answer {
            Answer::Found { ttl, partial: None, .. } => (AnswerKind::Resolved, None, Some(*ttl)),
            Answer::Found { ttl, partial: Some(error), .. } => {
                (AnswerKind::Partial, Some(error.clone()), Some(*ttl))
            }
            Answer::Missing => (AnswerKind::Missing, None, None),
            Answer::Failed(error) => (AnswerKind::Failed, Some(error.clone()), None),
        };
        let counted = state.answers.iter_mut().zip(AnswerKind::ALL).find(|(_, other)| *other == kind);
        if let Some((count, _)) = counted {
            *count += 1;
        }
        state.failures = if kind == AnswerKind::Resolved { 0 } else { state.failures.saturating_add(1) };
        state.due = now.saturating_add(wait(state.failures, ttl, random));
        let previous = state.last.replace(kind);
        if matches!(answer, Answer::Found { .. }) {
            state.resolved_at = Some(now);
        }
        let missing_since = match answer {
            Answer::Missing => Some(*state.missing_since.get_or_insert(now)),
            // Nobody has said that it is there again.
            Answer::Failed(_) => None,
            Answer::Found { .. } => state.missing_since.take().and(None),
        };
        drop(names);
        if previous != Some(kind) {
            self.report(query, kind, problem.as_deref(), previous);
        }
        let change = match answer {
            Answer::Found { addresses, .. } => self.resolved.replace(query, addresses),
            _ if missing_since.is_some_and(|since| now.saturating_since(since) >= keep_missing) => {
                self.resolved.replace(query, [])
            }
            Answer::Missing | Answer::Failed(_) => Change { changed: false, unused: 0 },
        };
        if change.changed && change.unused > 0 {
            tracing::warn!(
                name = query.name(),
                "a name has more than {ADDRESSES_MAX} addresses; the others are not used"
            );
        }
        if change.changed && kind == AnswerKind::Missing {
            tracing::error!(
                name = query.name(),
                "a name has had no addresses for too long; its endpoints are removed"
            );
        }
        change.changed
    }

    fn report(&self, query: &Query, kind: AnswerKind, problem: Option<&str>, previous: Option<AnswerKind>) {
        let (name, known) = (query.name(), self.resolved.count(query));
        let error = problem.unwrap_or("the name has no addresses");
        match kind {
            AnswerKind::Resolved if previous.is_some() => tracing::info!(name, "a name is resolved again"),
            AnswerKind::Resolved => {}
            _ if known == 0 => {
                tracing::warn!(name, error, "a name can't be resolved; until it is, it has no endpoints");
            }
            _ => tracing::warn!(
                name,
                error,
                known,
                "a name can't be resolved; its known addresses stay in use"
            ),
        }
    }

    /// What is known of each name.
    #[must_use]
    pub fn stats(&self) -> Vec<NameStats> {
        let names = self.lock();
        let stats = |(query, state): (&Query, &State)| NameStats {
            query: query.clone(),
            answers: state.answers,
            addresses: self.resolved.count(query),
            resolved_at: state.resolved_at,
        };
        names.iter().map(stats).collect()
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Query, State>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait before a name is looked up again. A TTL is extended by up to a fifth, as a cache may say how much of it is
/// left: who asked earlier would get the old answer once more, for a moment. A wait after failures is shortened by up to a half.
/// Both keep gateways from asking in step.
fn wait(failures: u32, ttl: Option<Duration>, random: u64) -> Duration {
    let part = (random >> 40) as f64 / (1_u64 << 24) as f64;
    let ttl = ttl.map(|ttl| ttl.clamp(TTL_MIN, TTL_MAX).mul_f64(1.0 + part / 5.0));
    let Some(steps) = failures.checked_sub(1) else { return ttl.unwrap_or(TTL_MIN) };
    let retry = RETRY_MIN.saturating_mul(1 << steps.min(10)).min(RETRY_MAX).mul_f64(1.0 - part / 2.0);
    ttl.map_or(retry, |ttl| ttl.min(retry))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    fn name() -> Query {
        Query::Host("a.test".to_owned())
    }

    fn found(address: &str, ttl: u64) -> Answer {
        let addresses = vec![Resolved::of_host(address.parse().unwrap())];
        Answer::Found { addresses, ttl: Duration::from_secs(ttl), partial: None }
    }

    fn failed() -> Answer {
        Answer::Failed("timed out".to_owned())
    }

    #[test]
    fn a_name_is_looked_up_once_at_a_time_and_again_after_its_ttl() {
        let names = Resolutions::default();
        names.follow([&name()], at(5));
        assert_eq!(names.next_due(), Some(at(5)));
        assert!(names.begin_due(at(4), 9).is_empty());
        assert_eq!(names.begin_due(at(5), 0), []);
        assert_eq!(names.begin_due(at(5), 9), [name()]);
        assert_eq!((names.begin_due(at(9), 9), names.next_due()), (vec![], None), "it is being looked up");
        assert!(names.record(&name(), found("10.0.0.1", 20), at(10), KEEP, 0));
        assert_eq!(names.next_due(), Some(at(30)));
        assert!(!names.record(&name(), found("10.0.0.1", 20), at(30), KEEP, u64::MAX), "the same again");
        let due = names.next_due().unwrap();
        assert!(due > at(53) && due <= at(54), "{due:?}");
        let zero_and_huge = [(0, at(101)), (u64::from(u32::MAX), at(400))];
        for (ttl, due) in zero_and_huge {
            names.record(&name(), found("10.0.0.1", ttl), at(100), KEEP, 0);
            assert_eq!(names.next_due(), Some(due));
        }
        names.restart(at(200));
        assert_eq!(names.begin_due(at(200), 9), [name()]);
    }

    #[test]
    fn addresses_stay_while_nobody_answers_and_the_wait_grows() {
        let names = Resolutions::default();
        names.follow([&name()], at(0));
        names.record(&name(), found("10.0.0.1", 20), at(0), KEEP, 0);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert!(!names.record(&name(), failed(), at(now), KEEP, 0));
            assert_eq!(names.next_due(), Some(at(now + wait)));
            now += wait;
        }
        assert!(now > 100, "longer than an answer that there is none counts");
        assert_eq!(names.resolved().count(&name()), 1);
        assert!(names.record(&name(), found("10.0.0.2", 20), at(now), KEEP, 0));
        names.record(&name(), failed(), at(now), KEEP, u64::MAX);
        let due = names.next_due().unwrap();
        assert!(due >= at(now) && due <= at(now + 1), "varied, from the start again: {due:?}");
        let partial = Answer::Found {
            addresses: vec![Resolved::of_host("10.0.0.3".parse().unwrap())],
            ttl: Duration::from_secs(300),
            partial: Some("SERVFAIL".to_owned()),
        };
        assert!(names.record(&name(), partial, at(now), KEEP, 0));
        assert_eq!(names.next_due(), Some(at(now + 2)), "what is missing is asked for soon");
        let stats = names.stats();
        assert_eq!(
            (stats[0].answers, stats[0].addresses, stats[0].resolved_at),
            ([2, 1, 0, 9], 1, Some(at(now)))
        );
    }

    #[test]
    fn addresses_of_a_name_that_has_none_any_more_are_removed_after_a_while() {
        let names = Resolutions::default();
        names.follow([&name()], at(0));
        names.record(&name(), found("10.0.0.1", 20), at(0), KEEP, 0);
        assert!(!names.record(&name(), Answer::Missing, at(10), KEEP, 0));
        // A failure in between neither ends nor extends it.
        assert!(!names.record(&name(), failed(), at(60), KEEP, 0));
        assert!(!names.record(&name(), failed(), at(75), KEEP, 0), "but it is no reason to remove them");
        assert!(names.record(&name(), Answer::Missing, at(76), KEEP, 0));
        assert_eq!(names.resolved().count(&name()), 0);
        assert!(!names.record(&name(), Answer::Missing, at(200), KEEP, 0));
        assert!(names.record(&name(), found("10.0.0.1", 20), at(201), KEEP, 0));
        assert!(!names.record(&name(), Answer::Missing, at(250), KEEP, 0), "the time begins anew");
        assert!(names.record(&name(), Answer::Missing, at(251), Duration::ZERO, 0));
    }

    #[test]
    fn names_that_are_gone_are_forgotten_and_new_ones_begin_once() {
        let (names, other) = (Resolutions::default(), Query::Service("_a._tcp.test".to_owned()));
        assert_eq!(names.begin_new([&name(), &other]), [name(), other.clone()]);
        assert_eq!(names.begin_new([&name(), &other]), []);
        assert!(names.record(&name(), found("10.0.0.1", 20), at(0), KEEP, 0));
        names.record(&other, failed(), at(0), KEEP, 0);
        assert_eq!(names.begin_new([&name(), &other]), [], "both were looked up");
        names.follow([&other], at(1));
        assert_eq!((names.resolved().count(&name()), names.stats().len()), (0, 1));
        assert!(!names.record(&name(), found("10.0.0.1", 20), at(2), KEEP, 0), "nobody wants it");
        assert_eq!(names.resolved().count(&name()), 0);
        names.follow([], at(3));
        assert_eq!(names.next_due(), None);
    }
}
