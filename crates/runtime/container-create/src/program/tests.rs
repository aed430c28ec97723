//! Lookup of programs and home directories.

use super::*;

#[test]
fn a_program_is_looked_for_along_the_path() {
    let process = |name: &str, environment: &[&str]| ProcessSpec {
        arguments: vec![name.to_owned()],
        environment: environment.iter().map(|one| (*one).to_owned()).collect(),
        ..ProcessSpec::default()
    };
    let found = |process: &ProcessSpec| -> Vec<String> {
        let all = candidates(process).expect("candidates");
        all.into_iter().map(|one| one.into_string().expect("text")).collect()
    };
    assert_eq!(found(&process("/bin/sh", &[])), ["/bin/sh"]);
    assert_eq!(found(&process("sh", &["PATH=/a::/b"])), ["/a/sh", "./sh", "/b/sh"]);
    assert_eq!(found(&process("sh", &["PATH=/a", "PATH=/z"])), ["/z/sh"]);
    assert_eq!(found(&process("sh", &[])).len(), 6);
    assert!(candidates(&process("", &[])).is_err());
    assert!(candidates(&ProcessSpec::default()).is_err());
}

#[test]
fn home_dirs_are_read_from_malformed_password_files() {
    let passwd =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nx:x:7:7::relative:\nu:x:9:9::/home/u:/bin/sh\n";
    assert_eq!(home_dir_in(passwd, 0).as_deref(), Some("/root"));
    assert_eq!(home_dir_in(passwd, 9).as_deref(), Some("/home/u"));
    assert_eq!(home_dir_in(passwd, 7), None);
    assert_eq!(home_dir_in("", 0), None);
}

#[test]
fn a_password_file_that_is_a_pipe_or_huge_is_not_read() {
    let test_dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(test_dir.path().join("etc")).expect("made");
    let passwd = test_dir.path().join("etc/passwd");
    let dir = std::fs::File::open(test_dir.path()).expect("opened");
    let root = ContainerRoot::new(dir.into());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &passwd,
        FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .expect("a pipe");
    assert_eq!(home_dir_of(&root, 0), "/");
    std::fs::remove_file(&passwd).expect("removed");
    let file = std::fs::File::create(&passwd).expect("made");
    file.set_len(4 << 30).expect("sparse");
    assert_eq!(home_dir_of(&root, 0), "/");
    std::fs::write(&passwd, "root:x:0:0:root:/root:/bin/sh\n").expect("written");
    assert_eq!(home_dir_of(&root, 0), "/root");
}
