//! A directory of plain files stands in for the kernel.

use super::*;
use crate::hierarchy::Hierarchy;
use std::fs;

fn unified(files: &[&str]) -> (tempfile::TempDir, Cgroup) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("cgroup.controllers"), "cpu memory pids cpuset").expect("written");
    let group = Hierarchy::unified(folder.path()).expect("v2").group("/a").expect("a path");
    fs::create_dir(folder.path().join("a")).expect("made");
    for file in files {
        fs::write(folder.path().join("a").join(file), "").expect("written");
    }
    (folder, group)
}

fn text(folder: &tempfile::TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join("a").join(file)).expect("read")
}

#[test]
fn shares_become_the_agreed_weights() {
    for (shares, weight) in
        [(2, 1), (3, 2), (102, 17), (512, 59), (1024, 100), (2048, 174), (262_144, 10_000)]
    {
        assert_eq!(weight_of_shares(shares), weight, "{shares}");
    }
}

#[test]
fn version_2_gets_its_own_words() {
    let files =
        ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "pids.max", "memory.high"];
    let (folder, group) = unified(&files);
    let limits = Limits {
        cpu_shares: Some(1024),
        cpu_quota: Some(50_000),
        memory: Some(1 << 20),
        memory_and_swap: Some(3 << 20),
        pids: Some(-1),
        unified: [("memory.high".to_owned(), "99".to_owned())].into(),
        ..Limits::default()
    };
    group.apply(&limits).expect("applied");
    for (file, value) in [
        ("cpu.weight", "100"),
        ("cpu.max", "50000 100000"),
        ("memory.max", "1048576"),
        ("memory.swap.max", "2097152"),
        ("pids.max", "max"),
        ("memory.high", "99"),
    ] {
        assert_eq!(text(&folder, file), value, "{file}");
    }
}

#[test]
fn what_is_not_set_is_not_touched_and_what_cannot_be_set_is_told() {
    let (_folder, group) = unified(&[]);
    group.apply(&Limits::default()).expect("nothing to do");
    let error = group.apply(&Limits { pids: Some(5), ..Limits::default() }).expect_err("no file");
    assert!(
        error.to_string().contains("pids.max") && error.to_string().contains("\"5\""),
        "{error}"
    );
    for odd in ["../x.y", "a/b.c", "plain", ""] {
        let unified = [(odd.to_owned(), "1".to_owned())].into();
        assert!(group.apply(&Limits { unified, ..Limits::default() }).is_err(), "{odd:?}");
    }
}

#[test]
fn what_is_in_force_is_read_back() {
    let (folder, group) = unified(&["cpu.max", "memory.max"]);
    let set = |file: &str, value: &str| {
        fs::write(folder.path().join("a").join(file), value).expect("written");
    };
    set("cpu.max", "max 100000\n");
    set("memory.max", "max\n");
    assert_eq!(group.limits_now().expect("read"), Limits::default());
    set("cpu.max", "5000 20000\n");
    set("memory.max", "4096\n");
    let wanted = Limits {
        cpu_quota: Some(5000),
        cpu_period: Some(20_000),
        memory: Some(4096),
        ..Limits::default()
    };
    assert_eq!(group.limits_now().expect("read"), wanted);
    assert_eq!("9223372036854771712".parse::<i64>().map(|most| most < VERSION_1_OPEN), Ok(false));
}

fn huge(pages: &[(&str, u64)]) -> Limits {
    let limit = |(size, bytes): &(&str, u64)| HugePageLimit {
        page_size: (*size).to_owned(),
        bytes: *bytes,
    };
    Limits { huge_pages: pages.iter().map(limit).collect(), ..Limits::default() }
}

/// `rsvd` exists only on kernels that account reservations separately.
#[test]
fn huge_pages_are_limited_in_the_files_of_either_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let point = folder.path().display();
    fs::write(folder.path().join("cgroup.controllers"), "cpu hugetlb").expect("written");
    let mounted = format!("26 25 0:23 / {point} rw - cgroup cgroup rw,hugetlb\n");
    let machines = [
        (Hierarchy::unified(folder.path()).expect("v2"), "max"),
        (Hierarchy::from_mounts(&mounted.into(), folder.path()).expect("v1"), "limit_in_bytes"),
    ];
    fs::create_dir(folder.path().join("a")).expect("made");
    for (machine, word) in machines {
        let names = [
            format!("hugetlb.2MB.{word}"),
            format!("hugetlb.2MB.rsvd.{word}"),
            format!("hugetlb.1GB.{word}"),
        ];
        for name in &names {
            fs::write(folder.path().join("a").join(name), "").expect("written");
        }
        let group = machine.group("/a").expect("a path");
        group.apply(&huge(&[("2MB", 4 << 20), ("1GB", 0)])).expect("applied");
        for (name, value) in names.iter().zip(["4194304", "4194304", "0"]) {
            assert_eq!(text(&folder, name), value, "{name}");
        }
        assert!(!folder.path().join(format!("a/hugetlb.1GB.rsvd.{word}")).exists());
        let error = group.apply(&huge(&[("3MB", 1)])).expect_err("a size that is not there");
        assert!(error.to_string().contains("hugetlb.3MB"), "{error}");
    }
}

#[test]
fn huge_pages_without_their_controller_are_told() {
    let machine = Hierarchy::from_mounts(
        &"26 25 0:23 / /nowhere rw - cgroup cgroup rw,memory\n".into(),
        Path::new("/nowhere"),
    );
    let group = machine.expect("v1").group("/a").expect("a path");
    let error = group.apply(&huge(&[("2MB", 1)])).expect_err("no controller");
    assert!(error.to_string().contains("hugetlb"), "{error}");
}
