//! Static pods and mirrors, and the steps between them.

use std::sync::Arc;

use pod_manifest::static_pod::CONFIG_HASH_ANNOTATION;
use pod_model::pod::Pod;
use pod_model::pod::status::PodStatus;

use super::{MirrorStep, StaticPodSet, mirror_body, mirror_steps};
use crate::api_pods::{ApiPods, MirrorPod};

fn static_pod(name: &str, hash: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "default".into();
    pod.metadata.annotations.insert(CONFIG_HASH_ANNOTATION, hash.into());
    Arc::new(pod)
}

/// `name=hash`, with a `-` where it still ends.
fn static_pods(pods: &[&str], is_complete: bool) -> StaticPodSet {
    let mut set = StaticPodSet { is_complete, ..StaticPodSet::default() };
    for text in pods {
        let (name, hash) = text.trim_end_matches('-').split_once('=').expect("name=hash");
        let list = if text.ends_with('-') { &mut set.ending } else { &mut set.desired };
        list.push(static_pod(name, hash));
    }
    set
}

/// `name=hash`, with a `!` where it is being deleted.
fn api_pods(mirrors: &[&str], is_listed: bool) -> ApiPods {
    let mirrors = mirrors.iter().map(|text| {
        let (name, hash) = text.trim_end_matches('!').split_once('=').expect("name=hash");
        let mirror = MirrorPod {
            uid: format!("uid-{name}").into(),
            namespace: "default".into(),
            name: name.into(),
            hash: hash.into(),
            is_deleted: text.ends_with('!'),
            status: Arc::new(PodStatus::default()),
            resource_version: "1".into(),
        };
        (mirror.uid.clone(), Arc::new(mirror))
    });
    let mirrors = Arc::new(mirrors.collect());
    ApiPods { mirrors, is_listed, ..ApiPods::default() }
}

fn described(steps: &[MirrorStep]) -> String {
    let texts = steps.iter().map(|step| match step {
        MirrorStep::Create(pod) => format!("create {}", pod.metadata.name),
        MirrorStep::Delete(mirror) => format!("delete {}", mirror.name),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_static_pod_has_the_mirror_of_its_version() {
    // Static pods, mirrors, whether every source has reported, the steps.
    let table: &[(&[&str], &[&str], bool, &str)] = &[
        (&["a=1"], &[], true, "create a"),
        (&["a=1"], &["a=1"], true, ""),
        (&["a=2"], &["a=1"], true, "delete a"),
        (&["a=1"], &["a=1!"], true, "delete a"),
        (&[], &["a=1"], true, "delete a"),
        (&[], &["a=1"], false, ""),
        (&["a=1", "b=1"], &["b=1", "c=1"], true, "create a, delete c"),
        // One that still ends keeps its mirror, also if another version of it is desired already.
        (&["a=1-"], &["a=1"], true, ""),
        (&["a=1-"], &[], true, ""),
        (&["a=1-"], &["a=1", "b=1"], true, "delete b"),
        (&["a=1-", "a=2"], &["a=1"], true, ""),
    ];
    for (pods, mirrors, is_complete, expected) in table {
        let set = static_pods(pods, *is_complete);
        let steps = mirror_steps(&set, &api_pods(mirrors, true));
        assert_eq!(described(&steps), *expected, "{pods:?} and {mirrors:?}");
    }
}

#[test]
fn nothing_is_decided_before_the_first_list() {
    assert_eq!(mirror_steps(&static_pods(&["a=1"], true), &api_pods(&[], false)), []);
}

#[test]
fn a_mirror_belongs_to_its_node_and_names_its_version() {
    let body = mirror_body(&static_pod("a", "1"), "node-1", "uid-n");
    assert_eq!(body["metadata"]["annotations"]["kubernetes.io/config.mirror"], "1");
    let owner = &body["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&"Node".into(), &"uid-n".into(), &true.into())
    );
    assert!(body["metadata"].get("uid").is_none() && body.get("status").is_none());
}
