//! Shell scripts as plugins: good ones, and ones that fail in every way.

use super::*;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

struct ProvidersFixture {
    dir: tempfile::TempDir,
    programs: BTreeMap<String, Invocation>,
}

impl ProvidersFixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), programs: BTreeMap::new() }
    }

    fn with(mut self, name: &str, script: &str, invocation: Invocation) -> Self {
        let path = self.dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.programs.insert(name.to_owned(), invocation);
        self
    }

    async fn ask(&self, name: &str) -> Result<String, String> {
        self.ask_within(name, DEADLINE).await
    }

    async fn ask_within(&self, name: &str, deadline: Duration) -> Result<String, String> {
        let dir = ProgramDir::new(self.dir.path(), self.programs.clone());
        let dir = dir.with_deadline(deadline);
        let response = CredentialPrograms::ask(&dir, name, b"{\"image\":\"i\"}\n".to_vec()).await;
        match response {
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
    let fixture = ProvidersFixture::new().with("p", script, invocation.clone());
    let answer = fixture.ask("p").await.unwrap();
    assert_eq!(answer, "{\"image\":\"i\"}|--one|two words|a value|/over|path\n");
    let shown = format!("{invocation:?}");
    assert!(shown.contains("KEY") && !shown.contains("value") && !shown.contains("words"));
}

#[tokio::test]
async fn a_program_that_ignores_its_input_may_answer() {
    let fixture =
        ProvidersFixture::new().with("p", "exec <&-; echo done; exit 0", Invocation::default());
    assert_eq!(fixture.ask("p").await.as_deref(), Ok("done\n"));
}

#[tokio::test]
async fn errors_are_reported_without_the_programs_output() {
    let many = format!("head -c {} /dev/zero | tr '\\0' s", MAX_OUTPUT_BYTES + 1);
    let fixture = ProvidersFixture::new()
        .with("fails", "echo secret; echo secret >&2; exit 3", Invocation::default())
        .with("dies", "echo secret >&2; kill -9 $$", Invocation::default())
        .with("long", &many, Invocation::default())
        .with("loud", "head -c 300000 /dev/zero >&2; echo ok", Invocation::default())
        .with("plain", "", Invocation::default());
    let plain = fixture.dir.path().join("plain");
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
        let message = fixture.ask(name).await.unwrap_err();
        assert!(message.starts_with(&format!("credential provider {name}: ")), "{message}");
        for expected in words {
            assert!(message.contains(expected), "{message} has {expected}");
        }
        assert!(!message.contains("secret") && !message.contains("ssss"), "{message}");
    }
    assert_eq!(fixture.ask("loud").await.as_deref(), Ok("ok\n"), "complaints do not hold it up");
}

#[tokio::test]
async fn a_program_past_its_deadline_is_an_error() {
    let fixture = ProvidersFixture::new().with("p", "echo early; sleep 600", Invocation::default());
    let began = Instant::now();
    let message = fixture.ask_within("p", Duration::from_millis(200)).await.unwrap_err();
    assert!(message.contains("no answer within 200ms"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_cancelled_program_is_killed_with_its_process_group() {
    let fixture = ProvidersFixture::new();
    let pid_file = fixture.dir.path().join("children");
    let script = format!("sleep 600 & echo $! > {0}; echo $$ >> {0}; wait", pid_file.display());
    let fixture = fixture.with("p", &script, Invocation::default());
    let began = Instant::now();
    let children = || std::fs::read_to_string(&pid_file).unwrap_or_default();
    let both_run = async {
        while children().lines().count() < 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", children());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        response = fixture.ask("p") => panic!("{response:?}"),
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
