//! Attacks by pods, images and clients. Each case tries one, and shows with a control that it would
//! succeed without the runtime's protection.

use std::os::linux::net::SocketAddrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cri_wire::v1;
use real_tests::embedded::BRIDGE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;

use super::cases;
use crate::support::{Cri, StartedContainer, VOLUMES, code, security, texts};

cases![
    hostile_child_that_gets_no_turn_is_no_silent_one,
    hostile_child_that_prints_for_ever_ends_with_the_exec,
    hostile_command_that_never_reads_ends_with_its_client,
    hostile_depth_of_a_root_keeps_nothing_from_being_removed,
    hostile_pod_cannot_reach_the_hosts_loopback,
    hostile_pod_on_the_hosts_network_finds_no_socket,
    hostile_source_that_becomes_a_link_is_not_followed,
    hostile_volumes_of_an_image_stay_inside,
    hostile_writes_to_the_pods_files_fill_nothing,
    hostile_swap_of_a_mount_target_leads_nowhere,
];

/// The number of processes of the container with the word in their command line.
async fn count(cri: &Cri, id: &str, word: &str) -> Result<usize> {
    let answer = cri.exec(id, &["ps", "-o", "args"], 10).await?;
    Ok(String::from_utf8_lossy(&answer.stdout).lines().filter(|line| line.contains(word)).count())
}

