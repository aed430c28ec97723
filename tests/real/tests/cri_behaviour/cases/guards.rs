//! The embedded runtime's protection of the host: where packets go, which clients are served, which
//! files are written. Each case shows with a control that the attempt would have an effect.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cri_wire::v1;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::cases;
use crate::support::{Cri, texts};

cases![
    guard_foreign_addresses_are_not_taken_over_by_a_host_port,
    guard_half_sent_requests_keep_no_exec_waiting,
    guard_log_that_becomes_a_link_is_not_followed,
    guard_router_advertisements_change_nothing_on_the_machine,
    guard_stats_of_a_pod_without_a_parent_group,
];

async fn guard_foreign_addresses_are_not_taken_over_by_a_host_port(cri: &Cri) -> Result<()> {
    let mut pod = cri.networked_pod();
    for host_ip in ["198.51.100.9", "172.31.255.1"] {
        pod.port_mappings.push(v1::PortMapping {
            protocol: v1::Protocol::Tcp.into(),
            container_port: 80,
            host_port: 18_443,
            host_ip: host_ip.to_owned(),
        });
    }
    let script = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www";
    let _running = cri.running_as(pod, cri.container(script)).await?;
    let fetch = |address: &str| format!("timeout 2 wget -q -O - http://{address}:18443/");
    let own = format!("until {}; do sleep 0.1; done; echo; ", fetch("172.31.255.1"));
    let script = format!("{own} {}; echo end", fetch("198.51.100.9"));
    let (_, output) = cri.ran(cri.networked_pod(), cri.container(&script)).await?;
    ensure!(output.ends_with("end\n"), "{output:?}");
    ensure!(output.matches("served").count() == 1, "the foreign address, too: {output:?}");
    Ok(())
}

async fn guard_half_sent_requests_keep_no_exec_waiting(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    let url = async || -> Result<String> {
        let request = v1::ExecRequest {
            container_id: running.id.clone(),
            cmd: texts(&["echo", "answered"]),
            stdout: true,
            ..Default::default()
        };
        Ok(cri.rt().exec(request).await?.into_inner().url)
    };
    let address = url().await?;
    let rest = address.strip_prefix("http://").context("an address")?;
    let (host, _) = rest.split_once('/').context("a path")?;
    let mut held = Vec::new();
    for _ in 0..620 {
        let mut client = tokio::net::TcpStream::connect(host).await?;
        client.write_all(b"GET /exec/none HTTP/1.1\r\nhost: x\r\n").await?;
        held.push(client);
    }
    let begun = Instant::now();
    let url = url().await?;
    let (_, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).context("a path")?;
    let mut client = tokio::net::TcpStream::connect(host).await?;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: v4.channel.k8s.io\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await?;
    let mut output = Vec::new();
    client.read_to_end(&mut output).await?;
    let output = String::from_utf8_lossy(&output);
    ensure!(output.contains("answered"), "{output:?}");
    ensure!(begun.elapsed() < Duration::from_secs(2), "exec took {:?}", begun.elapsed());
    drop(held);
    Ok(())
}

/// What a pod that may write to its log directory can do.
async fn guard_log_that_becomes_a_link_is_not_followed(cri: &Cri) -> Result<()> {
    let victim = cri.dir.join("victim");
    std::fs::write(&victim, "kept")?;
    let running = cri.running("while true; do echo line; sleep 0.02; done").await?;
    let old = running.log.with_extension("old");
    std::fs::rename(&running.log, &old)?;
    std::os::unix::fs::symlink(&victim, &running.log)?;
    // The control: as the machine sees it, the log is the victim.
    ensure!(std::fs::read_to_string(&running.log)? == "kept");
    let request = || v1::ReopenContainerLogRequest { container_id: running.id.clone() };
    ensure!(cri.rt().reopen_container_log(request()).await.is_err(), "it was opened anew");
    let long = std::fs::metadata(&old)?.len();
    let begun = Instant::now();
    while std::fs::metadata(&old)?.len() == long {
        ensure!(begun.elapsed() < Duration::from_secs(10), "nothing is logged any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(&running.log)?;
    cri.rt().reopen_container_log(request()).await?;
    // Also at the start, and the dir between.
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    std::fs::create_dir(cri.dir.join("elsewhere"))?;
    std::os::unix::fs::symlink("elsewhere", cri.dir.join("between"))?;
    std::os::unix::fs::symlink("victim", cri.dir.join("link.log"))?;
    for log_path in ["link.log", "between/0.log"] {
        let config =
            v1::ContainerConfig { log_path: log_path.to_owned(), ..cri.container("echo written") };
        let ran = match cri.create(&sandbox, &pod, &config).await {
            Ok(id) => cri.start(&id).await.is_ok(),
            Err(_) => false,
        };
        ensure!(!ran, "a container with the log {log_path} runs");
    }
    ensure!(std::fs::read_to_string(&victim)? == "kept");
    ensure!(std::fs::read_dir(cri.dir.join("elsewhere"))?.next().is_none());
    Ok(())
}

/// The path of a pod's network namespace.
async fn namespace_of(cri: &Cri, sandbox: &str) -> Result<String> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: true };
    let info = cri.rt().pod_sandbox_status(request).await?.into_inner().info;
    let info: serde_json::Value = serde_json::from_str(info.get("info").context("no info")?)?;
    Ok(info["networkNamespace"].as_str().context("no namespace")?.to_owned())
}

