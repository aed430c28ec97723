//! Volume work on foreign file systems runs in a process: this very binary under a name that no
//! help shows.

use host_volumes::{HostVolumes, StepProgram};
use ports::pod_host::{HostVolume, VolumeDriver as _, VolumeOwnership};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const STEP: &str = "host-volume-step";

#[tokio::test]
async fn the_binary_does_a_step_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let program = StepProgram { program: PathBuf::from(KEELSON), arguments: vec![STEP.into()] };
    let volumes = HostVolumes::new(dir.path(), Some(program));
    let path = dir.path().join("made");
    let volume = HostVolume::HostPath {
        name: "data".to_owned(),
        path: path.to_str().unwrap().to_owned(),
        kind: "DirectoryOrCreate".to_owned(),
    };
    let ready = volumes.set_up("uid-1", &volume, &VolumeOwnership::default()).await.unwrap();
    assert_eq!(ready, path);
    assert!(path.is_dir(), "made by the other process");
    let missing = HostVolume::HostPath {
        name: "data".to_owned(),
        path: dir.path().join("none").to_str().unwrap().to_owned(),
        kind: "File".to_owned(),
    };
    let refused = volumes.set_up("uid-1", &missing, &VolumeOwnership::default()).await;
    assert!(refused.as_ref().is_err_and(|why| why.to_string().contains("none")), "{refused:?}");
}

#[test]
fn what_is_no_step_is_answered_too_and_no_help_names_it() {
    let mut child = Command::new(KEELSON)
        .arg(STEP)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"not a step").unwrap();
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success() && message.contains("not a volume step"), "{message}");
    let help = Command::new(KEELSON).arg("--help").output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains(STEP));
}
