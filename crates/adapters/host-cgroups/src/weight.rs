//! The weight (1 to 10000) that upstream gives a pod's or a QoS class's cgroup for its shares:
//! linear, not the curve that container runtimes use for containers.
//!
//! Rule: pods of two agents on one machine weigh the same. Pure.
//!
//! upstream: kubelet/cm/cgroup_manager_linux.go getCPUWeight

const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const MAX_WEIGHT: u64 = 10_000;

pub(crate) fn of_shares(shares: u64) -> u64 {
    let above = shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES;
    1 + above * (MAX_WEIGHT - 1) / (MAX_SHARES - MIN_SHARES)
}

#[cfg(test)]
mod tests {
    use super::of_shares;

    /// As the reference kubelet v1.36.3 wrote them for 2 processors, 500m, 200m and nothing.
    #[test]
    fn cpu_weights_match_the_reference_kubelet() {
        let weights = [2048, 512, 204, 2].map(of_shares);
        assert_eq!(weights, [79, 20, 8, 1]);
        assert_eq!([0, 1, 262_143, 262_144, u64::MAX].map(of_shares), [1, 1, 9999, 10_000, 10_000]);
    }
}
