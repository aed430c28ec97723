//! 80 % of a life, a day, and the jitter.

use super::*;

#[test]
fn renewal() {
    let start = 1_700_000_000 * SECOND;
    for (lifetime, latest) in [(600, 480), (3607, 2886), (100, 80), (7 * 24 * 3600, 24 * 3600)] {
        let token = IssuedToken {
            token: String::new(),
            expires_at: ApiTime::from_nanos(start + lifetime * SECOND),
            lifetime_seconds: lifetime,
        };
        let second = |after: i64| ApiTime::from_nanos(start + after * SECOND);
        for (now, due) in [(-1, true), (0, false), (latest - 11, false), (latest, true)] {
            assert_eq!(is_renewal_due(&token, "u", second(now)), due, "{lifetime} at {now}");
        }
        let mut times = std::collections::BTreeSet::new();
        for uid in 0..50 {
            let after = renewal_time(&token, &format!("pod-{uid}")).nanos() - start;
            assert!(
                after <= latest * SECOND && after > (latest - 11) * SECOND,
                "{lifetime}: {after}"
            );
            times.insert(after);
        }
        assert!(times.len() > 40, "{times:?}");
        assert!(!is_expired(&token, token.expires_at));
        assert!(is_expired(&token, ApiTime::from_nanos(token.expires_at.nanos() + 1)));
    }
    // Whatever a server answers, there is a time.
    for (expires, lifetime) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, 0)] {
        let expires_at = ApiTime::from_nanos(expires);
        let token = IssuedToken { token: String::new(), expires_at, lifetime_seconds: lifetime };
        assert!(renewal_time(&token, "u") <= expires_at);
    }
}
