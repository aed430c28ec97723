//! README's first command: Keelson at work on this machine. Today that is the agent itself, from
//! configuration to health answer to a clean end; pods follow with the embedded runtime, and the
//! demo says so instead of pretending.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn command(manifests: &[String]) -> Result<()> {
    eprintln!("==> building");
    workspace::run(&mut workspace::cargo(&["build", "--package", "keelson", "--quiet"]))?;
    let keelson = workspace::built("keelson")?;

    eprintln!("==> keelson doctor: what this machine can do");
    workspace::run(Command::new(&keelson).arg("doctor"))?;

    eprintln!("\n==> keelson kubelet: the agent, standalone, until it answers");
    let root = tempfile::tempdir().context("a folder for the agent")?;
    let health = agent_answers(&keelson, root.path())?;
    eprintln!("    GET /healthz said {health:?}, and SIGTERM ended it cleanly");

    let examples = workspace::root().join("examples/hello.yaml").display().to_string();
    let files = if manifests.is_empty() { std::slice::from_ref(&examples) } else { manifests };
    eprintln!("\n==> keelson run {}", files.join(" "));
    let status = Command::new(&keelson).arg("run").args(files).status()?;
    match status.code() {
        Some(0 | 3) => Ok(()),
        _ => bail!("keelson run: {status}"),
    }
}

/// Starts the agent with the example configuration, waits for its health answer, ends it.
fn agent_answers(keelson: &Path, root: &Path) -> Result<String> {
    let port = free_port()?;
    let example = workspace::root().join("examples/kubelet.yaml");
    let mut agent = Command::new(keelson)
        .arg("kubelet")
        .args([format!("--config={}", example.display()), format!("--root-dir={}", root.display())])
        .arg(format!("--healthz-port={port}"))
        .stdin(Stdio::null())
        .spawn()
        .context("the agent does not start")?;
    let answer = wait_for_health(&mut agent, port);
    let _ = rustix::process::kill_process(
        rustix::process::Pid::from_child(&agent),
        rustix::process::Signal::TERM,
    );
    let status = agent.wait()?;
    let answer = answer?;
    ensure!(status.success(), "the agent ended with {status}");
    Ok(answer)
}

/// A person waits for this once, so asking again every 50 ms is good enough here.
fn wait_for_health(agent: &mut Child, port: u16) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = agent.try_wait()? {
            bail!("the agent ended before it answered: {status}");
        }
        if let Ok(body) = get_health(port) {
            return Ok(body);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("no answer on 127.0.0.1:{port}/healthz within {} s", PATIENCE.as_secs())
}

fn get_health(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim().to_owned())
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
