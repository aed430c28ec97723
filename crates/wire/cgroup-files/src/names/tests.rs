//! Tables of names by both conventions.

use super::*;

fn name(words: &[&str]) -> GroupName {
    words.iter().fold(GroupName::root(), |name, word| name.child(word).expect("a word"))
}

#[test]
fn a_pod_is_named_by_both_drivers() {
    let pod = name(&["kubepods", "burstable", "pod12-34"]);
    assert_eq!(pod.path(Driver::CgroupFs), "/kubepods/burstable/pod12-34");
    assert_eq!(
        pod.path(Driver::Systemd),
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"
    );
    assert_eq!(GroupName::root().path(Driver::Systemd), "/");
    assert_eq!(GroupName::root().path(Driver::CgroupFs), "/");
}

#[test]
fn paths_lead_back_to_words() {
    let pod = name(&["kubepods", "besteffort", "pod1"]);
    for driver in [Driver::CgroupFs, Driver::Systemd] {
        assert_eq!(GroupName::from_path(&pod.path(driver), driver), Ok(pod.clone()));
    }
    assert!(GroupName::from_path("/a/../b", Driver::CgroupFs).is_err());
    assert!(GroupName::from_path("/a.slice/x.service", Driver::Systemd).is_err());
}

#[test]
fn odd_slices_are_refused() {
    for odd in ["", ".slice", "a", "a--b.slice", "-a.slice", "a-.slice", "a/b.slice"] {
        assert!(expand_slice(odd).is_err(), "{odd}");
    }
    assert_eq!(expand_slice("-.slice").as_deref(), Ok("/"));
    assert_eq!(expand_slice("a-b.slice").as_deref(), Ok("/a.slice/a-b.slice"));
}

#[test]
fn words_that_would_lead_elsewhere_are_refused() {
    for odd in ["", ".", "..", "a/b", "a\0b", "a\nb"] {
        assert!(GroupName::root().child(odd).is_err(), "{odd:?}");
    }
}

#[test]
fn a_container_lies_within_its_parent() {
    let plain =
        ContainerGroup::within("/kubepods/pod1", "cri", "abc", Driver::CgroupFs).expect("ok");
    assert_eq!(plain.path, "/kubepods/pod1/abc");
    assert_eq!(plain.oci_path("cri", "abc"), "/kubepods/pod1/abc");
    let unit =
        ContainerGroup::within("/x.slice/kubepods-pod1.slice", "cri", "abc", Driver::Systemd)
            .expect("ok");
    assert_eq!(unit.path, "/kubepods.slice/kubepods-pod1.slice/cri-abc.scope");
    assert_eq!(unit.oci_path("cri", "abc"), "kubepods-pod1.slice:cri:abc");
    assert!(ContainerGroup::within("/a", "cri", "../b", Driver::CgroupFs).is_err());
}
