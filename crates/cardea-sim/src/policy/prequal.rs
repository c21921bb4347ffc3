//! Prequal as published (NSDI 2024, section 4): asynchronous probes, a pool of their answers, and the hot-cold rule.
//! Its parameters are those of the paper's testbed.

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::RetryCause;

use super::ejection::Common;
use super::{Ask, Chosen, Ending, Numbered, Policy, Probed, View};

const POOL_MAX: usize = 16;
const AGE_MAX: Duration = Duration::from_secs(1);
/// Probes for each request.
const PROBES: usize = 3;
/// The quantile of requests in flight above which a server is hot: 2^-0.25.
const HOT: f64 = 0.84;
/// Answers whose requests in flight make up the distribution.
const RECENT: usize = 128;
/// How fast the pool may grow with the surplus of probes (δ), which limits how often an answer is used.
const DELTA: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct Answer {
    server: usize,
    at: u64,
    in_flight: usize,
    latency: Duration,
    uses: usize,
}

pub(super) struct Prequal {
    common: Common,
    pool: Vec<Answer>,
    uses_max: usize,
    recent: Vec<usize>,
    recent_next: usize,
    remove_oldest: bool,
    attempts: Numbered<usize>,
}

impl Prequal {
    pub(super) fn new(view: &View) -> Self {
        let servers = view.servers.iter().filter(|server| server.region == view.home).count().max(1);
        let kept = (1.0 - POOL_MAX as f64 / servers as f64).max(0.0);
        let uses = (1.0 + DELTA) / (kept * PROBES as f64 - 1.0);
        // Where all servers fit into the pool, an answer is used until a newer one of the server comes.
        let uses_max = if uses <= 0.0 { usize::MAX } else { uses.max(1.0).ceil() as usize };
        Self {
            common: Common::new(view),
            pool: Vec::new(),
            uses_max,
            recent: Vec::new(),
            recent_next: 0,
            remove_oldest: false,
            attempts: Numbered::new(),
        }
    }

    fn hot_from(&self) -> usize {
        let mut sorted = self.recent.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * HOT) as usize;
        sorted.get(at).copied().unwrap_or(usize::MAX)
    }

    /// The place of the best answer; of the worst with `worst`.
    fn place(&self, among: &[usize], worst: bool) -> Option<usize> {
        let hot = self.hot_from();
        // Cold before hot; by latency among cold, by requests in flight among hot.
        let rank = |place: &usize| {
            let answer = &self.pool[*place];
            if answer.in_flight >= hot {
                (true, answer.in_flight as u128)
            } else {
                (false, answer.latency.as_nanos())
            }
        };
        let mut among = among.iter().copied();
        if worst { among.by_ref().max_by_key(rank) } else { among.by_ref().min_by_key(rank) }
    }

    fn remove_one(&mut self) {
        self.remove_oldest = !self.remove_oldest;
        let all: Vec<usize> = (0..self.pool.len()).collect();
        let oldest = || all.iter().copied().min_by_key(|place| self.pool[*place].at);
        let place = if self.remove_oldest { oldest() } else { self.place(&all, true) };
        if let Some(place) = place
            && self.pool.len() > 1
        {
            self.pool.remove(place);
        }
    }
}

impl Policy for Prequal {
    fn begin(&mut self) {
        self.common.budget.request();
    }

    fn choose(&mut self, ask: Ask<'_>) -> Option<Chosen> {
        let candidates = self.common.nearest(ask.now, ask.tried);
        for _ in 0..PROBES {
            ask.probes.push(*candidates.get(self.common.random.below(candidates.len()))?);
        }
        let now = ask.now.nanos();
        let age = AGE_MAX.as_nanos() as u64;
        self.pool.retain(|answer| now.saturating_sub(answer.at) < age);
        let usable: Vec<usize> =
            (0..self.pool.len()).filter(|place| candidates.contains(&self.pool[*place].server)).collect();
        let server = match self.place(&usable, false).filter(|_| usable.len() >= 2) {
            Some(place) => {
                let answer = &mut self.pool[place];
                // What was sent there since is there.
                answer.in_flight += 1;
                answer.uses += 1;
                let server = answer.server;
                if answer.uses >= self.uses_max {
                    self.pool.remove(place);
                }
                server
            }
            None => candidates[self.common.random.below(candidates.len())],
        };
        self.remove_one();
        Some(Chosen { server, token: self.attempts.add(server) })
    }

    fn ended(&mut self, now: Mono, token: usize, ending: Ending, _latency: Duration) {
        let Some(server) = self.attempts.take(token) else { return };
        self.common.ended(now, server, ending);
    }

    fn may_retry(&mut self, now: Mono, _cause: RetryCause) -> bool {
        self.common.budget.try_retry(now)
    }

    fn probed(&mut self, now: Mono, probed: Probed) {
        let Probed { server, in_flight, latency } = probed;
        if self.recent.len() < RECENT {
            self.recent.push(in_flight);
        } else {
            self.recent[self.recent_next % RECENT] = in_flight;
        }
        self.recent_next += 1;
        self.pool.retain(|answer| answer.server != server);
        if self.pool.len() == POOL_MAX {
            let oldest = (0..POOL_MAX).min_by_key(|place| self.pool[*place].at);
            oldest.map(|place| self.pool.remove(place));
        }
        self.pool.push(Answer { server, at: now.nanos(), in_flight, latency, uses: 0 });
    }
}
