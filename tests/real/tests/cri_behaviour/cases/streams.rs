//! Streaming URLs; other tests cover the data with kubectl's protocols.

use anyhow::{Result, ensure};
use cri_wire::v1;
use tonic::Code;

use super::cases;
use crate::support::{Cri, code, texts};

cases![
    stream_exec_gives_an_address,
    stream_exec_without_streams_is_refused,
    stream_exec_with_terminal_and_errors_is_refused,
    stream_exec_in_unknown_container_is_not_found,
    stream_attach_gives_an_address,
    stream_port_forward_gives_an_address,
    stream_port_forward_of_unknown_is_not_found,
    stream_address_works_once,
    stream_exec_over_websocket,
];

fn exec(id: &str) -> v1::ExecRequest {
    v1::ExecRequest {
        container_id: id.to_owned(),
        cmd: texts(&["echo", "streamed"]),
        stdout: true,
        stderr: true,
        ..Default::default()
    }
}

async fn stream_exec_gives_an_address(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let url = cri.rt().exec(exec(&running.id)).await?.into_inner().url;
    ensure!(url.starts_with("http://127.0.0.1:") && url.contains("/exec/"), "{url}");
    Ok(())
}

async fn stream_exec_without_streams_is_refused(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let request = v1::ExecRequest { stdout: false, stderr: false, ..exec(&running.id) };
    ensure!(code(cri.rt().exec(request).await)? == Code::InvalidArgument);
    Ok(())
}

async fn stream_exec_with_terminal_and_errors_is_refused(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let request = v1::ExecRequest { tty: true, ..exec(&running.id) };
    ensure!(code(cri.rt().exec(request).await)? == Code::InvalidArgument);
    Ok(())
}

async fn stream_exec_in_unknown_container_is_not_found(cri: &Cri) -> Result<()> {
    ensure!(code(cri.rt().exec(exec("unknown")).await)? == Code::NotFound);
    Ok(())
}

async fn stream_attach_gives_an_address(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let request =
        v1::AttachRequest { container_id: running.id.clone(), stdout: true, ..Default::default() };
    ensure!(cri.rt().attach(request).await?.into_inner().url.contains("/attach/"));
    Ok(())
}

async fn stream_port_forward_gives_an_address(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.networked_pod()).await?;
    let request = v1::PortForwardRequest { pod_sandbox_id: id, port: vec![80] };
    ensure!(cri.rt().port_forward(request).await?.into_inner().url.contains("/portforward/"));
    Ok(())
}

async fn stream_port_forward_of_unknown_is_not_found(cri: &Cri) -> Result<()> {
    let request = v1::PortForwardRequest { pod_sandbox_id: "unknown".to_owned(), port: vec![80] };
    ensure!(code(cri.rt().port_forward(request).await)? == Code::NotFound);
    Ok(())
}

/// Speaks WebSocket by hand and returns what it received, without the close frame.
async fn websocket(url: &str, protocol: &str) -> Result<(String, Vec<u8>)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let rest = url.trim_start_matches("http://");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), reading).await;
    let end =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Ok((head, bytes[end..].to_vec()))
}

async fn stream_address_works_once(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let url = cri.rt().exec(exec(&running.id)).await?.into_inner().url;
    let (first, _) = websocket(&url, "v4.channel.k8s.io").await?;
    ensure!(first.starts_with("HTTP/1.1 101"), "{first}");
    let (second, _) = websocket(&url, "v4.channel.k8s.io").await?;
    ensure!(second.starts_with("HTTP/1.1 404"), "{second}");
    Ok(())
}

async fn stream_exec_over_websocket(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let url = cri.rt().exec(exec(&running.id)).await?.into_inner().url;
    let (_, frames) = websocket(&url, "v4.channel.k8s.io").await?;
    let text = String::from_utf8_lossy(&frames).into_owned();
    ensure!(text.contains("\u{1}streamed\n"), "output on channel 1: {text:?}");
    ensure!(text.contains("\"status\":\"Success\""), "a status on channel 3: {text:?}");
    Ok(())
}
