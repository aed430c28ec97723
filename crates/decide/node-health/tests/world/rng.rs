//! Reproducible randomness: one seeded xorshift generator.

/// A generator.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        // Spread small seeds out; only zero is a stuck state.
        Self((seed.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below this one.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from((self.next() >> 11) % bound).unwrap_or(0)
    }

    /// A number in this range, both ends included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = usize::try_from(high - low + 1).unwrap_or(1);
        low + i64::try_from(self.below(width)).unwrap_or(0)
    }

    /// True once in this many calls on average.
    pub fn one_in(&mut self, throws: usize) -> bool {
        self.below(throws) == 0
    }
}
