//! Shell scripts as plugins: good ones, and ones that fail in every way.

use super::*;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

struct Bed {
    folder: tempfile::TempDir,
    programs: BTreeMap<String, Invocation>,
}

impl Bed {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), programs: BTreeMap::new() }
    }

    fn with(mut self, name: &str, script: &str, invocation: Invocation) -> Self {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.programs.insert(name.to_owned(), invocation);
        self
    }

    async fn ask(&self, name: &str) -> Result<String, String> {
        self.ask_within(name, DEADLINE).await
    }

    async fn ask_within(&self, name: &str, deadline: Duration) -> Result<String, String> {
        let folder = ProgramFolder::new(self.folder.path(), self.programs.clone());
        let folder = folder.with_deadline(deadline);
        let asked = CredentialPrograms::ask(&folder, name, b"{\"image\":\"i\"}\n".to_vec()).await;
        match asked {
            Ok(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[tokio::test]
async fn a_program_gets_its_request_arguments_and_variables() {
    let invocation = Invocation {
        arguments: vec!["--one".to_owned(), "two words".to_owned()],
        environment: vec![
            ("KEY".to_owned(), "a value".to_owned()),
            ("HOME".to_owned(), "/over".to_owned()),
        ],
    };
    let script = r#"read line; echo "$line|$1|$2|$KEY|$HOME|${PATH:+path}""#;
    let bed = Bed::new().with("p", script, invocation.clone());
    let answer = bed.ask("p").await.unwrap();
    assert_eq!(answer, "{\"image\":\"i\"}|--one|two words|a value|/over|path\n");
    let shown = format!("{invocation:?}");
    assert!(shown.contains("KEY") && !shown.contains("value") && !shown.contains("words"));
}

#[tokio::test]
async fn one_that_does_not_read_its_request_may_answer() {
    let bed = Bed::new().with("p", "exec <&-; echo done; exit 0", Invocation::default());
    assert_eq!(bed.ask("p").await.as_deref(), Ok("done\n"));
}

#[tokio::test]
async fn what_goes_wrong_is_told_and_nothing_that_was_written() {
    let many = format!("head -c {} /dev/zero | tr '\\0' s", LONGEST_ANSWER + 1);
    let bed = Bed::new()
        .with("fails", "echo secret; echo secret >&2; exit 3", Invocation::default())
        .with("dies", "echo secret >&2; kill -9 $$", Invocation::default())
        .with("long", &many, Invocation::default())
        .with("loud", "head -c 300000 /dev/zero >&2; echo ok", Invocation::default())
        .with("plain", "", Invocation::default());
    let plain = bed.folder.path().join("plain");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (name, words) in [
        (
            "fails",
            &["exit status: 3", "the 7 bytes", "Run it by hand: echo '{\"image\":\"i\"}'"][..],
        ),
        ("dies", &["signal: 9"][..]),
        ("long", &["more than 1048576 bytes"][..]),
        ("plain", &["cannot run", "plain"][..]),
        ("unknown", &["no such program is configured"][..]),
    ] {
        let why = bed.ask(name).await.unwrap_err();
        assert!(why.starts_with(&format!("credential provider {name}: ")), "{why}");
        for word in words {
            assert!(why.contains(word), "{why} has {word}");
        }
        assert!(!why.contains("secret") && !why.contains("ssss"), "{why}");
    }
    assert_eq!(bed.ask("loud").await.as_deref(), Ok("ok\n"), "complaints do not hold it up");
}

#[tokio::test]
async fn a_late_program_gave_no_answer() {
    let bed = Bed::new().with("p", "echo early; sleep 600", Invocation::default());
    let began = Instant::now();
    let why = bed.ask_within("p", Duration::from_millis(200)).await.unwrap_err();
    assert!(why.contains("no answer within 200ms"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn one_that_is_not_waited_for_any_more_ends_with_all_that_it_started() {
    let bed = Bed::new();
    let mark = bed.folder.path().join("children");
    let script = format!("sleep 600 & echo $! > {0}; echo $$ >> {0}; wait", mark.display());
    let bed = bed.with("p", &script, Invocation::default());
    let began = Instant::now();
    let children = || std::fs::read_to_string(&mark).unwrap_or_default();
    let both_run = async {
        while children().lines().count() < 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", children());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        asked = bed.ask("p") => panic!("{asked:?}"),
        () = both_run => {}
    }
    for process in children().lines() {
        let status = format!("/proc/{process}/status");
        let is_over = || match std::fs::read_to_string(&status) {
            Err(_) => true,
            Ok(text) => text.contains("State:\tZ"),
        };
        while !is_over() {
            assert!(began.elapsed() < Duration::from_secs(60), "process {process} lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