/// Sends three router advertisements with the prefix 2001:db8:bad::/64, as a pod may.
fn advertise(namespace: &str) -> Result<()> {
    use std::os::fd::AsFd as _;
    let namespace = std::fs::File::open(namespace)?;
    let sent = netlink::in_namespace(namespace.as_fd(), || {
        Ok((|| -> Result<()> {
            for (name, value) in [("accept_dad", "0"), ("disable_ipv6", "1"), ("disable_ipv6", "0")]
            {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/eth0/{name}"), value)?;
            }
            let link = netlink::NetlinkSocket::routes()?.link("eth0")?;
            let mut packet = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
            packet.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0]);
            packet.extend("2001:db8:bad::".parse::<Ipv6Addr>()?.octets());
            let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6))?;
            sockopt::set_ipv6_multicast_hops(&raw, 255)?;
            let all_nodes = SocketAddrV6::new("ff02::1".parse()?, 0, 0, link.index);
            for _ in 0..3 {
                // The link gets its address asynchronously.
                let begun = Instant::now();
                while let Err(error) = sendto(&raw, &packet, SendFlags::empty(), &all_nodes) {
                    ensure!(begun.elapsed() < Duration::from_secs(5), "sending: {error}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Ok(())
        })())
    });
    sent?
}

/// Of the class of CVE-2020-10749.
async fn guard_router_advertisements_change_nothing_on_the_machine(cri: &Cri) -> Result<()> {
    let running = cri.running_as(cri.networked_pod(), cri.container("sleep 1000")).await?;
    let namespace = namespace_of(cri, &running.sandbox).await?;
    let learned = || -> Result<bool> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let routed = read("ipv6_route")?.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1] == "00" && words[4] != "0".repeat(32)
        });
        Ok(routed || read("if_inet6")?.contains("20010db80bad"))
    };
    ensure!(!learned()?, "a route or an address is there already");
    advertise(&namespace)?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    ensure!(!learned()?, "the machine has learned a route or an address");
    // The control: a bridge that accepts them.
    let links = netlink::NetlinkSocket::routes()?.links()?;
    let bridge = links.iter().find(|link| {
        link.kind == Some(netlink::LinkKind::Bridge) && link.alias.starts_with("keelson")
    });
    let bridge = &bridge.context("no bridge")?.name;
    for (name, value) in [("accept_ra", "2"), ("autoconf", "1"), ("disable_ipv6", "0")] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{bridge}/{name}"), value)?;
    }
    advertise(&namespace)?;
    let begun = Instant::now();
    while !learned()? {
        ensure!(begun.elapsed() < Duration::from_secs(10), "the control failed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The bridge goes with its last pod.
    cri.remove_pod(&running.sandbox).await?;
    ensure!(!learned()?, "it outlived the bridge");
    Ok(())
}

/// The statistics that `crictl statsp` shows.
async fn guard_stats_of_a_pod_without_a_parent_group(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    pod.linux.get_or_insert_default().cgroup_parent.clear();
    let running = cri.running_as(pod, cri.container("sleep 1000")).await?;
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: running.sandbox.clone() };
    let stats = cri.rt().pod_sandbox_stats(request).await?.into_inner().stats.unwrap_or_default();
    let linux = stats.linux.context("no statistics")?;
    let memory = linux.memory.and_then(|memory| memory.working_set_bytes);
    ensure!(memory.is_some_and(|memory| memory.value > 0), "{memory:?}");
    let cpu = linux.cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    ensure!(cpu.is_some_and(|cpu| cpu.value > 0), "{cpu:?}");
    let processes = linux.process.and_then(|process| process.process_count);
    ensure!(processes.is_some_and(|processes| processes.value == 1), "{processes:?}");
    Ok(())
}
