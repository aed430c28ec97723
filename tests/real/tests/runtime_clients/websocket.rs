//! A WebSocket client of the runtime's streaming URLs: version 5 with its half-close, much data
//! both ways at once, pings in between. Hand-written, so that the test controls every byte.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use node_testkit::bed::BedTest;
use real_tests::embedded::RuntimePrograms;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::calls;
use super::kubelet::with_busybox;

const MASK: [u8; 4] = [7, 99, 3, 250];
const LARGE: usize = 8 << 20;

#[test]
fn websocket_version_5_half_closes() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().deadline(Duration::from_mins(2)).run(|bed| {
        let server = with_busybox(bed, &programs)?;
        calls::tasks()?.block_on(async {
            let mut runtime = calls::connect(&server.socket()).await?;
            let pod = calls::pod("socket", &bed.logs());
            let sandbox = calls::run(&mut runtime, &pod).await?;
            let id = calls::start(&mut runtime, (&sandbox, &pod), "sleep 1000").await?;
            let limited = tokio::time::timeout(Duration::from_secs(60), async {
                half_closed(&mut runtime, &id).await?;
                lasting(&mut runtime, &id).await
            });
            limited.await.context("within a minute")??;
            calls::remove(&mut runtime, &sandbox).await
        })
    })
}

async fn exec(
    runtime: &mut calls::RuntimeClient,
    id: &str,
    command: &[&str],
) -> Result<(OwnedReadHalf, OwnedWriteHalf)> {
    let request = v1::ExecRequest {
        container_id: id.to_owned(),
        cmd: command.iter().map(|word| (*word).to_owned()).collect(),
        stdin: true,
        stdout: true,
        stderr: true,
        ..Default::default()
    };
    let url = runtime.exec(request).await?.into_inner().url;
    let rest = url.strip_prefix("http://").context("an address")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut stream = TcpStream::connect(host).await?;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    ensure!(head.starts_with("http/1.1 101"), "{head}");
    ensure!(head.contains("v5.channel.k8s.io"), "{head}");
    Ok(stream.into_split())
}

/// One masked frame of a client.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | kind];
    match u16::try_from(payload.len()) {
        Ok(short @ 0..=125) => bytes.push(0x80 | short as u8),
        Ok(middle) => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&middle.to_be_bytes());
        }
        Err(_) => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// One unmasked frame of the server: its kind and payload.
async fn next(reader: &mut OwnedReadHalf) -> Result<(u8, Vec<u8>)> {
    let kind = reader.read_u8().await? & 0x0f;
    let length = match reader.read_u8().await? {
        126 => usize::from(reader.read_u16().await?),
        127 => usize::try_from(reader.read_u64().await?)?,
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).await?;
    Ok((kind, payload))
}

/// Everything until the close: output, pongs, and the last status.
async fn to_the_end(reader: &mut OwnedReadHalf) -> Result<(Vec<u8>, usize, String)> {
    let (mut output, mut pongs, mut status) = (Vec::new(), 0, String::new());
    loop {
        let (kind, payload) = next(reader).await?;
        match (kind, payload.split_first()) {
            (2, Some((1, bytes))) => output.extend_from_slice(bytes),
            (2, Some((3, bytes))) => status = String::from_utf8_lossy(bytes).into_owned(),
            (2, Some((2, _))) => {}
            (10, _) => pongs += 1,
            (8, _) => return Ok((output, pongs, status)),
            other => bail!("an unexpected frame: {other:?}"),
        }
    }
}

/// The command's input ends while its output goes on; closing one channel does not close others.
async fn half_closed(runtime: &mut calls::RuntimeClient, id: &str) -> Result<()> {
    let command = ["sh", "-c", "wc -c; sleep 0.2; echo after"];
    let (mut reader, mut writer) = exec(runtime, id, &command).await?;
    writer.write_all(&frame(2, b"\0twelve bytes")).await?;
    writer.write_all(&frame(9, b"are you there")).await?;
    writer.write_all(&frame(2, &[255, 0])).await?;
    let (output, pongs, status) = to_the_end(&mut reader).await?;
    let output = String::from_utf8_lossy(&output);
    ensure!(output == "12\nafter\n", "{output:?}");
    ensure!(pongs == 1, "{pongs} answers to one ping");
    ensure!(status.contains("\"Success\""), "{status}");
    Ok(())
}

/// Large input and output at the same time: neither side waits for the other to finish.
async fn lasting(runtime: &mut calls::RuntimeClient, id: &str) -> Result<()> {
    let (mut reader, mut writer) = exec(runtime, id, &["cat"]).await?;
    let input: Vec<u8> = (0..LARGE).map(|at| u8::try_from(at % 253).unwrap_or(0)).collect();
    let sent = input.clone();
    let feeding = tokio::spawn(async move {
        for (at, part) in sent.chunks(100_000).enumerate() {
            let mut message = vec![0];
            message.extend_from_slice(part);
            // Some messages come in two pieces.
            if at % 3 == 0 {
                let (first, rest) = message.split_at(1 + part.len() / 2);
                let mut begun = frame(2, first);
                begun[0] &= 0x7f;
                writer.write_all(&begun).await?;
                writer.write_all(&frame(0, rest)).await?;
            } else {
                writer.write_all(&frame(2, &message)).await?;
            }
        }
        writer.write_all(&frame(2, &[255, 0])).await?;
        anyhow::Ok(writer)
    });
    let (output, _, status) = to_the_end(&mut reader).await?;
    let _writer = feeding.await??;
    ensure!(output == input, "{} of {LARGE} bytes came back alike", output.len());
    ensure!(status.contains("\"Success\""), "{status}");
    Ok(())
}
