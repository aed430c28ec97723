//! A directory of files in place of /proc/sys.

use super::*;

fn kernel(values: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in values {
        let path = folder.path().join(name.replace('.', "/"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value).unwrap();
    }
    folder
}

const FOUND: &[(&str, &str)] = &[
    ("vm.overcommit_memory", "0\n"),
    ("vm.panic_on_oom", "0\n"),
    ("kernel.panic", "-1\n"),
    ("kernel.panic_on_oops", "1\n"),
    ("kernel.keys.root_maxkeys", "200\n"),
    ("kernel.keys.root_maxbytes", "25000000\n"),
];

fn read(folder: &tempfile::TempDir, path: &str) -> String {
    std::fs::read_to_string(folder.path().join(path)).unwrap().trim().to_owned()
}

#[test]
fn what_differs_is_set_and_nothing_else() {
    let folder = kernel(FOUND);
    let (set, wrong) = set_up(folder.path(), false);
    let expected = [
        ("vm.overcommit_memory", 1),
        ("kernel.panic", 10),
        ("kernel.keys.root_maxkeys", 1_000_000),
    ];
    assert_eq!(set, expected);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(read(&folder, "vm/overcommit_memory"), "1");
    assert_eq!(read(&folder, "kernel/keys/root_maxkeys"), "1000000");
    assert_eq!(set_up(folder.path(), true).1.len(), 0, "all is as it should be");
}

#[test]
fn protected_values_are_told_and_left() {
    let folder = kernel(FOUND);
    let (set, wrong) = set_up(folder.path(), true);
    assert!(set.is_empty());
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let expected = [
        "invalid kernel flag: vm.overcommit_memory, expected value: 1, actual value: 0",
        "invalid kernel flag: kernel.panic, expected value: 10, actual value: -1",
        "invalid kernel flag: kernel.keys.root_maxkeys, expected value: 1000000, actual value: 200",
    ];
    assert_eq!(told, expected);
    assert_eq!(read(&folder, "vm/overcommit_memory"), "0");
}

#[test]
fn what_cannot_be_read_or_set_is_told_with_its_path() {
    let folder = kernel(&FOUND[1..]);
    std::fs::write(folder.path().join("kernel/panic"), "soon").unwrap();
    std::fs::remove_file(folder.path().join("kernel/keys/root_maxkeys")).unwrap();
    // A directory in its place can neither be read nor written.
    std::fs::create_dir(folder.path().join("kernel/keys/root_maxkeys")).unwrap();
    let (set, wrong) = set_up(folder.path(), false);
    assert!(set.is_empty());
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    for (at, words) in
        ["vm/overcommit_memory", "kernel/panic: expected a whole number", "root_maxkeys"]
            .iter()
            .enumerate()
    {
        assert!(told[at].contains(words), "{told:?}");
    }
}
