//! Sources of static pods: a directory, one file, a URL; and that bad input does not affect running
//! pods.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use real_tests::standalone::agent::AgentProcess;

use crate::node::{
    STEADY, StandaloneNode, archives, ensure_has, keelson, manifest, only, pod, refused, restarts,
    uid, wait_for,
};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn valid_manifests_run_beside_invalid_files_in_a_manifest_dir() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "fileCheckFrequency: 5m\n")?;
        node.agent.place("good", &pod("good", "", STEADY))?;
        node.agent.place("turns-bad", &pod("turns-bad", "", STEADY))?;
        let good = node.until_ready("good")?;
        let kept = node.until_ready("turns-bad")?;
        identity(&good)?;
        let before = [only(&node.runtime, "good")?.id, only(&node.runtime, "turns-bad")?.id];
        spoil(&node)?;
        let expected = [
            "turns-bad.yaml",
            "spec.containers",
            "broken.yaml",
            "huge.yaml",
            "loop.yaml",
            "dangling.yaml",
            "folder.yaml",
            "references.yaml",
            "second.yaml: pod good-node_default has the same name",
        ];
        let mut warning_text = String::new();
        wait_for("every trouble is told", SOON, || {
            warning_text = node.agent.warnings(&["ps"])?;
            Ok(expected.iter().all(|word| warning_text.contains(word)))
        })
        .with_context(|| warning_text.clone())?;
        ensure!(!warning_text.contains(".hidden"), "dot files are passed over: {warning_text}");
        ensure_has(&warning_text, &["turns-bad-node_default kept as its last good version said"])?;
        ensure_has(&node.agent.ask(&["explain", "turns-bad"])?, &["warning: ", "turns-bad.yaml"])?;
        // One that was never good is explained too, whatever its file is called.
        let never = refused(&node.agent, &["explain", "references"])?;
        ensure_has(&never, &["no pod named references", "warning: ", "secrets"])?;
        node.until_ready("linked")?;
        node.until_ready("json")?;
        let after = [only(&node.runtime, "good")?.id, only(&node.runtime, "turns-bad")?.id];
        ensure!(before == after, "those that ran run on: {before:?}, {after:?}");

        // The last good version outlives the agent too.
        let node = node.restart_agent(|_| Ok(()))?;
        node.until_ready("turns-bad")?;
        ensure!(only(&node.runtime, "turns-bad")?.id == before[1], "kept by the next agent");
        mend(&node, &uid(&kept)?, &before)?;
        for name in ["good", "linked", "json", "turns-bad"] {
            ensure!(node.pod(name)?.is_some(), "{name}");
        }
        fs::remove_dir_all(node.home.manifests())?;
        for name in ["good", "linked", "json", "turns-bad"] {
            node.until_gone(name)?;
        }
        fs::create_dir(node.home.manifests())?;
        node.agent.place("again", &pod("again", "", STEADY))?;
        node.until_ready("again").context("a folder that came back is watched")?;
        node.end()
    })
}

/// The properties of a static pod.
fn identity(pod: &serde_json::Value) -> Result<()> {
    let metadata = &pod["metadata"];
    let note = |name: &str| metadata["annotations"][format!("kubernetes.io/config.{name}")].clone();
    ensure!(note("source") == "file" && note("hash") == metadata["uid"], "{pod:#}");
    ensure!(note("seen").is_string() && metadata["namespace"] == "default", "{pod:#}");
    ensure!(pod["spec"]["nodeName"] == "node", "{pod:#}");
    let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let any =
        tolerations.iter().any(|it| it["operator"] == "Exists" && it["effect"] == "NoExecute");
    ensure!(any, "{pod:#}");
    Ok(())
}

