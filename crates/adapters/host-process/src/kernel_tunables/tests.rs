//! A directory of files in place of /proc/sys.

use super::*;

fn kernel(values: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in values {
        let path = dir.path().join(name.replace('.', "/"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value).unwrap();
    }
    dir
}

const FOUND: &[(&str, &str)] = &[
    ("vm.overcommit_memory", "0\n"),
    ("vm.panic_on_oom", "0\n"),
    ("kernel.panic", "-1\n"),
    ("kernel.panic_on_oops", "1\n"),
    ("kernel.keys.root_maxkeys", "200\n"),
    ("kernel.keys.root_maxbytes", "25000000\n"),
];

fn read(dir: &tempfile::TempDir, path: &str) -> String {
    std::fs::read_to_string(dir.path().join(path)).unwrap().trim().to_owned()
}

#[test]
fn only_differing_kernel_values_are_set() {
    let dir = kernel(FOUND);
    let (set, wrong) = set_up(dir.path(), false);
    let expected = [
        ("vm.overcommit_memory", 1),
        ("kernel.panic", 10),
        ("kernel.keys.root_maxkeys", 1_000_000),
    ];
    assert_eq!(set, expected);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(read(&dir, "vm/overcommit_memory"), "1");
    assert_eq!(read(&dir, "kernel/keys/root_maxkeys"), "1000000");
    assert_eq!(set_up(dir.path(), true).1.len(), 0, "all is as it should be");
}

#[test]
fn protected_kernel_values_are_reported_and_not_changed() {
    let dir = kernel(FOUND);
    let (set, wrong) = set_up(dir.path(), true);
    assert!(set.is_empty());
    let messages: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let expected = [
        "invalid kernel flag: vm.overcommit_memory, expected value: 1, actual value: 0",
        "invalid kernel flag: kernel.panic, expected value: 10, actual value: -1",
        "invalid kernel flag: kernel.keys.root_maxkeys, expected value: 1000000, actual value: 200",
    ];
    assert_eq!(messages, expected);
    assert_eq!(read(&dir, "vm/overcommit_memory"), "0");
}

#[test]
fn an_unreadable_or_unsettable_value_is_an_error_with_its_path() {
    let dir = kernel(&FOUND[1..]);
    std::fs::write(dir.path().join("kernel/panic"), "soon").unwrap();
    std::fs::remove_file(dir.path().join("kernel/keys/root_maxkeys")).unwrap();
    // A directory in its place can neither be read nor written.
    std::fs::create_dir(dir.path().join("kernel/keys/root_maxkeys")).unwrap();
    let (set, wrong) = set_up(dir.path(), false);
    assert!(set.is_empty());
    let messages: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    for (at, expected) in
        ["vm/overcommit_memory", "kernel/panic: expected a whole number", "root_maxkeys"]
            .iter()
            .enumerate()
    {
        assert!(messages[at].contains(expected), "{messages:?}");
    }
}
