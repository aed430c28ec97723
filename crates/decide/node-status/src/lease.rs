//! The node's Lease: what is written, and how long to wait after an attempt.
//!
//! Rule: everything that somebody else put into the object stays. A Lease is not created without its
//! owner, since nobody would remove it with the node; it is renewed without one.
//!
//! upstream: staging component-helpers/apimachinery/lease/controller.go, pkg/kubelet/util/nodelease.go

use ports::ApiTime;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "kube-node-lease";

/// The share of its duration after which a Lease is renewed.
const RENEWALS_PER_DURATION: i64 = 4;
const FIRST_WAIT: i64 = 200;
const LONGEST_WAIT: i64 = 7_000;

/// What a Lease of this node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings<'a> {
    pub node_name: &'a str,
    /// The UID of the Node, where it is known.
    pub node_uid: Option<&'a str>,
    pub duration_seconds: i64,
}

/// The body of the request that creates the Lease, or nothing while its owner is not known.
pub fn created(settings: LeaseSettings<'_>, now: ApiTime) -> Option<Value> {
    let owner = owner(settings)?;
    Some(json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": settings.node_name,
            "namespace": NAMESPACE,
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": settings.node_name,
            "leaseDurationSeconds": settings.duration_seconds,
            "renewTime": now.to_micros_text(),
        },
    }))
}

/// The Lease as it was read, renewed: the body of an update.
pub fn renewed(existing: &Value, settings: LeaseSettings<'_>, now: ApiTime) -> Value {
    let mut lease = existing.clone();
    if !lease["spec"].is_object() {
        lease["spec"] = json!({});
    }
    lease["spec"]["leaseDurationSeconds"] = json!(settings.duration_seconds);
    lease["spec"]["renewTime"] = json!(now.to_micros_text());
    let has_owner =
        lease["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    if let (false, Some(owner)) = (has_owner, owner(settings)) {
        lease["metadata"]["ownerReferences"] = json!([owner]);
    }
    lease
}

fn owner(settings: LeaseSettings<'_>) -> Option<Value> {
    let uid = settings.node_uid?;
    Some(json!({ "apiVersion": "v1", "kind": "Node", "name": settings.node_name, "uid": uid }))
}

/// Milliseconds from one renewal to the next. `random` is uniform in 0..1000 and adds up to a
/// twenty-fifth.
pub fn renew_interval(duration_seconds: i64, random: u16) -> i64 {
    let interval = duration_seconds.max(1).saturating_mul(1000) / RENEWALS_PER_DURATION;
    interval.saturating_add(interval / 25 * i64::from(random.min(1000)) / 1000)
}

/// Milliseconds to wait after this many failed attempts in a row (from one on).
pub fn retry_wait(failed: u32) -> i64 {
    let doubled = FIRST_WAIT.checked_shl(failed.saturating_sub(1).min(16));
    doubled.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: LeaseSettings<'static> =
        LeaseSettings { node_name: "n1", node_uid: Some("u-1"), duration_seconds: 40 };

    fn at(text: &str) -> ApiTime {
        ApiTime::parse(text).unwrap_or_default()
    }

    #[test]
    fn a_lease_is_created_with_its_owner_only() {
        let now = at("2026-11-18T01:02:03.5Z");
        let lease = created(SETTINGS, now).unwrap_or_default();
        assert_eq!(lease["spec"]["holderIdentity"], "n1");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["spec"]["renewTime"], "2026-11-18T01:02:03.500000Z");
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(created(LeaseSettings { node_uid: None, ..SETTINGS }, now), None);
    }

    #[test]
    fn a_renewal_keeps_what_others_wrote_and_adds_a_missing_owner() {
        let now = at("2026-11-18T01:02:03Z");
        let existing = json!({
            "metadata": { "name": "n1", "resourceVersion": "7", "labels": { "a": "b" } },
            "spec": { "holderIdentity": "n1", "leaseDurationSeconds": 30, "strategy": "x" },
        });
        let lease = renewed(&existing, SETTINGS, now);
        assert_eq!(lease["metadata"]["resourceVersion"], "7");
        assert_eq!(lease["metadata"]["labels"]["a"], "b");
        assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
        assert_eq!(lease["spec"]["strategy"], "x");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        let owned = json!({ "metadata": { "ownerReferences": [{ "uid": "other" }] } });
        let lease = renewed(&owned, SETTINGS, now);
        assert_eq!(lease["metadata"]["ownerReferences"], json!([{ "uid": "other" }]));
        assert_eq!(lease["spec"]["renewTime"], "2026-11-18T01:02:03.000000Z");
        let ownerless = LeaseSettings { node_uid: None, ..SETTINGS };
        assert!(renewed(&existing, ownerless, now)["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn renewals_come_four_to_a_duration_and_retries_back_off() {
        assert_eq!(renew_interval(40, 0), 10_000);
        assert_eq!(renew_interval(40, 1000), 10_400);
        assert_eq!(renew_interval(1, 0), 250);
        let waits: Vec<i64> = (1..=7).map(retry_wait).collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 7_000]);
        assert_eq!(retry_wait(u32::MAX), 7_000);
    }
}