fn spoil(node: &StandaloneNode<'_>) -> Result<()> {
    let dir = node.home.manifests();
    let path = |name: &str| dir.join(name);
    node.agent.place(
        "turns-bad",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: turns-bad}\nspec: {containers: []}\n",
    )?;
    node.agent.place("broken", "kind: [Pod\n\tspec: {{{\n")?;
    fs::write(path("huge.yaml"), vec![b'#'; (10 << 20) + 1])?;
    symlink("loop.yaml", path("loop.yaml"))?;
    symlink("nowhere", path("dangling.yaml"))?;
    fs::create_dir(path("folder.yaml"))?;
    fs::write(path(".hidden.yaml"), "not: [a pod")?;
    let refers = "  containers:\n  - name: main\n    image: BUSYBOX\n    \
        envFrom: [{secretRef: {name: x}}]\n";
    node.place("references", refers)?;
    node.agent.place("second", &pod("good", "", "exit 1"))?;
    let elsewhere = node.bed.create_dir("elsewhere")?.join("linked");
    fs::write(&elsewhere, pod("linked", "", STEADY))?;
    symlink(&elsewhere, path("linked.yaml"))?;
    let json = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"json\"}},\"spec\":\
         {{\"terminationGracePeriodSeconds\":1,\"unknownField\":1,\"containers\":[{{\"name\":\"main\",\
         \"image\":\"{}\",\"command\":[\"sleep\",\"1000\"]}}]}}}}",
        node_testkit::images::BUSYBOX
    );
    fs::write(path("json.json"), json)?;
    Ok(())
}

/// The same content again changes nothing; different content is a different pod.
fn mend(node: &StandaloneNode<'_>, kept: &str, before: &[String; 2]) -> Result<()> {
    node.agent.place("turns-bad", &pod("turns-bad", "", STEADY))?;
    wait_for("the trouble is over", SOON, || {
        Ok(!node.agent.warnings(&["ps"])?.contains("turns-bad.yaml"))
    })?;
    ensure!(only(&node.runtime, "turns-bad")?.id == before[1], "nothing had changed");
    node.agent.place("turns-bad", &pod("turns-bad", "", &format!("echo 2; {STEADY}")))?;
    let new = node.until("another pod", "turns-bad", |pod| {
        pod["metadata"]["uid"] != kept && crate::node::is_ready(pod)
    })?;
    ensure!(restarts(&new, "main") == 0, "{new:#}");
    ensure!(only(&node.runtime, "good")?.id == before[0], "the other one was not touched");
    Ok(())
}

/// How the server handles the next request.
#[derive(Clone)]
enum ServerMode {
    Serve(String),
    Redirect,
    Hang,
    Lie,
    Fail,
}

struct ManifestServer {
    address: SocketAddr,
    mode: Arc<Mutex<ServerMode>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ManifestServer {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let mode = Arc::new(Mutex::new(ServerMode::Fail));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (own, noted) = (mode.clone(), heads.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (mode, noted) = (own.clone(), noted.clone());
                // A hanging request does not block others.
                std::thread::spawn(move || serve(stream, &mode, &noted));
            }
        });
        Ok(Self { address, mode, heads })
    }

    fn set_mode(&self, mode: ServerMode) {
        if let Ok(mut now) = self.mode.lock() {
            *now = mode;
        }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().map(|heads| heads.clone()).unwrap_or_default()
    }
}