async fn until_gone(cri: &Cri, id: &str, word: &str) -> Result<()> {
    let begun = Instant::now();
    while count(cri, id, word).await? > 0 {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{word} is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Of the class of CVE-2022-31030: the timeout also applies to a command's children. This one would
/// print forever, and the exec would wait for it.
async fn hostile_child_that_prints_for_ever_ends_with_the_exec(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    let begun = Instant::now();
    let script = "while :; do echo 5151; done & exit 0";
    let answered = cri.exec(&running.id, &["sh", "-c", script], 2).await;
    ensure!(code(answered)? == Code::DeadlineExceeded);
    ensure!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    until_gone(cri, &running.id, "5151").await?;
    // A child that stays without printing does not delay the exec, and may stay.
    let script = "sleep 6161 & echo said";
    let answer = cri.exec(&running.id, &["sh", "-c", script], 30).await?;
    ensure!(answer.stdout == b"said\n" && answer.exit_code == 0, "{answer:?}");
    ensure!(count(cri, &running.id, "6161").await? == 1);
    Ok(())
}

/// Sets the container's CPU quota.
async fn give(cri: &Cri, id: &str, cpu_quota: i64) -> Result<()> {
    let linux =
        v1::LinuxContainerResources { cpu_period: 1_000_000, cpu_quota, ..Default::default() };
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(linux),
        ..Default::default()
    };
    cri.rt().update_container_resources(request).await?;
    Ok(())
}

/// A child that prints forever runs for a few milliseconds of each second. The pause between two
/// runs is longer than the exec waits for output, and must not count as silence.
async fn hostile_child_that_gets_no_turn_is_no_silent_one(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    give(cri, &running.id, 20_000).await?;
    let script = "while :; do echo 8181; done & : > /tmp/over; exit 0";
    let answered = cri.exec(&running.id, &["sh", "-c", script], 12).await;
    give(cri, &running.id, 1_000_000).await?;
    ensure!(code(answered)? == Code::DeadlineExceeded);
    let over = cri.exec(&running.id, &["test", "-e", "/tmp/over"], 30).await?;
    ensure!(over.exit_code == 0, "the command itself was not over: nothing is shown");
    until_gone(cri, &running.id, "8181").await
}

/// The client sends more than the command reads, and disconnects.
async fn hostile_command_that_never_reads_ends_with_its_client(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    let request = v1::ExecRequest {
        container_id: running.id.clone(),
        cmd: texts(&["sleep", "7171"]),
        stdin: true,
        stdout: true,
        ..Default::default()
    };
    let url = cri.rt().exec(request).await?.into_inner().url;
    let mut client = upgraded(&url).await?;
    let mut message = vec![0x82, 0xff];
    message.extend(500_001_u64.to_be_bytes());
    // The mask and the channel are zero, and so is what is sent.
    message.extend(vec![0; 4 + 500_001]);
    client.write_all(&message).await?;
    let begun = Instant::now();
    while count(cri, &running.id, "7171").await? == 0 {
        ensure!(begun.elapsed() < Duration::from_secs(20), "the command never came");
    }
    drop(client);
    until_gone(cri, &running.id, "7171").await
}

/// A connection to a one-time URL, after the response.
async fn upgraded(url: &str) -> Result<tokio::net::TcpStream> {
    let rest = url.strip_prefix("http://").context("an address")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut stream = tokio::net::TcpStream::connect(host).await?;
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
    Ok(stream)
}

/// CVE-2020-8558: `route_localnet` on the bridge lets packets for 127.0.0.1 in from it. A pod that
/// may shape its own network sends some.
async fn hostile_pod_cannot_reach_the_hosts_loopback(cri: &Cri) -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    // 127.0.0.1 is not here any more, but behind the gateway.
    let script = "set -e; gateway=$(ip route | awk '/default/ {print $3}'); \
        ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via $gateway; \
        echo ready; sleep 1000";
    let mut pod = cri.networked_pod();
    let sysctls = [("net.ipv4.conf.all.route_localnet", "1"), ("net.ipv4.conf.all.rp_filter", "0")];
    pod.linux.get_or_insert_default().sysctls =
        sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    // Without a host port the door is not there at all.
    pod.port_mappings.push(v1::PortMapping {
        host_port: 18_009,
        container_port: 9,
        ..Default::default()
    });
    let mut config = cri.container(script);
    security(&mut config).capabilities = Some(v1::Capability {
        add_capabilities: vec!["NET_ADMIN".to_owned()],
        ..Default::default()
    });
    let running = cri.running_as(pod, config).await?;
    let begun = Instant::now();
    while !running.output().is_ok_and(|printed| printed.contains("ready")) {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{:?}", running.lines());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let knock = format!("echo knock | nc -w 2 127.0.0.1 {port}");
    let guarded = cri.exec(&running.id, &["sh", "-c", &knock], 10).await?;
    ensure!(guarded.exit_code != 0, "a pod reached the host's loopback");
    let came = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    ensure!(came.is_err(), "a pod reached the host's loopback");
    // Without the rules the same way is open. Every pod that another case starts brings them back.
    for _ in 0..10 {
        let taken = tokio::task::spawn_blocking(|| {
            netlink::NetlinkSocket::firewall()?.remove_table(&format!("keelson-{BRIDGE}"))
        });
        taken.await??;
        let command = ["sh", "-c", &knock];
        let knocking = cri.exec(&running.id, &command, 10);
        // Closed at once, so that the client in the pod ends.
        let opening = async { listener.accept().await.map(drop) };
        let limit = Duration::from_secs(4);
        let (_, came) = tokio::join!(knocking, tokio::time::timeout(limit, opening));
        if let Ok(came) = came {
            return Ok(came?);
        }
    }
    anyhow::bail!("the control failed: nothing comes even without the rules")
}

/// CVE-2020-15257: a pod on the host's network can reach every abstract socket there, with any
/// user.
async fn hostile_pod_on_the_hosts_network_finds_no_socket(cri: &Cri) -> Result<()> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name("keelson-control")?;
    let control = std::os::unix::net::UnixListener::bind_addr(&address)?;
    // Another pod has its supervisor, too.
    let other = cri.running("sleep 1000").await?;
    let (exit, printed) = cri.script("cat /proc/net/unix").await?;
    ensure!(exit == 0, "{printed}");
    let found: Vec<&str> =
        printed.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
    ensure!(found.contains(&"@keelson-control"), "the control failed: {printed}");
    let others: Vec<_> =
        found.iter().filter(|name| name.starts_with('@') && **name != "@keelson-control").collect();
    ensure!(others.is_empty(), "abstract sockets: {others:?}");
    drop((control, other));
    Ok(())
}

