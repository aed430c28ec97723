//! Files are read back as written; other ids never become file names.

use super::*;
use crate::protocol::ProcessExit;

#[test]
fn a_written_state_is_read_back_unchanged() {
    let pod = tempfile::tempdir().expect("a folder");
    prepare(pod.path()).expect("prepared");
    let exit = ProcessExit { code: 137, signal: 9, ..ProcessExit::default() };
    let state = ContainerState { id: "a-1".into(), exit: Some(exit), ..Default::default() };
    write_state(pod.path(), &state).expect("written");
    let read = read_states(pod.path()).expect("read");
    assert_eq!(read.into_iter().map(|one| one.expect("whole")).collect::<Vec<_>>(), [state]);
    fs::write(dir(pod.path()).join("b.state"), [0xff; 9]).expect("written");
    let broken = read_states(pod.path()).expect("read").into_iter().filter(Result::is_err).count();
    assert_eq!(broken, 1);
    forget(pod.path(), "a-1");
    assert_eq!(read_states(pod.path()).expect("read").len(), 1);
}

#[test]
fn only_plain_ids_become_file_names() {
    for odd in ["", ".", "..", "a/b", ".hidden", "a b", "a\0", &"x".repeat(129), "ä"] {
        assert!(!is_plain(odd), "{odd:?}");
    }
    assert!(is_plain("0a1B-_.c"));
}
