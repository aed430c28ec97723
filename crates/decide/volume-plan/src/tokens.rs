//! When a token is renewed.
//!
//! Rule: after 80 % of its life and at the latest after a day, a little earlier by a jitter that is
//! different for each pod, so that a node's tokens are not renewed together. A token from the future
//! is renewed too: the node's clock has been set back, and its age cannot be known.
//!
//! upstream: pkg/kubelet/token/token_manager.go

use ports::{ApiTime, IssuedToken};

#[cfg(test)]
mod tests;

const SECOND: i64 = 1_000_000_000;
const MAX_AGE: i64 = 24 * 3600 * SECOND;
const MAX_JITTER: u64 = 10;

/// Whether the token of a pod is to be renewed now.
pub fn is_renewal_due(token: &IssuedToken, pod_uid: &str, now: ApiTime) -> bool {
    now.nanos() < issued_at(token) || renewal_time(token, pod_uid) <= now
}

/// Nanoseconds since the epoch.
fn issued_at(token: &IssuedToken) -> i64 {
    let lifetime = token.lifetime_seconds.max(0).saturating_mul(SECOND);
    token.expires_at.nanos().saturating_sub(lifetime)
}

/// When the token of a pod is to be renewed.
pub fn renewal_time(token: &IssuedToken, pod_uid: &str) -> ApiTime {
    let lifetime = token.lifetime_seconds.max(0).saturating_mul(SECOND);
    let expires = token.expires_at.nanos();
    let issued = issued_at(token);
    let after_day = issued.saturating_add(MAX_AGE);
    let after_part = expires.saturating_sub(lifetime / 5);
    ApiTime::from_nanos(after_day.min(after_part).saturating_sub(jitter(pod_uid)))
}

/// Whether a token is of no use any more.
pub fn is_expired(token: &IssuedToken, now: ApiTime) -> bool {
    now > token.expires_at
}

/// Zero to ten seconds, the same for each token of a pod.
fn jitter(pod_uid: &str) -> i64 {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in pod_uid.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    i64::try_from((hash >> 32) % (MAX_JITTER * 1000)).unwrap_or_default() * (SECOND / 1000)
}
