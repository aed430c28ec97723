//! Test names from closures, and the cgroup paths on v1, hybrid and v2 machines.

use std::path::Path;

use super::cgroups::parse;
use super::test_name;

#[test]
fn test_names_are_libtests_names() {
    let name = |closure| test_name(closure).ok();
    assert_eq!(name("parts::starts::{{closure}}").as_deref(), Some("starts"));
    assert_eq!(name("parts::deep::starts::{{closure}}").as_deref(), Some("deep::starts"));
    assert_eq!(name("parts::starts"), None);
    assert_eq!(name("starts::{{closure}}"), None);
    assert_eq!(name("parts::starts::{{closure}}::{{closure}}"), None);
}

/// The name that libtest gave this thread.
#[test]
fn a_closure_here_has_this_tests_name() {
    fn name_of<F: Fn()>(_: &F) -> &'static str {
        std::any::type_name::<F>()
    }
    let closure = || {};
    let found = test_name(name_of(&closure)).expect("a closure in a test");
    assert_eq!(Some(found.as_str()), std::thread::current().name());
}

const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn own_cgroups_are_found_in_every_hierarchy() {
    let own = "9:name=systemd:/\n4:memory:/jobs/a\n1:cpu,cpuacct:/b\n5:devices:/\n0::/c\n";
    let found = parse(own, &HYBRID.into());
    let place = |controllers: &str| {
        found.iter().find(|one| one.controllers == controllers).map(|one| one.own.as_path())
    };
    assert_eq!(place("memory"), Some(Path::new("/sys/fs/cgroup/memory/jobs/a")));
    assert_eq!(place("cpu,cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/b")));
    assert_eq!(place("name=systemd"), Some(Path::new("/sys/fs/cgroup/systemd/")));
    assert_eq!(place(""), Some(Path::new("/sys/fs/cgroup/unified/c")));
    assert_eq!(place("devices"), None, "not mounted");
}

#[test]
fn a_mount_of_part_of_a_hierarchy_resolves_to_the_full_path() {
    let mounts = "41 31 0:38 /machine /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let found = parse("0::/machine/unit\n", &mounts.into());
    assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/unit"));
}
