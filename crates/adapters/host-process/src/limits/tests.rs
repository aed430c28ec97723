//! Limits of this test process, and a directory in place of /proc/self.

use super::*;

#[test]
fn the_score_is_written_where_the_kernel_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("oom_score_adj");
    std::fs::write(&file, "0\n").unwrap();
    set_oom_score_adj(dir.path(), -999).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "-999");
}

#[test]
fn an_equal_score_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("oom_score_adj");
    std::fs::write(&file, "-999\n").unwrap();
    set_oom_score_adj(dir.path(), -999).unwrap();
    // The kernel's newline is still there: the file was not written.
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "-999\n");
}

#[test]
fn a_refused_score_names_file_value_and_capability() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("oom_score_adj")).unwrap();
    let text = set_oom_score_adj(dir.path(), -999).unwrap_err().to_string();
    for part in ["oom_score_adj", "-999", "CAP_SYS_RESOURCE"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_open_file_limit_is_raised_as_far_as_allowed() {
    let before = getrlimit(Resource::Nofile);
    // Both cases in one test: the limit belongs to the whole test process.
    let hard = before.maximum.unwrap_or(1 << 20);
    set_open_files(hard).unwrap();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
    // Above what any kernel allows (fs.nr_open), with or without capabilities.
    let error = set_open_files(u64::MAX - 1).unwrap_err().to_string();
    assert!(error.contains(&hard.to_string()), "{error}");
    assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
}
