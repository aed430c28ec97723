//! Files recorded from kernels, parsed.

use super::*;

#[test]
fn io_is_read_from_either_version() {
    let io = io_line_v2("8:16 rbytes=10 wbytes=20 rios=3 wios=4 dbytes=0 dios=0").expect("a line");
    let expected =
        DeviceIo { major: 8, minor: 16, read_bytes: 10, write_bytes: 20, reads: 3, writes: 4 };
    assert_eq!(io, expected);
    let bytes = "8:16 Read 10\n8:16 Write 20\n8:16 Total 30\nTotal 30\n";
    let counts = "8:16 Read 3\n8:16 Write 4\nTotal 7\n";
    assert_eq!(io_tables_v1(bytes, counts), [expected]);
    assert!(io_line_v2("nonsense").is_none());
}

#[test]
fn pressure_has_both_lines() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("cpu.pressure");
    std::fs::write(
        &path,
        "some avg10=1.50 avg60=0.25 avg300=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    )
    .expect("written");
    let read = pressure(&path).expect("read").expect("there");
    assert_eq!((read.some.average_10, read.some.total, read.full.total), (1.5, 77, 5));
    assert_eq!(pressure(&dir.path().join("absent")).expect("read"), None);
}

#[test]
fn the_working_set_excludes_inactive_file_pages() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("cgroup.controllers"), "memory").expect("written");
    std::fs::write(dir.path().join("memory.current"), "1000\n").expect("written");
    std::fs::write(dir.path().join("memory.max"), "max\n").expect("written");
    std::fs::write(dir.path().join("memory.stat"), "anon 600\ninactive_file 300\n")
        .expect("written");
    let group =
        crate::CgroupHierarchies::unified(dir.path()).expect("v2").group("/").expect("root");
    let stats = group.memory_stats().expect("read");
    assert_eq!((stats.working_set, stats.limit, stats.anonymous), (Some(700), None, Some(600)));
    assert_eq!(stats.swap, None);
}
