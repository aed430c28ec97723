//! Which container a cgroup belongs to.

use super::is_cgroup_of;

#[test]
fn a_cgroup_belongs_to_its_container_under_either_driver_and_to_no_other() {
    let id = "3f2a9c";
    for group in ["3f2a9c", "cri-containerd-3f2a9c.scope", "crio-3f2a9c.scope"] {
        assert!(is_cgroup_of(group, id), "{group}");
    }
    for group in ["3f2a9c1", "cri-containerd-13f2a9c.scope", "", "scope"] {
        assert!(!is_cgroup_of(group, id), "{group}");
    }
    assert!(!is_cgroup_of("anything", ""), "no id is nobody's");
}
