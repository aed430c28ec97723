//! Real CNI plugins under `keelson cri`: their input, the stored results, and that they leave
//! nothing: not after a removal, a failed pod, or a server that was killed.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use node_testkit::bed::{Bed, BedTest, NODE_ADDRESS};
use node_testkit::images;
use node_testkit::start::get;
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};

use super::calls::{self, RuntimeClient};

const LEASES: &str = "/var/lib/cni/networks/bed";
const NEEDS: &[&str] = &["cni-plugins"];

/// A bridge with addresses and host ports; the last plugin fails on request.
fn configuration() -> String {
    serde_json::json!({
        "cniVersion": "1.1.0",
        "name": "bed",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": "10.88.0.0/16" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": false },
            { "type": "moody" },
        ],
    })
    .to_string()
}

/// A plugin that passes its input on, or fails for the command that the file beside it names.
const REFUSING_PLUGIN: &str = r#"#!/bin/sh
input=$(cat)
here=$(dirname "$0")
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS" >> "$here/calls"
if grep -qx "$CNI_COMMAND" "$here/refuses" 2>/dev/null; then
  echo '{"cniVersion": "1.1.0", "code": 50, "msg": "not in the mood", "details": "at all"}'
  exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
  echo "$input" | sed 's/.*"prevResult"://; s/,"type":"moody"}$//'
fi
"#;

struct PluginTest<'a> {
    bed: &'a Bed,
    server: Embedded,
    refusing_plugin: std::path::PathBuf,
}

impl<'a> PluginTest<'a> {
    fn set(bed: &'a Bed, programs: &RuntimePrograms) -> Result<Self> {
        let refusing_plugin = bed.create_dir("moody")?;
        let program = refusing_plugin.join("moody");
        fs::write(&program, REFUSING_PLUGIN)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let options = EmbeddedOptions {
            cni: Some(configuration()),
            more_plugins: vec![refusing_plugin.clone()],
            collect_garbage: true,
            ..EmbeddedOptions::default()
        };
        let server = Embedded::start(bed, programs, &options)?;
        server.import(&images::busybox()?.oci_archive()?)?;
        Ok(Self { bed, server, refusing_plugin })
    }

    /// From now on this command fails; none if the name is empty.
    fn refuse(&self, command: &str) -> Result<()> {
        Ok(fs::write(self.refusing_plugin.join("refuses"), format!("{command}\n"))?)
    }

    fn calls(&self) -> Result<String> {
        Ok(fs::read_to_string(self.refusing_plugin.join("calls")).unwrap_or_default())
    }

    async fn connect(&self) -> Result<RuntimeClient> {
        calls::connect(&self.server.socket()).await
    }

    /// Checks that nothing of any pod's network exists: links, addresses, host ports, namespaces,
    /// results.
    fn is_clean(&self) -> Result<()> {
        let links = links_that_stay()?;
        ensure!(links.is_empty(), "links are left: {links}");
        let leases = addresses()?;
        ensure!(leases.is_empty(), "addresses are left: {leases:?}");
        let rules = stdout_of(Command::new("iptables-save").args(["-t", "nat"]))?;
        ensure!(!rules.contains("CNI-DN-"), "host ports are left: {rules}");
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let pinned = mounts.lines().find(|line| line.starts_with("nsfs "));
        ensure!(pinned.is_none(), "a namespace is left: {pinned:?}");
        for dir in ["cni", "state/cni"] {
            let entries = fs::read_dir(self.server.dir().join(dir));
            let left: Vec<_> = entries.into_iter().flatten().flatten().collect();
            ensure!(left.is_empty(), "in {dir} is left: {left:?}");
        }
        Ok(())
    }
}

fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The pods' links. The kernel removes those of a namespace some time after its last user is gone.
fn links_that_stay() -> Result<String> {
    let begun = Instant::now();
    loop {
        let links = stdout_of(Command::new("ip").args(["-o", "link", "show", "type", "veth"]))?;
        if links.is_empty() || begun.elapsed() > Duration::from_secs(10) {
            return Ok(links);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The addresses that host-local has assigned.
fn addresses() -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(LEASES) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.parse::<std::net::IpAddr>().is_ok() {
            found.push(name);
        }
    }
    Ok(found)
}

#[test]
fn plugins_set_up_and_tear_down_networks() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(2)).run(|bed| {
        let mut stage = PluginTest::set(bed, &programs)?;
        let tasks = calls::tasks()?;
        tasks.block_on(async {
            let mut runtime = stage.connect().await?;
            served(&stage, &mut runtime).await?;
            refused(&stage, &mut runtime).await?;
            let sandbox = half_made(&stage, &mut runtime).await?;
            stage.refuse("")?;
            calls::remove(&mut runtime, &sandbox).await?;
            stage.is_clean()?;
            half_made(&stage, &mut runtime).await
        })?;
        // The next server tries again by itself.
        stage.refuse("")?;
        stage.server.kill_and_start(bed)?;
        ensure!(addresses()?.is_empty(), "an address is left: {:?}", addresses()?);
        tasks.block_on(judged(&stage))
    })
}

/// A set-up that fails and cannot be undone: the runtime keeps it as a pod that is not ready.
async fn half_made(stage: &PluginTest<'_>, runtime: &mut RuntimeClient) -> Result<String> {
    stage.refuse("ADD\nDEL")?;
    let result = calls::run(runtime, &calls::pod("half", &stage.bed.logs())).await;
    ensure!(result.is_err(), "a pod without a network was made");
    ensure!(addresses()?.len() == 1, "the plugins' address: {:?}", addresses()?);
    let list = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner();
    let [left] = list.items.as_slice() else { bail!("the pod is not told of: {list:?}") };
    ensure!(left.state == v1::PodSandboxState::SandboxNotready as i32, "{left:?}");
    // Its processes are gone, which is all that a stop promises; its record stays.
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: left.id.clone() };
    runtime.stop_pod_sandbox(stop).await?;
    ensure!(calls::remove(runtime, &left.id).await.is_err(), "an address was forgotten");
    Ok(left.id.clone())
}

/// A pod with a host port: reachable by its address and the node's, with the CNI result where tools
/// look.
async fn served(stage: &PluginTest<'_>, runtime: &mut RuntimeClient) -> Result<()> {
    let mut pod = calls::pod("web", &stage.bed.logs());
    pod.port_mappings.push(v1::PortMapping {
        protocol: v1::Protocol::Tcp.into(),
        container_port: 80,
        host_port: 18080,
        host_ip: String::new(),
    });
    let sandbox = calls::run(runtime, &pod).await?;
    let script = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www";
    calls::start(runtime, (&sandbox, &pod), script).await?;
    let address = calls::address(runtime, &sandbox).await?;
    ensure!(address.starts_with("10.88."), "{address}");
    ensure!(addresses()? == [address.clone()], "{:?}", addresses()?);
    for place in [format!("{address}:80"), format!("{NODE_ADDRESS}:18080")] {
        until_served(place.parse()?)?;
    }
    let cached = stage.server.dir().join("cni").join(format!("bed-{sandbox}-eth0"));
    let cached: serde_json::Value =
        serde_json::from_slice(&fs::read(&cached).with_context(|| cached.display().to_string())?)?;
    ensure!(cached["kind"] == "cniCacheV1" && cached["containerId"] == *sandbox, "{cached}");
    ensure!(cached["result"]["ips"][0]["address"] == format!("{address}/16"), "{cached}");
    let actual = stage.calls()?;
    ensure!(actual.contains("K8S_POD_NAME=web") && actual.contains(" eth0 "), "{actual}");
    calls::remove(runtime, &sandbox).await?;
    stage.is_clean()
}

