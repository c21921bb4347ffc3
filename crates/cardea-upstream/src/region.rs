//! The endpoints of a service that stand in one region: a draw by weight, and what is known of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use cardea_clock::Mono;

use crate::health::Health;
use crate::locality::KnownRegion;

/// Endpoints of one region whose weight isn't 0, and whose priority is the same.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: Option<String>,
    pub(crate) priority: u16,
    /// What is known of its place.
    pub(crate) known: Option<Arc<KnownRegion>>,
    pub(crate) members: Vec<u16>,
    /// The sum of weights up to and with each member.
    sums: Vec<u64>,
    /// For draws in constant time: Walker, "An efficient method for generating discrete random variables with general
    /// distributions" (1977).
    aliases: Vec<Alias>,
    /// Coprime to the sum of all weights, and far from a small fraction of it: steps of so many visit each unit of
    /// weight once, and those of an endpoint far from each other.
    stride: u64,
    survey: Survey,
}

/// The chance of a member, and who is drawn otherwise.
#[derive(Clone, Copy, Debug)]
struct Alias {
    /// Of 2^32.
    chance: u32,
    other: u16,
}

/// What a look at all members has found.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Survey {
    healthy: AtomicUsize,
    /// When the first ejected member is due for a probe, in nanoseconds of [`Mono`].
    probe_due: AtomicU64,
}

impl Region {
    pub(crate) fn new(name: Option<String>, priority: u16, known: Option<Arc<KnownRegion>>) -> Self {
        Self {
            name,
            priority,
            known,
            members: Vec::new(),
            sums: Vec::new(),
            aliases: Vec::new(),
            stride: 1,
            survey: Survey::default(),
        }
    }

    pub(crate) fn add(&mut self, endpoint: u16, weight: u32) {
        let sum = self.total() + u64::from(weight);
        self.sums.push(sum);
        self.members.push(endpoint);
    }

    /// To be called once all members are there.
    pub(crate) fn settle(&mut self) {
        let total = self.total().max(1);
        // The golden section of a circle: the points of a walk by it are spread as evenly as can be.
        let mut stride = (total as f64 * 0.618_033_988_75) as u64;
        while stride > 1 && common_divisor(stride, total) != 1 {
            stride -= 1;
        }
        self.stride = stride.max(1);
        self.aliases = self.aliases();
        *self.survey.healthy.get_mut() = self.members.len();
        self.no_probe_due();
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }

    /// The mean weight of a member.
    pub(crate) fn weight_mean(&self) -> f32 {
        self.total() as f32 / self.members.len().max(1) as f32
    }

    /// A member, drawn by weight.
    pub(crate) fn draw(&self, random: u64) -> Option<u16> {
        let (high, low) = (random >> 32, (random & 0xFFFF_FFFF) as u32);
        let at = usize::try_from((high * self.members.len() as u64) >> 32).ok()?;
        let alias = self.aliases.get(at)?;
        self.members.get(if low <= alias.chance { at } else { usize::from(alias.other) }).copied()
    }

    /// Members below the mean weight are filled up with those above it (Vose, 1991).
    fn aliases(&self) -> Vec<Alias> {
        let count = self.members.len() as u64;
        let total = self.total().max(1);
        let weight = |at: usize| self.sums[at] - if at == 0 { 0 } else { self.sums[at - 1] };
        // Each place has room for the mean: so many parts, of which a member has its weight times the count.
        let mut parts: Vec<u64> = (0..self.members.len()).map(|at| weight(at) * count).collect();
        let (mut below, mut above): (Vec<u16>, Vec<u16>) =
            (0..).take(self.members.len()).partition(|at| parts[usize::from(*at)] < total);
        let mut aliases: Vec<Alias> =
            (0..).take(self.members.len()).map(|other| Alias { chance: u32::MAX, other }).collect();
        while let (Some(low), Some(high)) = (below.pop(), above.pop()) {
            let had = parts[usize::from(low)];
            let chance = u128::from(had) * u128::from(u32::MAX) / u128::from(total);
            aliases[usize::from(low)] =
                Alias { chance: u32::try_from(chance).unwrap_or(u32::MAX), other: high };
            let rest = &mut parts[usize::from(high)];
            *rest -= total - had;
            if *rest < total { below.push(high) } else { above.push(high) }
        }
        aliases
    }

