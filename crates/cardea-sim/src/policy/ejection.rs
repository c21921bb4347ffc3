//! What the policies that aren't Cardea's have in common: passive ejection by Cardea's own figures, its retry budget, and
//! the nearest region first. So that what is compared is the choice alone.

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::{BudgetConfig, FailureKind, HealthConfig, RetryBudget};

use super::{Ending, View};
use crate::random::Random;

/// What is known of the servers' health, and how often requests may be tried again.
pub(super) struct Common {
    pub(super) random: Random,
    pub(super) budget: RetryBudget,
    health: Vec<Health>,
    /// Servers by region, the nearest first.
    regions: Vec<Vec<usize>>,
    config: HealthConfig,
}

#[derive(Clone, Debug, Default)]
struct Health {
    consecutive: u32,
    ejected_until: u64,
    level: u32,
}

impl Common {
    pub(super) fn new(view: &View) -> Self {
        let mut order: Vec<usize> = (0..view.regions.len()).collect();
        order.sort_by_key(|region| view.regions[*region].round_trip);
        let members = |region: &usize| {
            (0..view.servers.len()).filter(|server| view.servers[*server].region == *region).collect()
        };
        Self {
            random: Random::new(view.seed),
            budget: RetryBudget::new(BudgetConfig::default()),
            health: vec![Health::default(); view.servers.len()],
            regions: order.iter().map(members).collect(),
            config: HealthConfig::default(),
        }
    }

    /// Notes what became of an attempt.
    pub(super) fn ended(&mut self, now: Mono, server: usize, ending: Ending) {
        let health = &mut self.health[server];
        let Some(_) = ending.retry_cause() else {
            health.consecutive = 0;
            if now.nanos() > health.ejected_until {
                health.level = 0;
            }
            return;
        };
        health.consecutive += 1;
        let unreachable = matches!(ending, Ending::Failure(kind) if FailureKind::is_unreachable(kind));
        let limit = self.config.consecutive_failures.map_or(u32::MAX, u32::from);
        if (unreachable || health.consecutive >= limit) && now.nanos() >= health.ejected_until {
            let lasts = self.config.ejection_time * (1 << health.level.min(8));
            let lasts = lasts.min(self.config.ejection_time_max).mul_f64(0.8 + 0.4 * self.random.uniform());
            health.level += 1;
            health.ejected_until = now.saturating_add(lasts).nanos();
            // Once it is over, one more failure ejects again.
            health.consecutive = limit.saturating_sub(1);
        }
    }

    pub(super) fn is_usable(&self, now: Mono, server: usize, tried: &[usize]) -> bool {
        self.health[server].ejected_until <= now.nanos() && !tried.contains(&server)
    }

    /// The usable servers of each region, the nearest region first.
    pub(super) fn by_distance<'a>(
        &'a self,
        now: Mono,
        tried: &'a [usize],
    ) -> impl Iterator<Item = Vec<usize>> + 'a {
        let usable = move |server: &usize| self.is_usable(now, *server, tried);
        self.regions.iter().map(move |members| members.iter().copied().filter(usable).collect())
    }

    /// The usable servers of the nearest region that has any; all that weren't tried if none has.
    pub(super) fn nearest(&self, now: Mono, tried: &[usize]) -> Vec<usize> {
        let found = self.by_distance(now, tried).find(|members| !members.is_empty());
        found.unwrap_or_else(|| (0..self.health.len()).filter(|server| !tried.contains(server)).collect())
    }
}

/// A moving average that follows a peak at once, as Finagle's.
#[derive(Clone, Debug, Default)]
pub(super) struct Peak {
    at: u64,
    cost: f64,
}

impl Peak {
    pub(super) fn note(&mut self, now: Mono, latency: Duration, decay: Duration) {
        let (taken, since) = (latency.as_secs_f64(), now.nanos().saturating_sub(self.at));
        let kept = (-(since as f64) / decay.as_nanos() as f64).exp();
        self.cost = if taken > self.cost { taken } else { self.cost * kept + taken * (1.0 - kept) };
        self.at = now.nanos();
    }

    pub(super) fn cost(&self) -> f64 {
        self.cost
    }
}
