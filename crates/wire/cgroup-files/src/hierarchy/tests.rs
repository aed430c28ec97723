//! Mount tables of the three kinds of machine.

use super::*;

const HYBRID: &str = "\
25 20 0:22 / /sys/fs/cgroup rw shared:1 - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
29 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

#[test]
fn a_hybrid_hierarchy_counts_as_version_1() {
    let machine = CgroupHierarchies::from_mounts(&HYBRID.into(), Path::new("/sys/fs/cgroup"))
        .expect("mounted");
    assert_eq!(machine.version(), CgroupVersion::V1);
    assert_eq!(machine.point(Controller::Cpu), machine.point(Controller::CpuAccounting));
    assert_eq!(machine.points().len(), 3);
    assert_eq!(machine.point(Controller::Pids), None);
    let text = b"4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/\n";
    assert_eq!(machine.path_in(text).as_deref(), Some("/a/b"));
}

#[test]
fn non_utf_8_mount_points_hide_no_hierarchy() {
    let invalid = b"24 20 0:21 / /mnt/\xff\xfe rw shared:1 - tmpfs tmpfs rw\n";
    let table = [invalid, HYBRID.as_bytes(), invalid].concat().into();
    let machine =
        CgroupHierarchies::from_mounts(&table, Path::new("/sys/fs/cgroup")).expect("mounted");
    let plain = CgroupHierarchies::from_mounts(&HYBRID.into(), Path::new("/sys/fs/cgroup"));
    assert_eq!(machine, plain.expect("mounted"));
    for (text, path) in [
        (&b"5:pids:/\xff\n4:memory:/a\n0::/\xfe\n"[..], Some("/a")),
        (b"4:memory:/\xff\n1:cpu,cpuacct:/c\n", Some("/c")),
        (b"4:memory:/\xff\n", None),
    ] {
        assert_eq!(machine.path_in(text).as_deref(), path, "{text:?}");
    }
}

#[test]
fn no_cgroup_mounts_is_an_error() {
    let error = CgroupHierarchies::from_mounts(&"".into(), Path::new("/sys/fs/cgroup"))
        .expect_err("nothing");
    assert!(error.to_string().contains("/sys/fs/cgroup"), "{error}");
}

#[test]
fn cgroup_paths_with_dot_segments_are_refused() {
    let machine = CgroupHierarchies::from_mounts(&HYBRID.into(), Path::new("/sys/fs/cgroup"))
        .expect("mounted");
    for invalid in ["", "a", "/a/../b", "/./a", "/a\nb"] {
        assert!(machine.group(invalid).is_err(), "{invalid:?}");
    }
    assert_eq!(machine.group("//a//b/").expect("a path").path(), "/a/b");
}
