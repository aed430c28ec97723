//! A directory of plain files stands in for the kernel.

use super::*;
use crate::hierarchy::CgroupHierarchies;
use std::fs;

fn unified(files: &[&str]) -> (tempfile::TempDir, Cgroup) {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids cpuset").expect("written");
    let group = CgroupHierarchies::unified(dir.path()).expect("v2").group("/a").expect("a path");
    fs::create_dir(dir.path().join("a")).expect("made");
    for file in files {
        fs::write(dir.path().join("a").join(file), "").expect("written");
    }
    (dir, group)
}

fn text(dir: &tempfile::TempDir, file: &str) -> String {
    fs::read_to_string(dir.path().join("a").join(file)).expect("read")
}

#[test]
fn cpu_shares_convert_to_the_runtimes_weights() {
    for (shares, weight) in
        [(2, 1), (3, 2), (102, 17), (512, 59), (1024, 100), (2048, 174), (262_144, 10_000)]
    {
        assert_eq!(weight_of_shares(shares), weight, "{shares}");
    }
}

#[test]
fn version_2_limits_use_the_version_2_files_and_values() {
    let files =
        ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "pids.max", "memory.high"];
    let (dir, group) = unified(&files);
    let limits = CgroupResources {
        cpu_shares: Some(1024),
        cpu_quota: Some(50_000),
        memory: Some(1 << 20),
        memory_and_swap: Some(3 << 20),
        pids: Some(-1),
        unified: [("memory.high".to_owned(), "99".to_owned())].into(),
        ..CgroupResources::default()
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
        assert_eq!(text(&dir, file), value, "{file}");
    }
}

#[test]
fn unset_limits_are_not_written_and_unsupported_ones_are_errors() {
    let (_dir, group) = unified(&[]);
    group.apply(&CgroupResources::default()).expect("nothing to do");
    let error = group
        .apply(&CgroupResources { pids: Some(5), ..CgroupResources::default() })
        .expect_err("no file");
    assert!(
        error.to_string().contains("pids.max") && error.to_string().contains("\"5\""),
        "{error}"
    );
    for invalid in ["../x.y", "a/b.c", "plain", ""] {
        let unified = [(invalid.to_owned(), "1".to_owned())].into();
        assert!(
            group.apply(&CgroupResources { unified, ..CgroupResources::default() }).is_err(),
            "{invalid:?}"
        );
    }
}

#[test]
fn applied_limits_are_read_back() {
    let (dir, group) = unified(&["cpu.max", "memory.max"]);
    let set = |file: &str, value: &str| {
        fs::write(dir.path().join("a").join(file), value).expect("written");
    };
    set("cpu.max", "max 100000\n");
    set("memory.max", "max\n");
    assert_eq!(group.current_limits().expect("read"), CgroupResources::default());
    set("cpu.max", "5000 20000\n");
    set("memory.max", "4096\n");
    let expected = CgroupResources {
        cpu_quota: Some(5000),
        cpu_period: Some(20_000),
        memory: Some(4096),
        ..CgroupResources::default()
    };
    assert_eq!(group.current_limits().expect("read"), expected);
    assert_eq!("9223372036854771712".parse::<i64>().map(|most| most < V1_UNLIMITED), Ok(false));
}

fn huge(pages: &[(&str, u64)]) -> CgroupResources {
    let limit = |(size, bytes): &(&str, u64)| HugePageLimit {
        page_size: (*size).to_owned(),
        bytes: *bytes,
    };
    CgroupResources { huge_pages: pages.iter().map(limit).collect(), ..CgroupResources::default() }
}

/// `rsvd` exists only on kernels that account reservations separately.
#[test]
fn huge_pages_are_limited_in_the_files_of_either_version() {
    let dir = tempfile::tempdir().expect("a folder");
    let point = dir.path().display();
    fs::write(dir.path().join("cgroup.controllers"), "cpu hugetlb").expect("written");
    let mounted = format!("26 25 0:23 / {point} rw - cgroup cgroup rw,hugetlb\n");
    let machines = [
        (CgroupHierarchies::unified(dir.path()).expect("v2"), "max"),
        (
            CgroupHierarchies::from_mounts(&mounted.into(), dir.path()).expect("v1"),
            "limit_in_bytes",
        ),
    ];
    fs::create_dir(dir.path().join("a")).expect("made");
    for (machine, word) in machines {
        let names = [
            format!("hugetlb.2MB.{word}"),
            format!("hugetlb.2MB.rsvd.{word}"),
            format!("hugetlb.1GB.{word}"),
        ];
        for name in &names {
            fs::write(dir.path().join("a").join(name), "").expect("written");
        }
        let group = machine.group("/a").expect("a path");
        group.apply(&huge(&[("2MB", 4 << 20), ("1GB", 0)])).expect("applied");
        for (name, value) in names.iter().zip(["4194304", "4194304", "0"]) {
            assert_eq!(text(&dir, name), value, "{name}");
        }
        assert!(!dir.path().join(format!("a/hugetlb.1GB.rsvd.{word}")).exists());
        let error = group.apply(&huge(&[("3MB", 1)])).expect_err("a size that is not there");
        assert!(error.to_string().contains("hugetlb.3MB"), "{error}");
    }
}

#[test]
fn a_huge_page_limit_without_the_controller_is_an_error() {
    let machine = CgroupHierarchies::from_mounts(
        &"26 25 0:23 / /nowhere rw - cgroup cgroup rw,memory\n".into(),
        Path::new("/nowhere"),
    );
    let group = machine.expect("v1").group("/a").expect("a path");
    let error = group.apply(&huge(&[("2MB", 1)])).expect_err("no controller");
    assert!(error.to_string().contains("hugetlb"), "{error}");
}
