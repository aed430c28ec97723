//! kubectl through a real API server and the reference kubelet to `keelson cri`: exec, attach,
//! port-forward, cp and logs, over WebSocket and over SPDY.
//!
//! Rule: assertions are about what a user sees; nothing depends on timing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest, NODE_ADDRESS};
use node_testkit::images;
use node_testkit::parts;
use node_testkit::start::{ControlPlane, KubeletOptions, ReferenceKubelet};
use real_tests::embedded::RuntimePrograms;

use super::kubelet::{configuration, with_busybox};
use super::terminal::TestTerminal;

const NEEDS: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kubelet"];
/// More than any buffer in between.
const LARGE: usize = 24 << 20;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  nodeName: bed
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: IMAGE
    command: [sh, -c, "mkdir /www; echo served > /www/index.html; dd if=/dev/zero of=/www/large bs=1M count=24 2>/dev/null; exec httpd -f -p 80 -h /www"]
    readinessProbe: {httpGet: {port: 80, path: /index.html}, periodSeconds: 1}
  - name: echoes
    image: IMAGE
    stdin: true
    command: [sh, -c, "while read line; do echo got $line; done; echo over"]
  - name: counts
    image: IMAGE
    command: [sh, -c, "until test -e /go; do sleep 0.1; done; seq 1 20000; exec sleep 1000"]
"#;

/// The two transports of kubectl's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamTransport {
    WebSocket,
    Spdy,
}

struct Kubectl<'a> {
    kubeconfig: &'a Path,
    transport: StreamTransport,
}

impl Kubectl<'_> {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(parts::program("kubectl", "kubectl")?);
        let websockets =
            if self.transport == StreamTransport::WebSocket { "true" } else { "false" };
        command
            .env("KUBECONFIG", self.kubeconfig)
            .env("KUBECACHEDIR", self.kubeconfig.with_file_name("kubectl-cache"))
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .args(arguments);
        Ok(command)
    }

    /// Runs it with this input to its end: exit code, output, errors.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Result<(i32, Vec<u8>, String)> {
        let mut child = self
            .command(arguments)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("run kubectl")?;
        let mut feed = child.stdin.take().context("its input")?;
        let input = input.to_vec();
        let feeding = std::thread::spawn(move || feed.write_all(&input));
        let output = child.wait_with_output()?;
        // A command that reads nothing closes its input.
        let _ = feeding.join();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code().unwrap_or(-1), output.stdout, errors))
    }

    fn stdout_of(&self, arguments: &[&str]) -> Result<String> {
        let (code, output, errors) = self.run(arguments, b"")?;
        ensure!(code == 0, "{:?} kubectl {arguments:?}: exit {code}: {errors}", self.transport);
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

#[test]
fn kubectl_streams_reach_our_runtime() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(5)).run(|bed| {
        let server = with_busybox(bed, &programs)?;
        let plane = ControlPlane::start(bed)?;
        let _kubelet = start_kubelet(bed, &plane, &server.endpoint())?;
        let manifest = bed.dir().join("box.yaml");
        fs::write(&manifest, POD.replace("IMAGE", images::BUSYBOX))?;
        plane.kubectl(&["apply", "--filename", &manifest.display().to_string()])?;
        let begun = Instant::now();
        let wait = ["wait", "--for=condition=Ready", "pod/box", "--timeout=9s"];
        while let Err(error) = plane.kubectl(&wait) {
            ensure!(begun.elapsed() < Duration::from_secs(90), "the pod is not ready: {error:#}");
        }
        for transport in [StreamTransport::WebSocket, StreamTransport::Spdy] {
            let kubectl = Kubectl { kubeconfig: plane.admin_kubeconfig(), transport };
            println!("{transport:?}");
            commands(&kubectl).with_context(|| format!("exec over {transport:?}"))?;
            large(&kubectl).with_context(|| format!("large streams over {transport:?}"))?;
            on_a_terminal(&kubectl).with_context(|| format!("a terminal over {transport:?}"))?;
            attached(&kubectl).with_context(|| format!("attach over {transport:?}"))?;
            forwarded(&kubectl).with_context(|| format!("port-forward over {transport:?}"))?;
            copied(bed, &kubectl).with_context(|| format!("cp over {transport:?}"))?;
        }
        followed(&Kubectl {
            kubeconfig: plane.admin_kubeconfig(),
            transport: StreamTransport::WebSocket,
        })
    })
}

fn start_kubelet(bed: &Bed, plane: &ControlPlane, endpoint: &str) -> Result<ReferenceKubelet> {
    // The API server looks the node's name up.
    let mut hosts = fs::File::options().append(true).open("/etc/hosts")?;
    writeln!(hosts, "{NODE_ADDRESS} bed")?;
    let authority = plane.authority().files.certificate.display().to_string();
    let configuration = format!(
        "{}authentication: {{x509: {{clientCAFile: {authority}}}, webhook: {{enabled: false}}}}\n",
        configuration(endpoint)
    );
    let options = KubeletOptions {
        configuration,
        kubeconfig: Some(plane.node_kubeconfig("bed")?),
        credentials: Some(plane.admin_files().clone()),
        flags: vec!["--hostname-override=bed".to_owned()],
        ..KubeletOptions::default()
    };
    ReferenceKubelet::start(bed, &options)
}

