//! Shares and quota at their edges.

use super::*;

#[test]
fn shares_of_thousandths() {
    for (milli, expected) in [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 3),
        (100, 102),
        (250, 256),
        (999, 1022),
        (1000, 1024),
        (1500, 1536),
        (256_000, 262_144),
        (256_001, 262_144),
        (i64::MAX, 262_144),
        (-5, 2),
    ] {
        assert_eq!(shares(milli), expected, "{milli}m");
    }
}

#[test]
fn quota_of_thousandths() {
    for (milli, period, expected) in [
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (10, 100_000, 1000),
        (11, 100_000, 1100),
        (250, 100_000, 25_000),
        (1500, 100_000, 150_000),
        (1000, 5000, 5000),
        (100, 5000, 1000),
        (1, 1000, 1000),
        (-1, 100_000, 1000),
        (i64::MAX, 100_000, i64::MAX / 1000),
    ] {
        assert_eq!(quota(milli, period), expected, "{milli}m in {period}");
    }
}
