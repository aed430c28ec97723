//! With the embedded runtime in the agent's process, streams need no URL: neither the agent nor the
//! client uses TCP on this machine for them. A client that cannot take a stream this way still gets
//! a URL.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::exec_and_attach::{VerbSession, Verbs};

const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The process's TCP sockets on this machine, as the kernel lists them. Connections into a pod's
/// own network are not among them.
fn tcp_of(process: u32) -> Result<Vec<String>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // It may be closed between two looks.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let number = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        sockets.extend(number.map(str::to_owned));
    }
    ensure!(!sockets.is_empty(), "process {process} has no sockets at all");
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        // A machine may have no IPv6.
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/net/{table}")) else { continue };
        let is_its = |line: &&str| {
            line.split_whitespace().nth(9).is_some_and(|number| sockets.contains(number))
        };
        found.extend(text.lines().skip(1).filter(is_its).map(|line| format!("{table} {line}")));
    }
    Ok(found)
}

pub(crate) fn has_no_tcp(process: u32) -> Result<()> {
    let found = tcp_of(process)?;
    ensure!(found.is_empty(), "process {process} has TCP sockets: {found:#?}");
    Ok(())
}

/// Checks while a command and a forwarded port are in use.
pub(crate) fn are_not_tcp(verbs: &Verbs, pod: &str, agent: u32) -> Result<()> {
    has_no_tcp(agent).context("before")?;
    let echoes = |session: &mut VerbSession| -> Result<()> {
        session.send("hello\n")?;
        let line = session.line()?;
        ensure!(line == "hello\n", "{line:?}");
        Ok(())
    };
    let mut cat = verbs.session(&["exec", "-i", pod, "--", "cat"])?;
    echoes(&mut cat)?;
    has_no_tcp(agent).context("during an exec")?;
    has_no_tcp(cat.process()).context("who asked for an exec")?;
    // The agent asks nothing of it: it goes on as long as it likes, and others beside it.
    let mut other = verbs.session(&["exec", "-i", pod, "--", "cat"])?;
    echoes(&mut other)?;
    echoes(&mut cat)?;
    other.end_input();
    let (code, rest) = other.end()?;
    ensure!(code == Some(0) && rest.is_empty(), "{code:?} {rest}");
    echoes(&mut cat)?;

    // In the kernel's list its port is in sixteens.
    let echo = "nc -ll -p 8009 -e cat > /dev/null 2>&1 & \
                until cat /proc/net/tcp /proc/net/tcp6 | grep -q :1F49; do :; done";
    verbs.ask(&["exec", pod, "--", "sh", "-c", echo])?;
    let mut forward = verbs.session(&["port-forward", "--address", "127.0.0.1", pod, ":8009"])?;
    let line = forward.line()?;
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).with_context(|| line.clone())?;
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WAIT_LIMIT))?;
    socket.write_all(b"hello")?;
    let mut received = [0; 5];
    socket.read_exact(&mut received)?;
    ensure!(&received == b"hello", "{received:?}");
    has_no_tcp(agent).context("during a port-forward")?;
    Ok(())
}

/// A client that disconnects ends its command.
pub(crate) fn end_with_their_client(verbs: &Verbs, pod: &str) -> Result<()> {
    let script = "echo $$; exec sleep 4321";
    let mut sleeping = verbs.session(&["exec", "-i", pod, "--", "sh", "-c", script])?;
    let number = sleeping.line()?;
    let number = number.trim();
    let runs = format!("grep -q 4321 /proc/{number}/cmdline");
    verbs.ask(&["exec", pod, "--", "sh", "-c", &runs])?;
    drop(sleeping);
    crate::node::wait_for("the command has ended", WAIT_LIMIT, || {
        Ok(!verbs.verb(&["exec", pod, "--", "sh", "-c", &runs]).output()?.status.success())
    })
}

/// An older client does not offer its connection; it gets a URL, and a server answers there.
pub(crate) fn have_addresses_too(socket: &Path, agent: u32) -> Result<()> {
    let pods: Value = serde_json::from_str(&ask(socket, "GET", "/v1/pods", "")?)?;
    let container = pods["pods"][0]["containers"][0]["id"].as_str().context("a container")?;
    let path = format!("/v1/containers/{container}/exec");
    let given = ask(socket, "POST", &path, r#"{"command": ["true"], "stdout": true}"#)?;
    let given: Value = serde_json::from_str(&given)?;
    let url = given["url"].as_str().context("an address")?;
    let rest = url.strip_prefix("http://127.0.0.1:").with_context(|| url.to_owned())?;
    let (port, token) = rest.split_once('/').with_context(|| url.to_owned())?;
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse()?))?;
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    write!(stream, "GET /{token} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.contains("unable to upgrade"), "{answer}");
    ensure!(!tcp_of(agent)?.is_empty(), "somebody else listens there");
    Ok(())
}

/// The body of the agent's response.
fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("a body")?;
    Ok(body.to_owned())
}
