//! The node's Lease: what is written, and how long to wait after an attempt.
//!
//! Rule: fields written by other components stay. A Lease is not created without its owner, since
//! it would not be garbage-collected with the node; it is renewed without one.
//!
//! upstream: staging component-helpers/apimachinery/lease/controller.go, pkg/kubelet/util/nodelease.go

use ports::ApiTime;
use ports::cluster_objects::{Lease, LeaseSpec, ObjectMeta, OwnerReference};

pub const NAMESPACE: &str = "kube-node-lease";

/// The share of its duration after which a Lease is renewed.
const RENEWALS_PER_DURATION: i64 = 4;
const FIRST_RETRY_DELAY: i64 = 200;
const MAX_RETRY_DELAY: i64 = 7_000;

/// What a Lease of this node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings<'a> {
    pub node_name: &'a str,
    /// The UID of the Node, where it is known.
    pub node_uid: Option<&'a str>,
    pub duration_seconds: i64,
}

/// The Lease to create, or nothing while its owner is not known.
pub fn created(settings: LeaseSettings<'_>, now: ApiTime) -> Option<Lease> {
    let metadata = ObjectMeta {
        name: settings.node_name.to_owned(),
        namespace: NAMESPACE.to_owned(),
        owner_references: vec![owner(settings)?],
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(settings.node_name.to_owned()),
        lease_duration_seconds: i32::try_from(settings.duration_seconds).ok(),
        renew_time: Some(now),
        ..LeaseSpec::default()
    };
    Some(Lease { metadata, spec })
}

/// The Lease as it was read, renewed.
pub fn renewed(existing: &Lease, settings: LeaseSettings<'_>, now: ApiTime) -> Lease {
    let mut lease = existing.clone();
    lease.spec.lease_duration_seconds = i32::try_from(settings.duration_seconds).ok();
    lease.spec.renew_time = Some(now);
    if lease.metadata.owner_references.is_empty() {
        lease.metadata.owner_references.extend(owner(settings));
    }
    lease
}

fn owner(settings: LeaseSettings<'_>) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: settings.node_name.to_owned(),
        uid: settings.node_uid?.to_owned(),
        controller: None,
    })
}

/// Milliseconds from one renewal to the next. `random` is uniform in 0..1000 and adds up to a
/// twenty-fifth.
pub fn renew_interval(duration_seconds: i64, random: u16) -> i64 {
    let interval = duration_seconds.max(1).saturating_mul(1000) / RENEWALS_PER_DURATION;
    interval.saturating_add(interval / 25 * i64::from(random.min(1000)) / 1000)
}

/// Milliseconds to wait after this many failed attempts in a row (from one on).
pub fn retry_wait(failed: u32) -> i64 {
    let doubled = FIRST_RETRY_DELAY.checked_shl(failed.saturating_sub(1).min(16));
    doubled.unwrap_or(MAX_RETRY_DELAY).min(MAX_RETRY_DELAY)
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
        assert_eq!(
            (lease.metadata.namespace.as_str(), lease.metadata.name.as_str()),
            (NAMESPACE, "n1")
        );
        assert_eq!(lease.spec.holder_identity.as_deref(), Some("n1"));
        assert_eq!(
            (lease.spec.lease_duration_seconds, lease.spec.renew_time),
            (Some(40), Some(now))
        );
        assert_eq!(
            lease.metadata.owner_references,
            owner(SETTINGS).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(created(LeaseSettings { node_uid: None, ..SETTINGS }, now), None);
    }

    #[test]
    fn a_renewal_keeps_what_others_wrote_and_adds_a_missing_owner() {
        let now = at("2026-11-18T01:02:03Z");
        let mut existing = created(SETTINGS, at("2026-11-18T00:00:00Z")).unwrap_or_default();
        existing.metadata.resource_version = "7".to_owned();
        existing.metadata.owner_references.clear();
        existing.spec.lease_transitions = Some(3);
        existing.spec.lease_duration_seconds = Some(30);
        let lease = renewed(&existing, SETTINGS, now);
        assert_eq!(lease.metadata.resource_version, "7");
        assert_eq!(lease.spec.lease_transitions, Some(3));
        assert_eq!(
            (lease.spec.lease_duration_seconds, lease.spec.renew_time),
            (Some(40), Some(now))
        );
        assert_eq!(lease.metadata.owner_references[0].uid, "u-1");
        let ownerless = LeaseSettings { node_uid: None, ..SETTINGS };
        assert!(renewed(&existing, ownerless, now).metadata.owner_references.is_empty());
        let mut owned = existing;
        owned.metadata.owner_references =
            vec![OwnerReference { uid: "other".to_owned(), ..OwnerReference::default() }];
        let owners = owned.metadata.owner_references.clone();
        assert_eq!(renewed(&owned, SETTINGS, now).metadata.owner_references, owners);
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
