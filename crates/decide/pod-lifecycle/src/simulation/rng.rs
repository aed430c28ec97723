//! A seeded random number generator.

pub(super) struct SimulationRng(u64);

impl SimulationRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `most`.
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    /// True with this probability in percent.
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> i64 {
        i64::try_from(from + self.below(to - from)).expect("small") * 1_000_000
    }
}
