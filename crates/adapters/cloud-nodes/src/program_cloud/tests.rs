//! A cloud behind a program: answers, errors, hangs, floods.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A shell script.
fn program(dir: &tempfile::TempDir, lines: &str) -> PathBuf {
    let path = dir.path().join("cloud");
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    path
}

fn node() -> CloudNodeName {
    CloudNodeName { name: "a".into(), provider_id: "rack://1".into() }
}

async fn answer(lines: &str) -> Result<Option<CloudInstance>, CloudError> {
    let dir = tempfile::tempdir().expect("folder");
    ProgramCloud::new(&program(&dir, lines)).instance(&node()).await
}

#[tokio::test]
async fn the_program_is_run_and_its_answer_used() {
    let echo = r#"read q; case "$1 $q" in machine*'"name":"a"'*rack://1*) ;; *) echo "$q" >&2; exit 9;; esac
echo '{"apiVersion":"keelson/v1","kind":"Machine","exists":true,"machine":{"name":"a","state":"Running"}}'"#;
    let machine = answer(echo).await.expect("an answer").expect("a machine");
    assert_eq!(machine.node, "a");
    let no = answer(r#"echo '{"apiVersion":"keelson/v1","kind":"Machine","exists":false}'"#).await;
    assert_eq!(no, Ok(None));
    let dir = tempfile::tempdir().expect("folder");
    let list =
        r#"echo '{"apiVersion":"keelson/v1","kind":"MachineList","machines":[{"name":"a"}]}'"#;
    let cloud = ProgramCloud::new(&program(&dir, list));
    assert_eq!(cloud.instances().await.expect("list").len(), 1);
}

#[tokio::test]
async fn unexpected_program_output_is_an_error_with_its_reason() {
    for (lines, expected) in [
        ("echo 'no credentials' >&2; exit 3", "machine: exit status: 3: no credentials"),
        ("true", "the file is empty"),
        ("echo nonsense", "apiVersion: expected keelson/v1"),
        (
            r#"echo '{"apiVersion":"keelson/v1","kind":"Machine","exists":true,"machine":{"name":"b"}}'"#,
            "it answered about \"b\"",
        ),
        ("head -c 5000000 /dev/zero", "more than"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let error = answer(lines).await.expect_err(lines);
        assert!(error.cause.contains(expected), "{lines}: {error}");
    }
    let gone = ProgramCloud::new(Path::new("/nowhere/cloud")).instances().await;
    assert!(gone.is_err_and(|error| error.cause.contains("cannot be run")));
}

#[tokio::test]
async fn a_program_past_its_deadline_is_killed() {
    let dir = tempfile::tempdir().expect("folder");
    let path = program(&dir, "sleep 1000 & echo $! > \"$(dirname \"$0\")/pid\"; wait");
    let cloud = ProgramCloud::with_deadline(&path, Duration::from_secs(5));
    let error = cloud.instance(&node()).await.expect_err("late");
    assert!(error.cause.contains("no answer to machine within 5s"), "{error}");
    let pid = std::fs::read_to_string(dir.path().join("pid")).expect("it ran");
    let process = PathBuf::from(format!("/proc/{}/comm", pid.trim()));
    let ended = async {
        // A process that was killed may stay a while as a zombie, without a command line.
        while std::fs::read(process.with_file_name("cmdline")).is_ok_and(|it| !it.is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it is ended");
}
