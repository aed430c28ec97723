//! The cgroup v2 machine: one boot per landing, in which everything that touches cgroups, systemd,
//! swap or logind is shown once. What else needs the machine is added to this boot, not to another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::machine::{self, Payload};
use node_testkit::{images, parts};

const SWAP_MB: u32 = 256;
/// What the script ends with. Any status but those that shells and emulators give by themselves.
const STATUS: i32 = 7;

/// Each fact is one line `name: value`; the payload ends with its own status only when it got that far.
const SCRIPT: &str = r#"#!/bin/sh
PATH=/payload/bin:$PATH
echo "cgroup file system: $(stat -f -c %T /sys/fs/cgroup)"
echo "controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
echo "first process: $(cat /proc/1/comm)"
echo "logind: $(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager BlockInhibited)"
echo "swap: $(sed -n 's/^SwapTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"

systemd-run --quiet --unit=containerd --property=Delegate=yes --setenv=PATH="$PATH" containerd
tries=0
until ctr version > /run/ctr-version 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 120 ]; then
        cat /run/ctr-version
        journalctl --no-pager --unit containerd | tail -n 30
        exit 1
    fi
    sleep 0.5
done
echo "containerd: $(sed -n '/Server:/,$ s/^ *Version: *//p' /run/ctr-version)"
echo "runc: $(runc --version | sed -n 's/^runc version //p')"

socket=unix:///run/containerd/containerd.sock
echo "keelson sees: $(keelson cri-client --runtime-endpoint $socket version | tail -n 1)"
cat > /run/kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: $socket
END
echo "refusal: $(keelson kubelet --config=/run/kubelet.yaml 2>&1 | grep -c failSwapOn)"
echo "failSwapOn: false" >> /run/kubelet.yaml
# Returns when the agent has said READY=1, or has failed.
systemd-run --quiet --unit=keelson --property=Type=notify --property=WatchdogSec=4 \
    --setenv=PATH="$PATH" keelson kubelet --config=/run/kubelet.yaml || journalctl --no-pager -u keelson
# Longer than the watchdog's time: only an agent that pings is still there afterwards.
sleep 6
echo "agent: $(systemctl is-active keelson)"
echo "agent status: $(systemctl show keelson --property=StatusText --value)"
systemctl stop keelson
echo "agent result: $(systemctl show keelson --property=Result --value)"
systemctl stop containerd
"#;

const PODS: &str = include_str!("pods.sh");

/// The programs that the payload finds in `/payload/bin`.
fn programs(keelson: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let wanted = [
        ("containerd", "containerd"),
        ("containerd", "containerd-shim-runc-v2"),
        ("containerd", "ctr"),
        ("runc", "runc"),
    ];
    let parts = wanted.into_iter().map(|(part, program)| {
        Ok((PathBuf::from("bin").join(program), parts::program(part, program)?))
    });
    parts.chain([Ok((PathBuf::from("bin/keelson"), keelson.to_owned()))]).collect()
}

/// Image archives that the payload finds in `/payload/images`.
fn archives() -> Result<Vec<(PathBuf, PathBuf)>> {
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    [("pause.tar", sandbox), ("busybox.tar", images::busybox()?)]
        .into_iter()
        .map(|(name, image)| Ok((PathBuf::from("images").join(name), image.oci_archive()?)))
        .collect()
}

#[test]
fn one_boot_shows_all() -> Result<()> {
    // Built before the bed, which has no network.
    let machine = machine::ensure()?;
    let keelson = node_testkit::programs::build("keelson", "keelson")?;
    let archives = archives()?;
    Test::new().deadline(Duration::from_secs(720)).needs(&["containerd", "runc"]).run(|_bed| {
        let busybox = images::BUSYBOX;
        let script = format!("{SCRIPT}\nBUSYBOX={busybox}\n{PODS}\nexit {STATUS}\n");
        let payload = Payload {
            files: programs(&keelson)?.into_iter().chain(archives).collect(),
            script: Some(script),
            swap_mb: SWAP_MB,
            deadline: Duration::from_secs(700),
            ..Payload::default()
        };
        let outcome = machine.run_into(&payload, &mut std::io::stdout())?;
        println!("machine: {:.0} s from power-on to power-off", outcome.elapsed.as_secs_f64());
        let output = &outcome.output;
        ensure!(outcome.status == STATUS, "status {}, output:\n{output}", outcome.status);

        let fact = |name: &str| -> Result<&str> {
            let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.with_context(|| format!("no line {name:?} in the output:\n{output}"))
        };
        ensure!(fact("cgroup file system")? == "cgroup2fs", "{output}");
        for controller in ["cpu", "cpuset", "io", "memory", "pids"] {
            let all = fact("controllers")?;
            ensure!(all.split(' ').any(|one| one == controller), "no {controller} in {all:?}");
        }
        ensure!(fact("first process")? == "systemd", "{output}");
        ensure!(fact("logind")?.starts_with("s \""), "logind did not answer:\n{output}");
        let swap_kb: u32 = fact("swap")?.parse().context("swap in kB")?;
        // The swap area's header takes a page.
        ensure!(swap_kb.abs_diff(SWAP_MB * 1024) <= 64, "{swap_kb} kB of swap");
        for part in ["containerd", "runc"] {
            let pinned = parts::version(part)?;
            let found = fact(part)?;
            ensure!(
                found.trim_start_matches('v') == pinned.trim_start_matches('v'),
                "{part} in the machine is {found:?}, pinned is {pinned}"
            );
        }
        let version = parts::version("containerd")?;
        ensure!(fact("keelson sees")?.contains(&version), "no CRI answer:\n{output}");
        ensure!(fact("refusal")? == "1", "swap is on, and the default refuses that:\n{output}");
        ensure!(fact("agent")? == "active", "the agent is not running:\n{output}");
        ensure!(fact("agent status")?.contains("container runtime"), "{output}");
        ensure!(fact("agent result")? == "success", "the agent did not end cleanly:\n{output}");
        for driver in ["systemd", "cgroupfs"] {
            for (name, expected) in [
                ("status", "2"),
                ("pod memory.max", "33554432"),
                ("pod cpu.max", "10000 100000"),
                ("pod pids.max", "77"),
                ("container memory.max", "33554432"),
                ("container cpu.max", "10000 100000"),
                ("killed agent", "same container"),
                ("containers left", "0"),
            ] {
                let told = fact(&format!("{driver} {name}"))?;
                ensure!(
                    told == expected,
                    "{driver} {name} is {told:?}, not {expected:?}:\n{output}"
                );
            }
        }
        Ok(())
    })
}
