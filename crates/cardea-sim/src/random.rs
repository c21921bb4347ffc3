//! A seeded source of randomness (SplitMix64) and the distributions that the simulation draws from.

/// The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A source for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A source of its own for a part of the simulation: what one part draws doesn't change what another does.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03));
        random.bits();
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1, neither included.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Exponentially distributed.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }

    /// Lognormally distributed: `sigma` is the deviation of the logarithm.
    pub fn lognormal(&mut self, mean: f64, sigma: f64) -> f64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (normal * sigma - sigma * sigma / 2.0).exp() * mean
    }

    /// Pareto distributed; `shape` must exceed 1, so that there is a mean.
    pub fn pareto(&mut self, mean: f64, shape: f64) -> f64 {
        mean * (shape - 1.0) / shape / self.uniform().powf(1.0 / shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(1);
        let mut mean =
            |draw: fn(&mut Random) -> f64| (0..400_000).map(|_| draw(&mut random)).sum::<f64>() / 400_000.0;
        for mean in [
            mean(|random| random.exponential(3.0)),
            mean(|random| random.lognormal(3.0, 1.0)),
            mean(|random| random.pareto(3.0, 2.5)),
            mean(|random| random.below(7) as f64),
            mean(|random| 6.0 * random.uniform()),
        ] {
            assert!((mean - 3.0).abs() < 0.05, "{mean}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed, part| Random::part(seed, part).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert!(draw(1, 2) != draw(1, 3) && draw(1, 2) != draw(2, 2));
    }
}
