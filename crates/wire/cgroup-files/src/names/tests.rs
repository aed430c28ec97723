//! Tables of names by both conventions.

use super::*;

fn name(components: &[&str]) -> CgroupName {
    components
        .iter()
        .fold(CgroupName::root(), |name, component| name.child(component).expect("a word"))
}

#[test]
fn a_pod_is_named_by_both_drivers() {
    let pod = name(&["kubepods", "burstable", "pod12-34"]);
    assert_eq!(pod.path(CgroupManager::CgroupFs), "/kubepods/burstable/pod12-34");
    assert_eq!(
        pod.path(CgroupManager::Systemd),
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"
    );
    assert_eq!(CgroupName::root().path(CgroupManager::Systemd), "/");
    assert_eq!(CgroupName::root().path(CgroupManager::CgroupFs), "/");
}

#[test]
fn a_path_parses_back_to_its_name_components() {
    let pod = name(&["kubepods", "besteffort", "pod1"]);
    for driver in [CgroupManager::CgroupFs, CgroupManager::Systemd] {
        assert_eq!(CgroupName::from_path(&pod.path(driver), driver), Ok(pod.clone()));
    }
    assert!(CgroupName::from_path("/a/../b", CgroupManager::CgroupFs).is_err());
    assert!(CgroupName::from_path("/a.slice/x.service", CgroupManager::Systemd).is_err());
}

#[test]
fn invalid_slice_names_are_refused() {
    for invalid in ["", ".slice", "a", "a--b.slice", "-a.slice", "a-.slice", "a/b.slice"] {
        assert!(expand_slice(invalid).is_err(), "{invalid}");
    }
    assert_eq!(expand_slice("-.slice").as_deref(), Ok("/"));
    assert_eq!(expand_slice("a-b.slice").as_deref(), Ok("/a.slice/a-b.slice"));
}

#[test]
fn name_components_with_slashes_or_dots_are_refused() {
    for invalid in ["", ".", "..", "a/b", "a\0b", "a\nb"] {
        assert!(CgroupName::root().child(invalid).is_err(), "{invalid:?}");
    }
}

#[test]
fn a_container_lies_within_its_parent() {
    let plain = ContainerCgroup::within("/kubepods/pod1", "cri", "abc", CgroupManager::CgroupFs)
        .expect("ok");
    assert_eq!(plain.path, "/kubepods/pod1/abc");
    assert_eq!(plain.oci_path("cri", "abc"), "/kubepods/pod1/abc");
    let unit = ContainerCgroup::within(
        "/x.slice/kubepods-pod1.slice",
        "cri",
        "abc",
        CgroupManager::Systemd,
    )
    .expect("ok");
    assert_eq!(unit.path, "/kubepods.slice/kubepods-pod1.slice/cri-abc.scope");
    assert_eq!(unit.oci_path("cri", "abc"), "kubepods-pod1.slice:cri:abc");
    assert!(ContainerCgroup::within("/a", "cri", "../b", CgroupManager::CgroupFs).is_err());
}
