//! Run and checkpoint over the port.

use super::pod_api::OnePod;
use super::*;
use ports::local_runtime::{
    LocalCommandOutput, LocalImageName, LocalImages, LocalProcess, LocalRuntime,
    LocalRuntimeResult, LocalStream, LocalStreamRequest, LocalUsages, StreamEndpoint,
};

/// Runs commands: the first word's number is the exit code.
#[derive(Default)]
struct CommandRuntime {
    calls: Mutex<Vec<(String, Vec<String>)>>,
}

impl LocalRuntime for CommandRuntime {
    fn address(&self, _: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream> {
        unreachable!("not asked")
    }
    fn stream(&self, _: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint> {
        unreachable!("not asked")
    }
    fn process<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalProcess> {
        unreachable!("not asked")
    }
    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages> {
        unreachable!("not asked")
    }
    fn images(&self) -> LocalRuntimeResult<'_, LocalImages> {
        unreachable!("not asked")
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalImageName> {
        unreachable!("not asked")
    }
    fn run_command<'a>(
        &'a self,
        container: &'a str,
        command: Vec<String>,
    ) -> LocalRuntimeResult<'a, LocalCommandOutput> {
        let exit_code = command[0].parse().unwrap_or_default();
        self.calls.lock().expect("lock").push((container.to_owned(), command));
        let (stdout, stderr) = (b"out ".to_vec(), b"err".to_vec());
        Box::pin(async move { Ok(LocalCommandOutput { stdout, stderr, exit_code }) })
    }
    fn checkpoint<'a>(
        &'a self,
        container: &'a str,
        path: String,
        seconds: i64,
    ) -> LocalRuntimeResult<'a, ()> {
        let call = (container.to_owned(), vec![path, seconds.to_string()]);
        self.calls.lock().expect("lock").push(call);
        let message = "no criu".to_owned();
        Box::pin(async move {
            if seconds == 7 {
                return Err(LocalApiError::TemporarilyUnavailable { message });
            }
            Ok(())
        })
    }
}

async fn fixture() -> (KubeletPortFixture, Arc<CommandRuntime>) {
    let runtime = Arc::new(CommandRuntime::default());
    let (commands, local) = (runtime.clone(), OnePod::new(Path::new("/pods")));
    let complete = |port: KubeletPort| (port.with_runtime(commands), local as Arc<dyn LocalApi>);
    (KubeletPortFixture::with_port(true, |_| {}, complete).await, runtime)
}

#[tokio::test]
async fn a_command_is_run_to_its_end() {
    let (fixture, runtime) = fixture().await;
    let table = [
        ("/run/ns/web/main?cmd=ls+-l%20/", 200, "out err"),
        ("/run/ns/web/uid-1/main?cmd=ls", 200, "out err"),
        ("/run/ns/web/main?cmd=3%20x", 500, "command '3 x' exited with 3: err"),
        ("/run/ns/other/main?cmd=ls", 404, "pod does not exist"),
        ("/run/ns/web/pulling?cmd=ls", 500, "container not found (\"pulling\")"),
    ];
    for (path, status, text) in table {
        let answer = fixture.ask("POST", path, Some("operator"), None).await;
        assert_eq!(answer, (status, text.to_owned()), "{path}");
    }
    let calls = runtime.calls.lock().expect("lock");
    let words = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        ("now".to_owned(), words)
    };
    assert_eq!(*calls, [words(&["ls", "-l", "/"]), words(&["ls"]), words(&["3", "x"])]);
}

#[tokio::test]
async fn a_checkpoint_is_written_below_the_agents_directory() {
    let (fixture, runtime) = fixture().await;
    let ask = async |path: &str| fixture.ask("POST", path, Some("operator"), None).await;
    let (status, body) = ask("/checkpoint/ns/web/main?timeout=5&timeout=6").await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let path = body["items"][0].as_str().expect("a path").to_owned();
    let name = path.strip_prefix(fixture.dir.path().join("checkpoints/").to_str().expect("text"));
    let name = name.expect("below the directory");
    assert!(name.starts_with("checkpoint-web_ns-main-2") && name.ends_with("Z.tar"), "{name}");
    assert!(fixture.dir.path().join("checkpoints").is_dir());
    let calls = runtime.calls.lock().expect("lock").clone();
    assert_eq!(calls, [("now".to_owned(), vec![path, "6".to_owned()])]);
    let table = [
        ("/checkpoint/ns/other/main", 404, "pod does not exist"),
        ("/checkpoint/ns/web/no", 404, "container no does not exist"),
        ("/checkpoint/ns/web/main?timeout=x", 404, "cannot parse value of timeout parameter"),
        (
            "/checkpoint/ns/web/lost",
            500,
            "checkpointing of ns/web/lost failed (container lost not found)",
        ),
        ("/checkpoint/ns/web/main?timeout=7", 500, "checkpointing of ns/web/main failed (no criu)"),
    ];
    for (path, status, text) in table {
        assert_eq!(ask(path).await, (status, text.to_owned()), "{path}");
    }
}