    /// The member whose turn it is at so many turns.
    pub(crate) fn turn(&self, count: u64) -> Option<u16> {
        // Below a billion each: no more endpoints nor weight than there may be.
        let total = self.total();
        self.at((count % total.max(1)) * self.stride % total.max(1))
    }

    fn at(&self, point: u64) -> Option<u16> {
        self.members.get(self.sums.partition_point(|sum| *sum <= point)).copied()
    }

    /// Looks at all members.
    pub(crate) fn survey<'a>(&self, health: impl Fn(u16) -> Option<&'a Health>) {
        let due = self.members.iter().filter_map(|member| health(*member)?.probe_due());
        let (ejected, first) = due.fold((0, u64::MAX), |(count, first), due| (count + 1, first.min(due)));
        self.survey.healthy.store(self.members.len() - ejected, Relaxed);
        self.survey.probe_due.store(first, Relaxed);
    }

    /// How many members were healthy at the last look.
    pub(crate) fn healthy(&self) -> usize {
        self.survey.healthy.load(Relaxed)
    }

    /// Whether a member may be due for a probe.
    pub(crate) fn is_probe_due(&self, now: Mono) -> bool {
        self.survey.probe_due.load(Relaxed) <= now.nanos()
    }

    /// No member is due for a probe, until the next look at all of them.
    pub(crate) fn no_probe_due(&self) {
        self.survey.probe_due.store(u64::MAX, Relaxed);
    }
}

/// A random number below `bound`, from one of 64 bits.
pub(crate) fn scale(random: u64, bound: u64) -> u64 {
    let scaled = (u128::from(random) * u128::from(bound)) >> 64;
    u64::try_from(scaled).unwrap_or(0)
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(weights: &[u32]) -> Region {
        let mut region = Region::new(None, 0, None);
        for (endpoint, weight) in (0..).zip(weights) {
            region.add(endpoint, *weight);
        }
        region.settle();
        region
    }

    #[test]
    fn turns_come_round_by_weight_and_apart_from_each_other() {
        for weights in [&[1, 1, 1][..], &[5, 1, 1], &[1], &[2, 2], &[7, 3, 90], &[1_000_000, 1]] {
            let region = region(weights);
            let total = region.total();
            let mut counts = vec![0; weights.len()];
            for count in 0..total {
                counts[usize::from(region.turn(u64::MAX / 2 + count).unwrap())] += 1;
            }
            assert_eq!(counts, weights);
        }
        let three = region(&[1, 1, 1]);
        let turns: Vec<_> = (0..4).filter_map(|count| three.turn(count)).collect();
        assert!(turns[0] != turns[1] && turns[1] != turns[2] && turns[3] == turns[0], "{turns:?}");
        let heavy = region(&[5, 1, 1]);
        let turns: Vec<_> = (0..14).filter_map(|count| heavy.turn(count)).collect();
        assert!(turns.windows(5).all(|turns| turns.iter().any(|turn| *turn != 0)), "{turns:?}");
    }

    #[test]
    fn draws_follow_weights() {
        for weights in [&[1, 1, 1][..], &[5, 1, 1], &[1], &[7, 3, 90], &[1_000_000, 1], &[3; 1_000]] {
            let region = region(weights);
            let mut counts = vec![0.0; weights.len()];
            let draws = 200_000_u64;
            for draw in 0..draws {
                let random = crate::affinity::mix(draw);
                counts[usize::from(region.draw(random).unwrap())] += 1.0 / draws as f64;
            }
            for (count, weight) in counts.iter().zip(weights) {
                let share = f64::from(*weight) / region.total() as f64;
                assert!((count - share).abs() < 0.005 + share * 0.01, "{weights:?}: {count} {share}");
            }
        }
    }

    #[test]
    fn an_empty_region_has_no_turns() {
        assert_eq!((region(&[]).turn(7), region(&[]).draw(7)), (None, None));
    }
}