fn serve(mut stream: TcpStream, now: &Mutex<ServerMode>, noted: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).ok()? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    noted.lock().ok()?.push(head.clone());
    let mode = now.lock().ok()?.clone();
    let answer = match mode {
        ServerMode::Redirect if head.starts_with("GET /pods ") => {
            "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
        ServerMode::Redirect => whole(&manifest("by-url", MOVED)),
        ServerMode::Serve(body) => whole(&body),
        ServerMode::Hang => {
            while matches!(*now.lock().ok()?, ServerMode::Hang) {
                std::thread::sleep(Duration::from_millis(50));
            }
            return None;
        }
        ServerMode::Lie => "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\nkind: Pod\n".to_owned(),
        ServerMode::Fail => "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    stream.write_all(answer.as_bytes()).ok()
}

fn whole(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const ONE: &str = "  terminationGracePeriodSeconds: 1\n  containers:\n  \
    - {name: main, image: BUSYBOX, command: [sleep, \"1000\"]}\n";
const MOVED: &str = "  terminationGracePeriodSeconds: 1\n  containers:\n  \
    - {name: moved, image: BUSYBOX, command: [sleep, \"1000\"]}\n";

#[test]
fn a_url_source_survives_bad_answers_and_one_file_is_a_source() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let server = ManifestServer::start()?;
        let configuration = format!(
            "httpCheckFrequency: 1s\nstaticPodURL: http://{}/pods\n\
             staticPodURLHeader: {{X-Token: [one, two]}}\n",
            server.address
        );
        let mut kind = keelson.clone();
        let file = bed.dir().join("one-file.yaml");
        fs::write(&file, manifest("by-file", ONE))?;
        kind.command.push(format!("--pod-manifest-path={}", file.display()));
        let node = StandaloneNode::start(bed, &kind, &archives, &configuration)?;
        node.until_ready("by-file").context("from a single file")?;
        let warning_text = wait_for_warning(&node.agent, "status 500")?;
        ensure_has(&warning_text, &[&server.address.to_string()])?;
        let heads = server.heads().concat().to_lowercase();
        ensure_has(&heads, &["x-token: one\r\n", "x-token: two\r\n"])?;

        let list = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{},{}]}}",
            json_pod("by-url"),
            json_pod("by-url-too")
        );
        server.set_mode(ServerMode::Serve(list));
        let pod = node.until_ready("by-url")?;
        node.until_ready("by-url-too")?;
        ensure!(pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "http", "{pod:#}");
        let before = only(&node.runtime, "by-url-node")?.id;
        for (mode, word) in
            [(ServerMode::Lie, ""), (ServerMode::Fail, "status 500"), (ServerMode::Hang, "within")]
        {
            let asked = server.heads().len();
            server.set_mode(mode);
            wait_for("another question", SOON, || Ok(server.heads().len() > asked))?;
            wait_for_warning(&node.agent, word)?;
            ensure!(only(&node.runtime, "by-url-node")?.id == before, "what runs is kept");
            ensure!(node.pod("by-url-too")?.is_some(), "and so is the other");
        }
        fs::write(&file, "nonsense: [")?;
        wait_for_warning(&node.agent, "one-file.yaml")?;
        ensure!(node.pod("by-file")?.is_some(), "the file's pod is kept");
        fs::remove_file(&file)?;
        node.until_gone("by-file")?;

        server.set_mode(ServerMode::Redirect);
        node.until("the pod of where it led", "by-url", |pod| {
            pod["spec"]["containers"][0]["name"] == "moved" && crate::node::is_ready(pod)
        })?;
        node.until_gone("by-url-too")?;
        server.set_mode(ServerMode::Serve(String::new()));
        node.until_gone("by-url").context("an answer without a byte means no pods")?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

fn json_pod(name: &str) -> String {
    format!(
        "{{\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{{\"terminationGracePeriodSeconds\":1,\
         \"containers\":[{{\"name\":\"main\",\"image\":\"{}\",\"command\":[\"sleep\",\"1000\"]}}]}}}}",
        node_testkit::images::BUSYBOX
    )
}

/// Waits for a warning of `keelson ps`.
fn wait_for_warning(agent: &AgentProcess, word: &str) -> Result<String> {
    let mut warning_text = String::new();
    wait_for(&format!("a warning of {word:?}"), SOON, || {
        warning_text = agent.warnings(&["ps"])?;
        Ok(!warning_text.is_empty() && warning_text.contains(word))
    })
    .with_context(|| format!("warnings: {warning_text}"))?;
    Ok(warning_text)
}