fn commands(kubectl: &Kubectl<'_>) -> Result<()> {
    let exec = ["exec", "box", "-c", "web", "--"];
    let with = |rest: &[&'static str]| [&exec[..], rest].concat();
    ensure!(kubectl.stdout_of(&with(&["echo", "hello"]))? == "hello\n");
    let script = "echo out; echo err >&2; exit 7";
    let (code, output, errors) = kubectl.run(&with(&["sh", "-c", script]), b"")?;
    ensure!(code == 7, "the exit code of a command: {code}, {errors}");
    ensure!(output == b"out\n", "its output: {:?}", String::from_utf8_lossy(&output));
    ensure!(errors.starts_with("err\n"), "its errors: {errors:?}");
    let (code, _, errors) = kubectl.run(&with(&["no-such-program"]), b"")?;
    ensure!(code != 0 && errors.contains("no-such-program"), "exit {code}: {errors}");
    Ok(())
}

/// Large input and output, and an end of input that does not end the session.
fn large(kubectl: &Kubectl<'_>) -> Result<()> {
    let script = format!("head -c {LARGE} /dev/zero");
    let (code, output, errors) =
        kubectl.run(&["exec", "box", "-c", "web", "--", "sh", "-c", &script], b"")?;
    ensure!(code == 0 && output.len() == LARGE, "{} bytes, exit {code}: {errors}", output.len());
    let input: Vec<u8> = (0..LARGE).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let count = ["exec", "-i", "box", "-c", "web", "--", "sh", "-c", "wc -c; echo after"];
    let (code, output, errors) = kubectl.run(&count, &input)?;
    let stdout_of = String::from_utf8_lossy(&output).into_owned();
    ensure!(
        code == 0 && stdout_of == format!("{LARGE}\nafter\n"),
        "{stdout_of:?}, exit {code}: {errors}"
    );
    let (code, output, errors) =
        kubectl.run(&["exec", "-i", "box", "-c", "web", "--", "cat"], &input)?;
    let same = output == input;
    ensure!(code == 0 && same, "{} bytes back, exit {code}: {errors}", output.len());
    Ok(())
}

fn on_a_terminal(kubectl: &Kubectl<'_>) -> Result<()> {
    let mut command = kubectl.command(&["exec", "-it", "box", "-c", "web", "--", "sh"])?;
    let mut terminal = TestTerminal::start(command.env("TERM", "xterm"), 40, 120)?;
    // The shell shows what is typed too, but not so.
    let ask = "echo size-$(stty size | tr ' ' x)";
    terminal.until("size-40x120", Some(ask))?;
    terminal.resize(50, 132)?;
    terminal.until("size-50x132", Some(ask))?;
    terminal.enter("test -t 0 && exit 5")?;
    let code = terminal.ended()?;
    ensure!(code == 5, "the shell's exit code through a terminal: {code}");
    Ok(())
}

struct Attached {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Attached {
    fn next_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn started(kubectl: &Kubectl<'_>, arguments: &[&str]) -> Result<Attached> {
    let mut child = kubectl
        .command(arguments)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let input = child.stdin.take();
    let output = BufReader::new(child.stdout.take().context("its output")?);
    Ok(Attached { child, input, output })
}

fn attached(kubectl: &Kubectl<'_>) -> Result<()> {
    let mut client = started(kubectl, &["attach", "-i", "-q", "box", "-c", "echoes"])?;
    let input = client.input.as_mut().context("its input")?;
    input.write_all(b"one\ntwo\n")?;
    input.flush()?;
    let lines = [client.next_line()?, client.next_line()?];
    ensure!(lines == ["got one\n", "got two\n"], "{lines:?}");
    Ok(())
}

fn forwarded(kubectl: &Kubectl<'_>) -> Result<()> {
    let mut client = started(kubectl, &["port-forward", "pod/box", ":80", "--address=127.0.0.1"])?;
    let line = client.next_line()?;
    // Forwarding from 127.0.0.1:PORT -> 80
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port: u16 = port.with_context(|| format!("a port in {line:?}"))?.parse()?;
    ensure!(fetch(port, "/index.html")?.ends_with(b"served\n"), "the first connection");
    // Two at once, one of them large, and one whose other end is not there.
    let large = std::thread::spawn(move || fetch(port, "/large"));
    ensure!(fetch(port, "/index.html")?.ends_with(b"served\n"), "beside a large one");
    let body = large.join().map_err(|_| anyhow::anyhow!("a fetch panicked"))??;
    ensure!(body.len() > LARGE, "{} bytes of a large answer", body.len());
    Ok(())
}

fn fetch(port: u16, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn copied(bed: &Bed, kubectl: &Kubectl<'_>) -> Result<()> {
    let dir = bed.create_dir(&format!("cp-{:?}", kubectl.transport))?;
    let bytes: Vec<u8> = (0..3_000_000_usize).map(|at| (at * 7 % 256) as u8).collect();
    fs::write(dir.join("there"), &bytes)?;
    let (there, back) = (dir.join("there"), dir.join("back"));
    let inside = format!("box:/tmp/{:?}", kubectl.transport);
    kubectl.stdout_of(&["cp", &there.display().to_string(), &inside, "-c", "web"])?;
    kubectl.stdout_of(&["cp", &inside, &back.display().to_string(), "-c", "web"])?;
    ensure!(fs::read(&back)? == bytes, "what came back is not what went");
    Ok(())
}

/// Follows the log from before the first line, and loses nothing of a burst.
fn followed(kubectl: &Kubectl<'_>) -> Result<()> {
    let mut client = started(kubectl, &["logs", "--follow", "box", "-c", "counts"])?;
    kubectl.stdout_of(&["exec", "box", "-c", "counts", "--", "touch", "/go"])?;
    for number in 1..=20_000 {
        let line = client.next_line()?;
        if line.trim() != number.to_string() {
            bail!("line {number} of the followed log: {line:?}");
        }
    }
    let tail = kubectl.stdout_of(&["logs", "--tail=2", "box", "-c", "counts"])?;
    ensure!(tail == "19999\n20000\n", "the last lines: {tail:?}");
    Ok(())
}