/// CVE-2022-23648: an image's volumes at symlinks and at paths with `..`. They contain nothing of
/// the host, and nothing is created on the host.
async fn hostile_volumes_of_an_image_stay_inside(cri: &Cri) -> Result<()> {
    ensure!(Path::new("/etc/shadow").exists(), "the control failed: nothing to be stolen");
    let script = "ls -A /absolute /relative /etc; mount | grep -c ' /led/up '; \
        echo mine > /led/up/file; cat /led/up/file";
    let mut config = cri.container(script);
    config.image = Some(v1::ImageSpec { image: VOLUMES.to_owned(), ..Default::default() });
    let running = cri.running_as(cri.pod(), config).await?;
    cri.until_ended(&running.id).await?;
    let printed = running.output()?;
    ensure!(!printed.contains("shadow"), "a file of the machine: {printed}");
    ensure!(printed.ends_with("1\nmine\n"), "a volume inside: {printed}");
    ensure!(!Path::new("/led").exists(), "made on the machine");
    Ok(())
}

/// Exchanges two names repeatedly, as fast as possible.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<std::io::Result<u64>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
                swaps += 1;
            }
            Ok(swaps)
        });
        Self { stop, thread }
    }

    fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let swaps = self.thread.join().map_err(|_| anyhow::anyhow!("the swapper panicked"))?;
        swaps.context("exchange two names")
    }
}

/// CVE-2021-30465: a container that shares a volume swaps the directory in it that is a mount
/// target for a symlink out of the root, between the check and the mount.
async fn hostile_swap_of_a_mount_target_leads_nowhere(cri: &Cri) -> Result<()> {
    let place = |name: &str| cri.dir.join(name);
    for dir in ["shared/spot", "inner", "victim"] {
        std::fs::create_dir_all(place(dir))?;
    }
    std::fs::write(place("inner/mark"), "inner\n")?;
    std::os::unix::fs::symlink(place("victim"), place("shared/link"))?;
    // The control: by the machine's view the link does lead there.
    std::fs::create_dir(place("shared/link/control"))?;
    std::fs::remove_dir(place("victim/control"))?;
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let swapper = Swapper::start(place("shared/spot"), place("shared/link"));
    let mut ran = 0;
    let mut outcome = Ok(());
    for _ in 0..30 {
        match swapped(cri, (&sandbox, &pod)).await {
            Ok(inside) => ran += u32::from(inside),
            Err(error) => outcome = Err(error),
        }
        let found: Vec<_> = std::fs::read_dir(place("victim"))?.collect();
        if outcome.is_ok() && !found.is_empty() {
            outcome = Err(anyhow::anyhow!("made on the machine: {found:?}"));
        }
        if outcome.is_err() {
            break;
        }
    }
    let swaps = swapper.end()?;
    outcome?;
    ensure!(swaps > 0 && ran > 0, "{swaps} swaps, {ran} of 30 containers ran: nothing was tried");
    Ok(())
}

/// One container with a mount on what is being swapped. It may be refused; if it runs, the mount is
/// inside its root, at the directory or at the symlink's target there. Returns whether it ran.
async fn swapped(cri: &Cri, (sandbox, pod): (&str, &v1::PodSandboxConfig)) -> Result<bool> {
    let mount = |host: &str, target: &str| v1::Mount {
        host_path: cri.dir.join(host).display().to_string(),
        container_path: target.to_owned(),
        ..Default::default()
    };
    let mut config = cri.container("grep -c '/inner /' /proc/self/mountinfo");
    config.mounts = vec![mount("shared", "/shared"), mount("inner", "/shared/spot/deep")];
    let Ok(id) = cri.create(sandbox, pod, &config).await else { return Ok(false) };
    let started = cri.start(&id).await.is_ok();
    if started {
        cri.until_ended(&id).await?;
        let log = cri.dir.join(&config.log_path);
        let running =
            StartedContainer { pod: pod.clone(), sandbox: sandbox.to_owned(), id: id.clone(), log };
        let printed = running.output()?;
        ensure!(printed == "1\n", "its mount is not inside: {printed:?}");
    }
    cri.remove(&id).await?;
    Ok(started)
}

/// The number of files and directories a container has written, from its statistics.
async fn written(cri: &Cri, id: &str) -> Result<u64> {
    let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
    let stats = cri.rt().container_stats(request).await?.into_inner().stats;
    let inodes = stats.and_then(|stats| stats.writable_layer?.inodes_used);
    Ok(inodes.map_or(0, |count| count.value))
}

