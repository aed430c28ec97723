//! Data through attach and port-forward, with a hand-written WebSocket client.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cri_wire::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::cases;
use crate::support::{Cri, StartedContainer};

cases![
    attach_carries_both_ways,
    attach_to_a_terminal_carries_both_ways,
    attach_keeps_output_and_errors_apart,
    attach_ends_with_its_container,
    port_forward_carries_both_ways,
    port_forward_to_a_closed_port_reports_an_error,
];

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// A client of a one-time URL, and what it received on each channel.
struct CaseStreamClient {
    stream: TcpStream,
    came: BTreeMap<u8, Vec<u8>>,
    over: bool,
}

impl CaseStreamClient {
    async fn connect(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://").context("an address")?;
        let (host, path) = rest.split_once('/').context("a path")?;
        let mut stream = TcpStream::connect(host).await?;
        let request = format!(
            "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-protocol: v4.channel.k8s.io\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        ensure!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Ok(Self { stream, came: BTreeMap::new(), over: false })
    }

    /// A short message, with a mask of zeros.
    async fn send(&mut self, channel: u8, text: &str) -> Result<()> {
        let length = u8::try_from(text.len() + 1)?;
        ensure!(length < 126, "a short message");
        let mut bytes = vec![0x82, 0x80 | length, 0, 0, 0, 0, channel];
        bytes.extend(text.as_bytes());
        self.stream.write_all(&bytes).await?;
        Ok(())
    }

    /// Reads one frame; the end of the connection ends the client.
    async fn next(&mut self) -> Result<()> {
        let Ok(first) = self.stream.read_u8().await else {
            self.over = true;
            return Ok(());
        };
        let length = match self.stream.read_u8().await? {
            126 => usize::from(self.stream.read_u16().await?),
            127 => usize::try_from(self.stream.read_u64().await?)?,
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        match (first & 0x0f, payload.split_first()) {
            (8, _) => self.over = true,
            (0..=2, Some((channel, bytes))) => {
                self.came.entry(*channel).or_default().extend_from_slice(bytes);
            }
            _ => {}
        }
        Ok(())
    }

    fn text(&self, channel: u8) -> String {
        let bytes = self.came.get(&channel).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Reads until a channel has received this text.
    async fn until(&mut self, channel: u8, words: &str) -> Result<()> {
        let reading = async {
            while !self.text(channel).contains(words) {
                ensure!(!self.over, "it is over");
                self.next().await?;
            }
            Ok(())
        };
        let outcome = tokio::time::timeout(WAIT_LIMIT, reading).await;
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.context(format!("{words:?} never came: {:?}", self.came))),
            Err(_) => bail!("{words:?} never came: {:?}", self.came),
        }
    }

    async fn until_over(&mut self) -> Result<()> {
        let reading = async {
            while !self.over {
                self.next().await?;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(WAIT_LIMIT, reading).await.context("it never ended")?
    }
}

async fn attached(
    cri: &Cri,
    config: v1::ContainerConfig,
) -> Result<(StartedContainer, CaseStreamClient)> {
    let tty = config.tty;
    let running = cri.running_as(cri.pod(), config).await?;
    let request = v1::AttachRequest {
        container_id: running.id.clone(),
        stdin: true,
        tty,
        stdout: true,
        stderr: !tty,
    };
    let url = cri.rt().attach(request).await?.into_inner().url;
    Ok((running, CaseStreamClient::connect(&url).await?))
}

fn listening(cri: &Cri, script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig { stdin: true, ..cri.container(script) }
}

async fn attach_carries_both_ways(cri: &Cri) -> Result<()> {
    let script = "while read line; do echo got $line; done";
    let (running, mut client) = attached(cri, listening(cri, script)).await?;
    for word in ["one", "two"] {
        client.send(0, &format!("{word}\n")).await?;
        client.until(1, &format!("got {word}\n")).await?;
    }
    ensure!(client.text(1) == "got one\ngot two\n", "{:?}", client.came);
    // The log has it as well, and the container keeps running when the attached client disconnects.
    ensure!(running.output()? == "got one\ngot two\n", "{:?}", running.output()?);
    drop(client);
    let request = v1::AttachRequest {
        container_id: running.id.clone(),
        stdin: true,
        stdout: true,
        ..Default::default()
    };
    let url = cri.rt().attach(request).await?.into_inner().url;
    let mut again = CaseStreamClient::connect(&url).await?;
    again.send(0, "three\n").await?;
    again.until(1, "got three\n").await
}

async fn attach_to_a_terminal_carries_both_ways(cri: &Cri) -> Result<()> {
    let config =
        v1::ContainerConfig { tty: true, ..listening(cri, "read line; echo got $line; cat") };
    let (_running, mut client) = attached(cri, config).await?;
    client.send(0, "word\n").await?;
    client.until(1, "got word\r\n").await
}

async fn attach_keeps_output_and_errors_apart(cri: &Cri) -> Result<()> {
    let script = "while read line; do echo wrong $line >&2; done";
    let (_running, mut client) = attached(cri, listening(cri, script)).await?;
    client.send(0, "word\n").await?;
    client.until(2, "wrong word\n").await?;
    ensure!(client.text(1).is_empty(), "{:?}", client.came);
    Ok(())
}

async fn attach_ends_with_its_container(cri: &Cri) -> Result<()> {
    let (running, mut client) =
        attached(cri, listening(cri, "read line; echo bye; exit 3")).await?;
    client.send(0, "go\n").await?;
    client.until_over().await?;
    ensure!(client.text(1) == "bye\n", "{:?}", client.came);
    ensure!(cri.until_ended(&running.id).await?.exit_code == 3);
    Ok(())
}

async fn forward(cri: &Cri, sandbox: &str, port: i32) -> Result<CaseStreamClient> {
    let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![port] };
    let url = cri.rt().port_forward(request).await?.into_inner().url;
    CaseStreamClient::connect(&url).await
}

async fn port_forward_carries_both_ways(cri: &Cri) -> Result<()> {
    let script = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www";
    let running = cri.running_as(cri.networked_pod(), cri.container(script)).await?;
    let begun = Instant::now();
    loop {
        let mut client = forward(cri, &running.sandbox, 80).await?;
        let asked = async {
            client.send(0, "GET / HTTP/1.0\r\n\r\n").await?;
            client.until(0, "served\n").await
        };
        let outcome = asked.await;
        // Each channel says first which port it is of.
        let port =
            |channel: u8| client.came.get(&channel).is_some_and(|came| came.starts_with(&[80, 0]));
        match outcome {
            Ok(()) => {
                ensure!(port(0) && port(1), "{:?}", client.came);
                return Ok(());
            }
            // The server in the pod may not listen yet.
            Err(error) => ensure!(begun.elapsed() < WAIT_LIMIT, "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn port_forward_to_a_closed_port_reports_an_error(cri: &Cri) -> Result<()> {
    let sandbox = cri.run(&cri.networked_pod()).await?;
    let mut client = forward(cri, &sandbox, 9).await?;
    client.until(1, "error forwarding port 9 to pod").await
}
