//! What became of requests.

use std::fmt;

/// Statuses that are counted apart.
const STATUSES: [u16; 4] = [200, 401, 429, 503];

/// Counts, and the latencies of what was served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    statuses: [u64; STATUSES.len()],
    other: u64,
    /// Closed without a response.
    closed: u64,
    failed: u64,
    served_us: Vec<u32>,
}

impl Outcome {
    pub(crate) fn answered(&mut self, status: u16, latency_us: u128) {
        match STATUSES.iter().position(|known| *known == status) {
            Some(place) => self.statuses[place] += 1,
            None => self.other += 1,
        }
        if status == 200 {
            self.served_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn closed(&mut self) {
        self.closed += 1;
    }

    pub(crate) fn failed(&mut self) {
        self.failed += 1;
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.other += other.other;
        self.closed += other.closed;
        self.failed += other.failed;
        self.served_us.append(&mut other.served_us);
    }

    /// Ready to be shown: percentiles are those of sorted latencies.
    pub(crate) fn sorted(mut self) -> Self {
        self.served_us.sort_unstable();
        self
    }

    fn percentile(&self, part: f64) -> u32 {
        let place = (self.served_us.len() as f64 * part).ceil() as usize;
        self.served_us.get(place.max(1) - 1).copied().unwrap_or_default()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.statuses.iter().sum::<u64>() + self.other + self.closed + self.failed;
        write!(f, "bench-open-loop requests={requests}")?;
        for (status, count) in STATUSES.iter().zip(self.statuses) {
            write!(f, " status_{status}={count}")?;
        }
        write!(f, " status_other={} closed={} failed={}", self.other, self.closed, self.failed)?;
        write!(f, " p50_us={} p99_us={}", self.percentile(0.5), self.percentile(0.99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_served() {
        let mut sum = Outcome::default();
        for thread in 0..2 {
            let mut one = Outcome::default();
            for us in 1..=50 {
                one.answered(200, us * 2 - thread);
            }
            one.answered(503, 1_000_000);
            sum.add(one);
        }
        sum.closed();
        let expected = "bench-open-loop requests=103 status_200=100 status_401=0 status_429=0 status_503=2 \
                        status_other=0 closed=1 failed=0 p50_us=50 p99_us=99";
        assert_eq!(sum.sorted().to_string(), expected);
        assert_eq!(Outcome::default().percentile(0.99), 0);
    }
}