/// A plugin that fails: its message is reported, the other plugins' work is undone, and the
/// condition NetworkReady follows its STATUS.
async fn refused(stage: &PluginTest<'_>, runtime: &mut RuntimeClient) -> Result<()> {
    stage.refuse("ADD")?;
    let result = calls::run(runtime, &calls::pod("refused", &stage.bed.logs())).await;
    let words = format!("{:#}", result.err().context("a pod without a network was made")?);
    ensure!(words.contains("not in the mood; at all"), "{words}");
    ensure!(stage.calls()?.contains("DEL "), "no DEL after a refused ADD: {}", stage.calls()?);
    stage.is_clean()?;
    let list = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?;
    ensure!(list.get_ref().items.is_empty(), "a refused pod is listed");
    stage.refuse("STATUS")?;
    let (ready, words) = network_ready(runtime).await?;
    ensure!(!ready && words.contains("not in the mood"), "{words}");
    stage.refuse("")?;
    let (ready, words) = network_ready(runtime).await?;
    ensure!(ready, "{words}");
    // A pod that cannot be taken down stays until it can.
    let sandbox = calls::run(runtime, &calls::pod("stays", &stage.bed.logs())).await?;
    stage.refuse("DEL")?;
    ensure!(calls::remove(runtime, &sandbox).await.is_err(), "a failed DEL was not told");
    stage.refuse("")?;
    calls::remove(runtime, &sandbox).await?;
    stage.is_clean()
}

async fn network_ready(runtime: &mut RuntimeClient) -> Result<(bool, String)> {
    let answer = runtime.status(v1::StatusRequest::default()).await?.into_inner();
    let conditions = answer.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.r#type == "NetworkReady");
    let found = found.context("a condition")?;
    Ok((found.status, format!("{}: {}", found.reason, found.message)))
}

fn until_served(place: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    loop {
        match get(place, "/") {
            Ok(answer) if answer.body == "served\n" => return Ok(()),
            Ok(answer) => bail!("{place} says {answer:?}"),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Kills at different instants from round to round while pods are created: afterwards every listed
/// pod has its own address, and when they are removed nothing is left.
#[test]
fn plugins_leave_nothing_when_the_server_is_killed() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(3)).run(|bed| {
        let mut stage = PluginTest::set(bed, &programs)?;
        let kills = std::env::var("KEELSON_KILLS").ok().and_then(|text| text.parse().ok());
        let tasks = calls::tasks()?;
        for round in 0..kills.unwrap_or(5_u64) {
            let asked = tasks.block_on(async {
                let runtime = stage.connect().await?;
                let mut asked = Vec::new();
                for number in 0..3 {
                    let mut runtime = runtime.clone();
                    let pod = calls::pod(&format!("pod-{round}-{number}"), &stage.bed.logs());
                    // What becomes of it is seen afterwards.
                    asked.push(tokio::spawn(async move {
                        calls::run(&mut runtime, &pod).await.map(drop)
                    }));
                }
                tokio::time::sleep(Duration::from_millis(20 + round * 97 % 400)).await;
                anyhow::Ok(asked)
            })?;
            stage.server.process().kill()?;
            // A call that was not sent yet must not reach the next server.
            for call in asked {
                drop(tasks.block_on(call));
            }
            stage.server.kill_and_start(bed)?;
        }
        tasks.block_on(judged(&stage))?;
        tasks.block_on(async {
            let mut runtime = stage.connect().await?;
            calls::run(&mut runtime, &calls::pod("lost", &bed.logs())).await
        })?;
        // Its record is lost with the disk's luck: the kept result still knows how to undo it.
        stage.server.process().kill()?;
        forget_records(&stage.server.dir().join("root/runtime"))?;
        stage.server.kill_and_start(bed)?;
        ensure!(stage.calls()?.contains("GC "), "no plugin was told what still counts");
        stage.is_clean()
    })
}

fn forget_records(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            forget_records(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

async fn judged(stage: &PluginTest<'_>) -> Result<()> {
    let mut runtime = stage.connect().await?;
    let list = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner();
    let mut actual = Vec::new();
    for sandbox in &list.items {
        if sandbox.state == v1::PodSandboxState::SandboxReady as i32 {
            actual.push(calls::address(&mut runtime, &sandbox.id).await?);
        }
    }
    let mut leased = addresses()?;
    leased.sort();
    actual.sort();
    ensure!(actual == leased, "addresses of pods {actual:?}, of the plugin {leased:?}");
    for sandbox in &list.items {
        calls::remove(&mut runtime, &sandbox.id).await?;
    }
    stage.is_clean()
}
