//! Order, precedence, and errors.

use super::*;

fn mount(target: &str) -> v1::Mount {
    v1::Mount { container_path: target.into(), host_path: "/tmp".into(), ..Default::default() }
}

fn targets(asked: &[&str]) -> Vec<String> {
    let asked = asked.iter().map(|target| super::asked(&mount(target), Path::new("/tmp")).unwrap());
    arranged(usual(false), asked.collect()).into_iter().map(|mount| mount.target).collect()
}

#[test]
fn shorter_paths_come_first_and_asked_ones_win() {
    let usual = ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup"];
    assert_eq!(targets(&[]), usual);
    let all = targets(&["/a/b/c", "/a", "/a/b"]);
    assert_eq!(all[6..], ["/a", "/a/b", "/a/b/c"]);
    assert_eq!(targets(&["/proc/"])[..2], ["/dev", "/dev/pts"]);
    let own_dev = targets(&["/dev"]);
    assert_eq!(own_dev, ["/proc", "/sys", "/sys/fs/cgroup", "/dev"]);
}

#[test]
fn kernel_file_systems_are_read_only_unless_privileged() {
    let read_only = |privileged| -> Vec<String> {
        usual(privileged).into_iter().filter(|m| m.read_only).map(|m| m.target).collect()
    };
    assert_eq!(read_only(false), ["/sys", "/sys/fs/cgroup"]);
    assert!(read_only(true).is_empty());
}

#[test]
fn contradictory_mount_options_are_refused() {
    let source = Path::new("/tmp");
    let recursive = v1::Mount { recursive_read_only: true, ..mount("/a") };
    assert!(asked(&recursive, source).unwrap_err().text.contains("conflicts with RW"));
    let both = v1::Mount { readonly: true, propagation: 2, ..recursive };
    assert!(asked(&both, source).unwrap_err().text.contains("needs private propagation"));
    assert!(asked(&mount("relative"), source).is_err());
    let table = MountTable::default();
    let relative = v1::Mount { host_path: "tmp".into(), ..mount("/a") };
    assert!(prepare_source(&relative, &table).is_err());
}

#[test]
fn missing_sources_become_dirs_and_links_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let table = MountTable::default();
    let host = |name: &str| v1::Mount {
        host_path: dir.path().join(name).display().to_string(),
        ..mount("/a")
    };
    assert!(prepare_source(&host("x/y"), &table).unwrap().is_dir());
    std::os::unix::fs::symlink("x", dir.path().join("link")).unwrap();
    assert!(prepare_source(&host("link"), &table).unwrap().ends_with("x"));
    let spec = of_caller(&host("link"), &table).unwrap();
    assert!(spec.source.ends_with("/x") && spec.no_symlinks_in_source, "{spec:?}");
    let shared = v1::Mount { propagation: 2, ..host("x") };
    let failure = prepare_source(&shared, &table).unwrap_err();
    assert!(failure.text.contains("not a shared mount"), "{failure}");
}

#[test]
fn paths_are_cleaned() {
    for (path, expected) in
        [("/a//b/./c", "/a/b/c"), ("/a/../b", "/b"), ("/", "/"), ("/..", "/"), ("a/", "/a")]
    {
        assert_eq!(clean(path), expected);
    }
}
