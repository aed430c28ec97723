//! The specification of a mount and the kernel's arguments agree.

use super::*;

#[test]
fn mount_flags_follow_the_specification() {
    let spec = MountSpec { read_only: true, no_exec: true, ..MountSpec::default() };
    let wanted = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    assert_eq!(attributes(&spec), wanted);
    let spec = MountSpec { recursive_read_only: true, ..MountSpec::default() };
    assert_eq!(attributes(&spec), MountAttrFlags::MOUNT_ATTR_RDONLY);
}

#[test]
fn invalid_mounts_are_refused_before_anything_is_mounted() {
    let mount_context = MountContext {
        user_namespace: None,
        group: None,
        own_cgroup_namespace: false,
        proc_options: &[],
        label: "",
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
        assert!(prepare(std::slice::from_ref(&spec), &mount_context).is_err(), "{spec:?}");
    }
}

#[test]
fn dots_in_a_path_do_not_hide_a_kernel_filesystem() {
    for (path, expected) in [
        ("/proc", "/proc"),
        ("//proc/./", "/proc"),
        ("/a/../proc", "/proc"),
        ("/../proc/sys/..", "/proc"),
        ("/proc/cpuinfo", "/proc/cpuinfo"),
        ("/", "/"),
    ] {
        assert_eq!(without_dots(path), expected);
    }
}

#[test]
fn labels_are_set_only_on_filesystems_of_the_container() {
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    let mount_context = MountContext {
        user_namespace: None,
        group: None,
        own_cgroup_namespace: false,
        proc_options: &[],
        label,
    };
    let context = format!("context={label}");
    for (kind, labelled) in [
        (MountKind::Tmpfs, true),
        (MountKind::Devpts, true),
        (MountKind::Dev, true),
        (MountKind::Proc, false),
        (MountKind::Sysfs, false),
        (MountKind::Mqueue, false),
    ] {
        let spec = MountSpec { kind: kind.into(), target: "/a".into(), ..MountSpec::default() };
        let (MountSource::Private { options, .. } | MountSource::Dev { options, .. }) =
            prepare_one(&spec, &mount_context).unwrap().source
        else {
            panic!("{kind:?}");
        };
        assert_eq!(options.contains(&context), labelled, "{kind:?}: {options:?}");
    }
    assert_eq!(overlay::quoted_label(label).unwrap(), format!(",context=\"{label}\""));
    assert_eq!(overlay::quoted_label("").unwrap(), "");
    assert!(overlay::quoted_label("a\",upperdir=\"/etc").is_err());
}
