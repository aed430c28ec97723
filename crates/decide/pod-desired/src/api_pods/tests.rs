//! Events of the feed, and the pods after them.

use std::sync::Arc;

use pod_model::pod::Pod;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::PodStatus;
use ports::cluster_api::FeedEvent;
use ports::{ApiPod, ApiTime};

use super::{ApiPods, CONFIG_MIRROR_ANNOTATION, is_newer};

fn at(seconds: i64) -> ApiTime {
    ApiTime::from_nanos(seconds * 1_000_000_000)
}

fn api_pod(uid: &str, version: &str, phase: PodPhase) -> ApiPod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.metadata.name = format!("pod-{uid}").into();
    pod.metadata.namespace = "default".into();
    pod.metadata.resource_version = version.into();
    ApiPod { pod, status: Arc::new(PodStatus { phase, ..PodStatus::default() }) }
}

fn listed(pods: Vec<ApiPod>) -> ApiPods {
    let mut known = ApiPods::default();
    known.apply(FeedEvent::ListBegun, at(1));
    known.apply(FeedEvent::Listed(pods), at(1));
    known.apply(FeedEvent::ListEnded, at(1));
    known
}

fn uids(known: &ApiPods) -> Vec<&str> {
    known.pods.keys().map(|uid| &**uid).collect()
}

#[test]
fn a_list_replaces_what_was_known() {
    let mut known =
        listed(vec![api_pod("a", "1", PodPhase::Pending), api_pod("b", "2", PodPhase::Pending)]);
    assert_eq!(uids(&known), ["a", "b"]);
    known.apply(FeedEvent::ListBegun, at(2));
    known.apply(FeedEvent::Listed(vec![api_pod("b", "2", PodPhase::Pending)]), at(2));
    assert_eq!(uids(&known), ["a", "b"], "nothing is gone before the list has ended");
    assert!(known.apply(FeedEvent::ListEnded, at(2)));
    assert_eq!(uids(&known), ["b"]);
}

#[test]
fn nothing_is_listed_before_the_first_list_has_ended() {
    let mut known = ApiPods::default();
    known.apply(FeedEvent::ListBegun, at(1));
    known.apply(FeedEvent::Listed(Vec::new()), at(1));
    assert!(!known.is_listed);
    assert!(known.apply(FeedEvent::ListEnded, at(1)));
    assert!(known.is_listed);
}

#[test]
fn a_new_status_is_the_same_pod() {
    let mut known = listed(vec![api_pod("a", "1", PodPhase::Pending)]);
    let before = known.pods["a"].clone();
    assert!(known.apply(FeedEvent::Applied(api_pod("a", "2", PodPhase::Running)), at(9)));
    let after = &known.pods["a"];
    assert!(Arc::ptr_eq(&before.pod, &after.pod));
    assert_eq!(after.status.phase, PodPhase::Running);
    let mut changed = api_pod("a", "3", PodPhase::Running);
    changed.pod.metadata.labels.insert("a", "b".into());
    known.apply(FeedEvent::Applied(changed), at(9));
    assert!(!Arc::ptr_eq(&before.pod, &known.pods["a"].pod));
}

#[test]
fn the_source_annotation_of_a_pod_is_overwritten() {
    let mut claiming = api_pod("a", "1", PodPhase::Pending);
    claiming.pod.metadata.annotations.insert("kubernetes.io/config.source", "file".into());
    let known = listed(vec![claiming]);
    let pod = &known.pods["a"].pod;
    assert!(!pod.is_static() && !pod.is_critical());
}

#[test]
fn mirror_pods_are_not_run() {
    let mut mirror = api_pod("m", "1", PodPhase::Pending);
    mirror.pod.metadata.annotations.insert(CONFIG_MIRROR_ANNOTATION, "hash".into());
    let mut known = listed(vec![mirror.clone()]);
    assert!(known.pods.is_empty());
    assert_eq!(known.mirror_of("default", "pod-m").map(|each| &*each.hash), Some("hash"));
    assert!(!known.apply(FeedEvent::Applied(mirror.clone()), at(2)));
    assert!(known.apply(FeedEvent::Deleted(mirror), at(2)));
    assert!(known.mirrors.is_empty());
}

#[test]
fn an_answer_counts_only_for_a_known_pod_and_a_later_version() {
    let mut known = listed(vec![api_pod("a", "5", PodPhase::Pending)]);
    assert!(!known.apply_answer(api_pod("a", "4", PodPhase::Failed), at(2)));
    assert!(!known.apply_answer(api_pod("b", "6", PodPhase::Failed), at(2)));
    assert!(known.apply_answer(api_pod("a", "6", PodPhase::Running), at(2)));
    // The feed brings an older version after it.
    assert!(!known.apply(FeedEvent::Applied(api_pod("a", "5", PodPhase::Pending)), at(3)));
    assert_eq!(known.pods["a"].status.phase, PodPhase::Running);
}

#[test]
fn a_deleted_pod_that_cannot_be_read_is_gone() {
    let mut known = listed(vec![api_pod("a", "5", PodPhase::Pending)]);
    let unreadable = |deleted| FeedEvent::Unreadable {
        object: "pods/default/pod-a".to_owned(),
        deleted,
        cause: "too new".to_owned(),
    };
    assert!(!known.apply(unreadable(false), at(2)));
    assert!(known.apply(unreadable(true), at(2)));
    assert!(known.pods.is_empty());
}

#[test]
fn a_pod_that_a_list_has_and_that_cannot_be_read_stays() {
    let mut known = listed(vec![api_pod("a", "5", PodPhase::Pending)]);
    known.apply(FeedEvent::ListBegun, at(2));
    let object = "pods/default/pod-a".to_owned();
    let cause = "too new".to_owned();
    known.apply(FeedEvent::Unreadable { object, deleted: false, cause }, at(2));
    known.apply(FeedEvent::ListEnded, at(2));
    assert_eq!(uids(&known), ["a"]);
}

#[test]
fn a_list_of_an_api_server_that_was_set_back_counts() {
    let mut known = listed(vec![api_pod("a", "50", PodPhase::Running)]);
    known.apply(FeedEvent::ListBegun, at(2));
    known.apply(FeedEvent::Listed(vec![api_pod("a", "7", PodPhase::Pending)]), at(2));
    known.apply(FeedEvent::ListEnded, at(2));
    assert_eq!(known.pods["a"].status.phase, PodPhase::Pending);
}

#[test]
fn versions_are_numbers() {
    let table = [
        ("2", "1", true),
        ("10", "9", true),
        ("1", "1", false),
        ("1", "2", false),
        ("x", "1", true),
    ];
    for (one, other, expected) in table {
        assert_eq!(is_newer(one, other), expected, "{one} after {other}");
    }
}
