//! Pods with a network of their own.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{Cri, StartedContainer};

cases![
    network_pod_has_an_address,
    network_pod_address_is_gone_when_stopped,
    network_pod_sees_its_address,
    network_pod_has_a_loopback,
    network_pod_has_its_own_name,
    network_host_reaches_a_pod,
    network_pod_reaches_a_pod,
    network_host_port_leads_to_a_pod,
    network_host_port_is_free_again,
    network_pods_have_different_addresses,
    network_low_ports_are_the_pods,
];

async fn serving(cri: &Cri, pod: v1::PodSandboxConfig) -> Result<(StartedContainer, String)> {
    let script = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www";
    let running = cri.running_as(pod, cri.container(script)).await?;
    let network = cri.pod_status(&running.sandbox).await?.network.unwrap_or_default();
    Ok((running, network.ip))
}

/// Retries until it gets a response or times out.
async fn fetch(address: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut last = anyhow::anyhow!("never tried");
    for _ in 0..50 {
        let attempt = async {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            anyhow::Ok(text)
        };
        match tokio::time::timeout(std::time::Duration::from_secs(2), attempt).await {
            Ok(Ok(text)) => return Ok(text),
            Ok(Err(error)) => last = error,
            Err(_) => last = anyhow::anyhow!("no answer"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    Err(last)
}

async fn network_pod_has_an_address(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.networked_pod()).await?;
    let ip = cri.pod_status(&id).await?.network.unwrap_or_default().ip;
    ensure!(ip.parse::<std::net::Ipv4Addr>().is_ok(), "{ip:?}");
    Ok(())
}

async fn network_pod_address_is_gone_when_stopped(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.networked_pod()).await?;
    cri.stop_pod(&id).await?;
    ensure!(cri.pod_status(&id).await?.network.unwrap_or_default().ip.is_empty());
    Ok(())
}

async fn network_pod_sees_its_address(cri: &Cri) -> Result<()> {
    let running =
        cri.running_as(cri.networked_pod(), cri.container("ip -4 -o addr show eth0")).await?;
    cri.until_ended(&running.id).await?;
    let ip = cri.pod_status(&running.sandbox).await?.network.unwrap_or_default().ip;
    ensure!(running.output()?.contains(&format!("inet {ip}/")), "{}", running.output()?);
    Ok(())
}

async fn network_pod_has_a_loopback(cri: &Cri) -> Result<()> {
    let (exit, printed) =
        cri.ran(cri.networked_pod(), cri.container("ip -o addr show lo | grep 127.0.0.1")).await?;
    ensure!(exit == 0, "{printed}");
    Ok(())
}

async fn network_pod_has_its_own_name(cri: &Cri) -> Result<()> {
    let (_, printed) = cri.ran(cri.networked_pod(), cri.container("hostname")).await?;
    ensure!(printed == "pod-host\n", "{printed:?}");
    Ok(())
}

async fn network_host_reaches_a_pod(cri: &Cri) -> Result<()> {
    let (_running, ip) = serving(cri, cri.networked_pod()).await?;
    ensure!(fetch(&format!("{ip}:80")).await?.contains("served"));
    Ok(())
}

async fn network_pod_reaches_a_pod(cri: &Cri) -> Result<()> {
    let (_running, ip) = serving(cri, cri.networked_pod()).await?;
    fetch(&format!("{ip}:80")).await?;
    let script = format!("wget -q -O - http://{ip}/");
    let (_, printed) = cri.ran(cri.networked_pod(), cri.container(&script)).await?;
    ensure!(printed == "served\n", "{printed:?}");
    Ok(())
}

fn with_port(cri: &Cri, host_port: i32) -> v1::PodSandboxConfig {
    let mut pod = cri.networked_pod();
    pod.port_mappings.push(v1::PortMapping {
        protocol: v1::Protocol::Tcp.into(),
        container_port: 80,
        host_port,
        host_ip: String::new(),
    });
    pod
}

async fn network_host_port_leads_to_a_pod(cri: &Cri) -> Result<()> {
    let (_running, _) = serving(cri, with_port(cri, 18080)).await?;
    ensure!(fetch("172.31.255.1:18080").await?.contains("served"), "by the node's address");
    ensure!(fetch("127.0.0.1:18080").await?.contains("served"), "by the loopback");
    Ok(())
}

async fn network_host_port_is_free_again(cri: &Cri) -> Result<()> {
    let first = cri.run(&with_port(cri, 18081)).await?;
    cri.remove_pod(&first).await?;
    let (_running, _) = serving(cri, with_port(cri, 18081)).await?;
    ensure!(fetch("172.31.255.1:18081").await?.contains("served"));
    Ok(())
}

async fn network_pods_have_different_addresses(cri: &Cri) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let id = cri.run(&cri.networked_pod()).await?;
        seen.insert(cri.pod_status(&id).await?.network.unwrap_or_default().ip);
    }
    ensure!(seen.len() == 3, "{seen:?}");
    Ok(())
}

async fn network_low_ports_are_the_pods(cri: &Cri) -> Result<()> {
    let mut config = cri.container("nc -l -p 80 & sleep 0.2; kill $! && echo bound");
    let security = crate::support::security(&mut config);
    security.run_as_user = Some(v1::Int64Value { value: 1000 });
    security.capabilities =
        Some(v1::Capability { drop_capabilities: vec!["ALL".to_owned()], ..Default::default() });
    let (_, printed) = cri.ran(cri.networked_pod(), config).await?;
    ensure!(printed.contains("bound"), "{printed:?}");
    Ok(())
}
