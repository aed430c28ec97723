//! Machines as directories.

use super::*;

#[test]
fn the_swap_limit_file_decides_whether_swap_can_be_limited() {
    let rows: [(&str, &[&str], bool); 9] = [
        ("1:memory:/\n", &[], false),
        ("1:memory:/a\n", &["memory/memory.limit_in_bytes"], false),
        ("1:memory:/a\n", &["memory/memory.memsw.limit_in_bytes"], true),
        ("0::/a/b\n", &["cgroup.controllers", "a/b/memory.swap.max"], true),
        ("0::/a/b\n", &["cgroup.controllers", "a/b/memory.max", "a/memory.swap.max"], false),
        ("0::/a/b\n", &["cgroup.controllers", "memory/memory.memsw.limit_in_bytes"], false),
        ("0::/\n", &["cgroup.controllers", "kubepods/memory.max"], false),
        ("0::/\n", &["cgroup.controllers", "kubepods/memory.swap.max"], true),
        ("", &["cgroup.controllers"], false),
    ];
    for (own, files, expected) in rows {
        let root = tempfile::tempdir().unwrap();
        let files = files.iter().map(|file| (format!("{TREE}/{file}"), "max\n"));
        for (file, text) in files.chain([("proc/self/cgroup".to_owned(), own)]) {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(can_limit_swap(root.path()), expected, "{own:?}");
    }
}

#[test]
fn the_swap_limit_is_found_beside_a_non_utf_8_path_of_another_hierarchy() {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join(TREE).join(OsStr::from_bytes(b"\xfe"));
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("memory.swap.max"), "max\n").unwrap();
    fs::write(root.path().join(TREE).join("cgroup.controllers"), "").unwrap();
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(root.path().join("proc/self/cgroup"), b"1:name=x:/\xff\n0::/\xfe\n").unwrap();
    assert!(can_limit_swap(root.path()));
}