/// A tree in its root that is deeper than PATH_MAX: it is counted, it is removed with its
/// container, and it does not affect the removal of other containers.
async fn hostile_depth_of_a_root_keeps_nothing_from_being_removed(cri: &Cri) -> Result<()> {
    // Each round moves the existing tree below a thousand more directories.
    let script = "set -e; path=d; for i in 1 2 3 4 5 6 7 8 9 10; do path=$path/$path; done; \
        mkdir /deep; for i in $(seq 4); do mkdir -p /new/$path; mv /deep /new/$path/deep; \
        mv /new /deep; done; echo made; sleep 1000";
    let running = cri.running(script).await?;
    let other = cri.running("echo x > /file; sleep 1000").await?;
    let begun = Instant::now();
    while !running.output().is_ok_and(|printed| printed.contains("made")) {
        ensure!(begun.elapsed() < Duration::from_secs(40), "{:?}", running.lines());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while written(cri, &running.id).await? < 4096 {
        ensure!(begun.elapsed() < Duration::from_secs(50), "what it has written is not counted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cri.remove(&running.id).await.context("RemoveContainer of the deep one")?;
    cri.remove(&other.id).await.context("RemoveContainer of the other")?;
    let bed = cri.dir.ancestors().nth(2).context("the bed's folder")?;
    let trash = bed.join("k").join("root").join("images").join("trash");
    let left: Vec<_> = std::fs::read_dir(&trash)?.collect();
    ensure!(left.is_empty(), "in the trash: {left:?}");
    Ok(())
}

/// Of the class of CVE-2020-8557: the files that every container gets are on the host, beside the
/// runtime's state.
async fn hostile_writes_to_the_pods_files_fill_nothing(cri: &Cri) -> Result<()> {
    // More than a pod may have, less than would hurt this machine if it could.
    let script = "for file in hostname hosts resolv.conf; do \
        head -c 100000000 /dev/zero 2> /dev/null > /etc/$file && echo $file; : > /etc/$file; done; \
        echo kept > /etc/hosts; cat /etc/hosts; head -c 100000000 /dev/zero > /etc/hostname; \
        sleep 1000";
    let running = cri.running_as(cri.networked_pod(), cri.container(script)).await?;
    let bed = cri.dir.ancestors().nth(2).context("the bed's folder")?;
    let state = bed.join("k/state");
    let begun = Instant::now();
    while !running.output().is_ok_and(|printed| printed.contains("kept")) {
        ensure!(begun.elapsed() < Duration::from_secs(30), "{:?}", running.lines());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(running.output()? == "kept\n", "written without end: {}", running.output()?);
    // They are on a file system of their own, not on the state directory's.
    use std::os::unix::fs::MetadataExt as _;
    let shared = state.join("pods").join(&running.sandbox[..16]).join("shared/hostname");
    let (own, around) = (std::fs::metadata(&shared)?, std::fs::metadata(&state)?);
    ensure!(own.dev() != around.dev(), "{} is on the state folder's", shared.display());
    cri.remove_pod(&running.sandbox).await?;
    ensure!(!shared.exists(), "{} is left", shared.display());
    Ok(())
}

/// A volume's directory is swapped for a symlink between the check of its path and the start.
async fn hostile_source_that_becomes_a_link_is_not_followed(cri: &Cri) -> Result<()> {
    let place = |name: &str| cri.dir.join(name);
    for (dir, mark) in [("victim", "victim"), ("source", "mine")] {
        std::fs::create_dir_all(place(dir))?;
        std::fs::write(place(dir).join("mark"), mark)?;
    }
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    for swapped in [false, true] {
        let mut config = cri.container("cat /volume/mark");
        config.mounts = vec![v1::Mount {
            host_path: place("source").display().to_string(),
            container_path: "/volume".to_owned(),
            ..Default::default()
        }];
        let id = cri.create(&sandbox, &pod, &config).await?;
        if swapped {
            std::fs::rename(place("source"), place("aside"))?;
            std::os::unix::fs::symlink(place("victim"), place("source"))?;
        }
        let started = cri.start(&id).await;
        ensure!(started.is_ok() != swapped, "swapped: {swapped}, {started:?}");
    }
    Ok(())
}
