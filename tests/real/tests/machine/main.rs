//! The cgroup v2 machine: one boot per test run, which shows everything about cgroups, systemd,
//! swap and logind once. Other tests that need the machine are added to this boot.

mod pods;
mod runtime;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::machine::{self, Payload, fact};
use node_testkit::{images, parts};

const SWAP_MB: u32 = 256;
/// The script's exit status. Any status but those that shells and emulators give by themselves.
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
systemd-run --quiet --unit=keelson --property=Type=notify --property=WatchdogSec=10 \
    --setenv=PATH="$PATH" keelson kubelet --config=/run/kubelet.yaml || journalctl --no-pager -u keelson
# Longer than the watchdog's time: only an agent that pings is still there afterwards.
sleep 13
echo "agent: $(systemctl is-active keelson)"
echo "agent status: $(systemctl show keelson --property=StatusText --value)"
systemctl stop keelson
echo "agent result: $(systemctl show keelson --property=Result --value)"
systemctl stop containerd
"#;

/// True with the verb `machine`; otherwise only what `cargo xtask test` has time for.
fn whole() -> bool {
    std::env::var_os("KEELSON_MACHINE_WHOLE").is_some()
}

/// The programs that the payload finds in `/payload/bin`. Ours are the binary and, because it is
/// small and started for each pod, the supervisor beside it.
fn programs(keelson: &(PathBuf, PathBuf)) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut wanted = vec![
        ("containerd", "containerd"),
        ("containerd", "containerd-shim-runc-v2"),
        ("containerd", "ctr"),
        ("runc", "runc"),
    ];
    if whole() {
        wanted.push(("kubelet", "kubelet"));
    }
    let parts = wanted.into_iter().map(|(part, program)| {
        Ok((PathBuf::from("bin").join(program), parts::program(part, program)?))
    });
    let own = [("bin/keelson", keelson.0.clone()), ("bin/keelson-pod", keelson.1.clone())];
    parts.chain(own.map(|(name, path)| Ok((PathBuf::from(name), path)))).collect()
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
fn the_machine_shows_every_fact_in_one_boot() -> Result<()> {
    // Built before the bed, which has no network.
    let machine = machine::ensure()?;
    let keelson = (
        node_testkit::programs::build("keelson", "keelson")?,
        node_testkit::programs::build("pod-supervisor", "keelson-pod")?,
    );
    let archives = archives()?;
    let deadline = Duration::from_secs(if whole() { 3600 } else { 1500 });
    let test = BedTest::new().deadline(deadline + Duration::from_secs(20));
    let needs: &[&str] =
        if whole() { &["containerd", "runc", "kubelet"] } else { &["containerd", "runc"] };
    test.needs(needs).run(|_bed| {
        let busybox = images::BUSYBOX;
        let all = if whole() { "1" } else { "" };
        let script = format!(
            "{SCRIPT}\nBUSYBOX={busybox}\nWHOLE={all}\n{}\n{}\nexit {STATUS}\n",
            pods::SCRIPT,
            runtime::SCRIPT
        );
        let payload = Payload {
            files: programs(&keelson)?.into_iter().chain(archives).collect(),
            script: Some(script),
            swap_mb: SWAP_MB,
            deadline,
            ..Payload::default()
        };
        let outcome = machine.run_into(&payload, &mut std::io::stdout())?;
        println!("machine: {:.0} s from power-on to power-off", outcome.elapsed.as_secs_f64());
        let output = &outcome.output;
        ensure!(outcome.status == STATUS, "status {}, output:\n{output}", outcome.status);
        check_machine(output)?;
        check_agent(output)?;
        ["systemd", "cgroupfs"].iter().try_for_each(|driver| check_driver(output, driver))
    })
}

fn check_machine(output: &str) -> Result<()> {
    ensure!(fact(output, "cgroup file system")? == "cgroup2fs", "{output}");
    for controller in ["cpu", "cpuset", "io", "memory", "pids"] {
        let all = fact(output, "controllers")?;
        ensure!(all.split(' ').any(|one| one == controller), "no {controller} in {all:?}");
    }
    ensure!(fact(output, "first process")? == "systemd", "{output}");
    ensure!(fact(output, "logind")?.starts_with("s \""), "logind did not answer:\n{output}");
    let swap_kb: u32 = fact(output, "swap")?.parse().context("swap in kB")?;
    // The swap area's header takes a page.
    ensure!(swap_kb.abs_diff(SWAP_MB * 1024) <= 64, "{swap_kb} kB of swap");
    for part in ["containerd", "runc"] {
        let pinned = parts::version(part)?;
        let found = fact(output, part)?;
        ensure!(
            found.trim_start_matches('v') == pinned.trim_start_matches('v'),
            "{part} in the machine is {found:?}, pinned is {pinned}"
        );
    }
    Ok(())
}

fn check_agent(output: &str) -> Result<()> {
    let version = parts::version("containerd")?;
    ensure!(fact(output, "keelson sees")?.contains(&version), "no CRI answer:\n{output}");
    let refused = fact(output, "refusal")? == "1";
    ensure!(refused, "swap is on, and the default refuses that:\n{output}");
    ensure!(fact(output, "agent")? == "active", "the agent is not running:\n{output}");
    ensure!(fact(output, "agent status")?.contains("container runtime"), "{output}");
    let result = fact(output, "agent result")?;
    ensure!(result == "success", "the agent did not end cleanly:\n{output}");
    Ok(())
}

fn check_driver(output: &str, driver: &str) -> Result<()> {
    pods::check(output, driver, whole())?;
    for (name, expected) in runtime::facts(driver, whole()) {
        let actual = fact(output, &format!("{driver} runtime {name}"))?;
        ensure!(
            actual == expected,
            "{driver} runtime {name}: {actual:?}, not {expected:?}:\n{output}"
        );
    }
    let actual = fact(output, &format!("{driver} runtime driver"))?;
    ensure!(actual == driver, "the runtime tells the driver {actual:?}, not {driver:?}");
    Ok(())
}
