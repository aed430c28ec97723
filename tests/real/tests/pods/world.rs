//! What a container finds around itself, and what it leaves behind.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::Containerd;
use serde_json::Value;

use crate::desk::{Desk, built, manifest};

const CHECKS: &str = "set -e; \
    grep -q 'Kubernetes-managed hosts file' /etc/hosts; \
    [ \"$POD_NAME\" = world-desk ]; [ \"$SUM\" = \"a-$POD_NAME\" ]; [ \"$(hostname)\" = world-desk ]; \
    mount | grep ' /memory ' | grep -q tmpfs; \
    echo disk > /disk/file; echo sub > /sub/file; [ \"$(cat /host/given)\" = given ]; \
    echo to-the-log; printf left-behind > /dev/termination-log; exit 5";

const REST: &str = "    env:\n    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n    \
    - {name: SUM, value: a-$(POD_NAME)}\n    \
    resources: {limits: {memory: 64Mi, cpu: 500m}}\n    \
    volumeMounts:\n    - {name: disk, mountPath: /disk}\n    - {name: disk, mountPath: /sub, subPath: below}\n    \
    - {name: memory, mountPath: /memory}\n    - {name: host, mountPath: /host, readOnly: true}\n  \
    restartPolicy: Never\n  volumes:\n  - {name: disk, emptyDir: {}}\n  \
    - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}\n  \
    - {name: host, hostPath: {path: /run/bed/given, type: Directory}}\n";

#[test]
fn volumes_environment_hosts_logs_and_last_words() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(|bed| {
        let given = bed.make_folder("given")?;
        fs::write(given.join("given"), "given")?;
        let mut desk = Desk::set_up(bed, &built, "")?;
        desk.write("world.yaml", &manifest("world", CHECKS, REST))?;
        let pod = desk.until("its end", "world", |pod| {
            pod.pointer("/object/status/phase").is_some_and(|phase| phase == "Failed")
        })?;
        let ended = pod
            .pointer("/object/status/containerStatuses/0/state/terminated")
            .with_context(|| format!("{pod:#}"))?;
        ensure!(ended["exitCode"] == 5, "every check went well: {ended:#}");
        ensure!(ended["message"] == "left-behind", "its last words: {ended:#}");
        let log = pod["containers"][0]["logPath"].as_str().context("a log")?.to_owned();
        let text = fs::read_to_string(&log).with_context(|| log.clone())?;
        ensure!(text.contains("stdout F to-the-log"), "{text}");
        let links: Vec<_> = fs::read_dir("/var/log/containers")?.flatten().collect();
        let linked = links
            .iter()
            .any(|link| fs::read_link(link.path()).is_ok_and(|target| target == Path::new(&log)));
        ensure!(linked, "a link to {log}: {links:?}");
        let uid = pod["uid"].as_str().context("a uid")?.to_owned();
        desk.remove("world.yaml")?;
        desk.until_gone("world")?;
        ensure!(!Path::new("/var/lib/kubelet/pods").join(&uid).exists(), "no folder is left");
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        ensure!(!mounts.contains(&uid), "no mount is left: {mounts}");
        Ok(())
    })
}

#[test]
fn probes_and_hooks_of_every_kind() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        let command = "mkdir /www; while [ ! -e /hooked ]; do sleep 0.1; done; \
            (sleep 2; echo ok > /www/ready) & exec httpd -f -p 8080 -h /www";
        let rest = "    lifecycle: {postStart: {exec: {command: [touch, /hooked]}}}\n    \
            ports: [{name: web, containerPort: 8080}]\n    \
            readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 1}\n    \
            livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, initialDelaySeconds: 3}\n    \
            startupProbe: {exec: {command: [test, -e, /www]}, periodSeconds: 1}\n";
        desk.write("web.yaml", &manifest("web", command, rest))?;
        let ready = |pod: &Value| {
            let ready = pod.pointer("/object/status/containerStatuses/0/ready");
            ready.is_some_and(|ready| ready == true)
        };
        let pod = desk.until("ready", "web", ready)?;
        let uid = pod["uid"].as_str().context("a uid")?;
        let detail = desk.ask(&format!("/v1/pods/{uid}"))?;
        let events = detail["events"].to_string();
        ensure!(events.contains("Readiness probe failed: HTTP probe failed with statuscode: 404"), "{events}");
        std::thread::sleep(Duration::from_secs(5));
        let pod = desk.pod("web")?;
        ensure!(ready(&pod), "{pod:#}");
        let restarts = pod.pointer("/object/status/containerStatuses/0/restartCount");
        ensure!(restarts.is_some_and(|count| count == 0), "alive: {pod:#}");
        desk.remove("web.yaml")?;
        desk.until_gone("web")
    })
}

#[test]
fn a_broken_manifest_keeps_its_pod_and_what_nobody_wants_goes() -> Result<()> {
    let built = built()?;
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(|bed| {
        let mut desk = Desk::set_up(bed, &built, "")?;
        let runs =
            |pod: &Value| pod.pointer("/object/status/phase").is_some_and(|it| it == "Running");
        desk.write("a.yaml", &manifest("alpha", "exec sleep 1000", ""))?;
        desk.write("b.yaml", &manifest("beta", "exec sleep 1000", ""))?;
        let alpha = desk.until("running", "alpha", runs)?;
        desk.until("running", "beta", runs)?;
        desk.write("a.yaml", "kind: [")?;
        desk.agent.kill()?;
        desk.remove("b.yaml")?;
        desk.kill_agent()?;
        desk.until_gone("beta")?;
        let kept = desk.until("kept", "alpha", runs)?;
        ensure!(kept["containers"] == alpha["containers"], "{kept:#}");
        let node = desk.ask("/v1/node")?;
        ensure!(node["troubles"].to_string().contains("a.yaml"), "{node:#}");
        Ok(())
    })
}
