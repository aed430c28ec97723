//! What is said of a mount is what the kernel is told.

use super::*;

#[test]
fn flags_are_those_of_the_specification() {
    let spec = MountSpec { read_only: true, no_exec: true, ..MountSpec::default() };
    let wanted = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    assert_eq!(attributes(&spec), wanted);
    let spec = MountSpec { recursive_read_only: true, ..MountSpec::default() };
    assert_eq!(attributes(&spec), MountAttrFlags::MOUNT_ATTR_RDONLY);
}

#[test]
fn odd_mounts_are_refused_before_anything_is_done() {
    let around = Surroundings {
        user_namespace: None,
        group: None,
        own_cgroup_namespace: false,
        proc_options: &[],
    };
    for spec in [
        MountSpec { kind: 99, target: "/a".into(), ..MountSpec::default() },
        MountSpec { kind: MountKind::Tmpfs as i32, target: "a".into(), ..MountSpec::default() },
        MountSpec { source: "relative".into(), target: "/a".into(), ..MountSpec::default() },
        MountSpec { source: "/absent/path".into(), target: "/a".into(), ..MountSpec::default() },
        MountSpec {
            source: "/".into(),
            target: "/a".into(),
            map_ids: true,
            ..MountSpec::default()
        },
    ] {
        assert!(prepare(std::slice::from_ref(&spec), &around).is_err(), "{spec:?}");
    }
}
