//! Pod features that not every node has: restart rules, preemption, security profiles, user
//! namespaces, huge pages, devices; and a separate image service.
//!
//! Rule: what this machine supports is read from inside the container or from the kernel's files;
//! what it does not support is refused with the reference's message.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::images;
use node_testkit::start::Containerd;
use real_tests::could_not_run::could_not_run;
use real_tests::version_only_runtime::VersionOnlyRuntime;
use serde_json::Value;

use crate::node::{
    StandaloneNode, archives, container, container_id, ensure_has, keelson, restarts, uid, wait_for,
};

/// Makes later restarts quick too.
const SHORT_BACK_OFF: &str = "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";

#[test]
fn exit_code_rules_take_precedence_over_restart_policies() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(150)).run(move |bed| {
        bed.create_dir("marks")?;
        let node = StandaloneNode::start(bed, &keelson, &archives, SHORT_BACK_OFF)?;
        node.place("by-rule", &with_rule("{operator: In, values: [42]}", 42))?;
        node.place("no-rule", &with_rule("{operator: In, values: [42]}", 43))?;
        node.place("all-but", &with_rule("{operator: NotIn, values: [0, 42]}", 43))?;
        node.place("own-policy", OWN_POLICY)?;
        node.place("together", TOGETHER)?;
        for name in ["by-rule", "all-but"] {
            let pod = node.until("restarted", name, |pod| restarts(pod, "main") == 1)?;
            ensure!(pod["status"]["phase"] == "Running", "{pod:#}");
            node.until_ready(name)?;
        }
        let pod = node.until_phase("no-rule", "Failed")?;
        let ended = &container(&pod, "main")["state"]["terminated"];
        ensure!(ended["exitCode"] == 43 && restarts(&pod, "main") == 0, "{pod:#}");

        let pod = node.until("restarted", "own-policy", |pod| {
            restarts(pod, "again") == 1
                && container(pod, "again")["state"].get("running").is_some()
                && container(pod, "once")["state"].get("terminated").is_some()
        })?;
        ensure!(pod["status"]["phase"] == "Running" && restarts(&pod, "once") == 0, "{pod:#}");
        together(&node).context("all containers of a pod together")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

/// Exits once with this code and then keeps running; the pod's own policy never restarts it.
fn with_rule(codes: &str, code: i32) -> String {
    format!(
        "  restartPolicy: Never\n  volumes: [{{name: data, emptyDir: {{}}}}]\n  containers:\n  \
         - name: main\n    image: BUSYBOX\n    restartPolicy: Never\n    restartPolicyRules:\n    \
         - {{action: Restart, exitCodes: {codes}}}\n    command: [sh, -c, \"[ -e /data/seen ] && \
         exec sleep 1000; touch /data/seen; exit {code}\"]\n    \
         volumeMounts: [{{name: data, mountPath: /data}}]\n"
    )
}

const OWN_POLICY: &str = r#"
  restartPolicy: Never
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - {name: once, image: BUSYBOX, command: [sh, -c, "exit 0"]}
  - name: again
    image: BUSYBOX
    restartPolicy: OnFailure
    command: [sh, -c, "[ -e /data/seen ] && exec sleep 1000; touch /data/seen; exit 1"]
    volumeMounts: [{name: data, mountPath: /data}]
"#;

/// Its first container exits once with 88, which restarts all containers, the init container too.
const TOGETHER: &str = r#"
  volumes: [{name: marks, hostPath: {path: /run/bed/marks}}]
  initContainers:
  - name: first
    image: BUSYBOX
    command: [sh, -c, "echo first >> /marks/lines"]
    volumeMounts: [{name: marks, mountPath: /marks}]
  containers:
  - name: trigger
    image: BUSYBOX
    restartPolicy: Never
    restartPolicyRules:
    - {action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}
    command: [sh, -c, "while ! grep -q other /marks/lines; do sleep 0.1; done; [ -e /marks/seen ] && exec sleep 1000; touch /marks/seen; exit 88"]
    volumeMounts: [{name: marks, mountPath: /marks}]
  - name: other
    image: BUSYBOX
    command: [sh, -c, "echo other >> /marks/lines; exec sleep 1000"]
    volumeMounts: [{name: marks, mountPath: /marks}]
"#;

fn together(node: &StandaloneNode<'_>) -> Result<()> {
    let lines = || fs::read_to_string("/run/bed/marks/lines").unwrap_or_default();
    wait_for("all have begun twice", Duration::from_secs(60), || {
        Ok(["first", "other"].iter().all(|word| lines().matches(*word).count() == 2))
    })
    .with_context(lines)?;
    let pod = node.until_ready("together")?;
    ensure!(restarts(&pod, "trigger") == 1 && restarts(&pod, "other") == 1, "{pod:#}");
    ensure!(lines() == "first\nother\nfirst\nother\n", "in their order: {}", lines());
    Ok(())
}

#[test]
fn a_higher_priority_pod_preempts_a_lower_priority_pod() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        let most = std::thread::available_parallelism()?.get() * 1000 - 100;
        let spec = |priority: i32| {
            format!(
                "  priority: {priority}\n  containers:\n  - name: main\n    image: BUSYBOX\n    \
                 command: [sleep, \"1000\"]\n    resources: {{requests: {{cpu: {most}m}}}}\n"
            )
        };
        node.place("modest", &spec(10))?;
        node.until_ready("modest")?;
        node.place("urgent", &spec(1000))?;
        let pod = node.until_phase("modest", "Failed")?;
        ensure!(pod["status"]["reason"] == "Preempting", "{pod:#}");
        let message = "Preempted in order to admit critical pod";
        ensure!(pod["status"]["message"] == message, "{pod:#}");
        let target = condition(&pod, "DisruptionTarget").context("a condition")?;
        ensure!(target["reason"] == "TerminationByKubelet", "{target:#}");
        node.until_ready("urgent")?;
        wait_for("nothing of it is left", Duration::from_secs(20), || {
            Ok(node.runtime.containers("modest")?.is_empty())
        })?;
        node.until_explained("modest", message)?;
        // One that matters as much finds no room.
        node.place("equal", &spec(1000))?;
        let pod = node.until_phase("equal", "Failed")?;
        ensure!(pod["status"]["reason"] == "UnexpectedAdmissionError", "{pod:#}");
        let node = node.restart_agent(|_| Ok(()))?;
        let pod = node.until_phase("modest", "Failed")?;
        ensure!(condition(&pod, "DisruptionTarget").is_some(), "the next agent knows it: {pod:#}");
        node.until_ready("urgent")?;
        node.agent.withdraw("modest")?;
        node.until_gone("modest")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|each| each["type"] == kind)
}

#[test]
fn supported_features_are_applied_and_unsupported_ones_rejected() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        let profiles = node.home.root().join("seccomp/own");
        fs::create_dir_all(&profiles)?;
        fs::write(profiles.join("no-folders.json"), NO_DIRS)?;
        for (name, more) in [
            (
                "filtered",
                "seccompProfile: {type: Localhost, localhostProfile: own/no-folders.json}",
            ),
            ("no-filter", "seccompProfile: {type: Localhost, localhostProfile: own/nothing.json}"),
            ("armored", "appArmorProfile: {type: RuntimeDefault}"),
            ("labelled", "seLinuxOptions: {level: \"s0:c1,c2\"}"),
        ] {
            node.place(name, &sleeper(&format!("  securityContext: {{{more}}}\n"), ""))?;
        }
        node.place("powerful", &sleeper("", "securityContext: {privileged: true}"))?;
        let limits = "{cpu: 10m, memory: 32Mi, hugepages-64Ki: 128Ki}";
        node.place("pages", &sleeper("", &format!("resources: {{limits: {limits}}}")))?;
        let limits = "{example.com/gadget: 1}";
        node.place("gadget", &sleeper("", &format!("resources: {{limits: {limits}}}")))?;
        let limits = "{requests: {ephemeral-storage: 100Ei}}";
        node.place("storage", &sleeper("", &format!("resources: {limits}")))?;
        node.place("classy", &sleeper("  runtimeClassName: special\n", ""))?;

        supported_features(&node)?;
        let pod = node.until_phase("pages", "Failed")?;
        ensure!(pod["status"]["reason"] == "UnexpectedAdmissionError", "{pod:#}");
        ensure_has(&pod["status"]["message"].to_string(), &["(res: hugepages-64Ki, q: 131072)"])?;
        let pod = node.until_phase("storage", "Failed")?;
        ensure_has(&pod["status"]["message"].to_string(), &["(res: ephemeral-storage, q: "])?;
        node.until_explained("classy", "runtimeclass.node.k8s.io \"special\" not found")?;
        node.until("told", "no-filter", |pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerError"
        })?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

fn sleeper(of_pod: &str, of_container: &str) -> String {
    let line =
        if of_container.is_empty() { String::new() } else { format!("    {of_container}\n") };
    format!(
        "{of_pod}  containers:\n  - name: main\n    image: BUSYBOX\n    \
         command: [sleep, \"1000\"]\n{line}"
    )
}

/// Everything is allowed but creating directories.
const NO_DIRS: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls":
    [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}"#;

fn supported_features(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("filtered")?;
    let output = node.shell(&pod, "main", "touch /file; mkdir /folder 2>&1; ls -d /file")?;
    ensure_has(&output, &["Operation not permitted", "/file"])?;
    labelled(node)?;
    node.until_ready("gadget").context("a resource that this node does not know")?;
    let pod = node.until_ready("powerful")?;
    let output = node.shell(&pod, "main", "ls /dev; grep CapEff /proc/self/status")?;
    // All the machine's devices, not the few that every container has.
    ensure_has(&output, &["kmsg"])?;
    armored(node)
}

/// Prints the security label of a container's first process.
const LABEL: &str = "cat /proc/1/attr/current";

fn labelled(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("labelled")?;
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        let what = "supported_features_are_applied_and_unsupported_ones_rejected, SELinux label";
        return could_not_run(what, "the kernel has no SELinux");
    }
    ensure_has(&node.shell(&pod, "main", LABEL)?, &["s0:c1,c2"])
}

fn armored(node: &StandaloneNode<'_>) -> Result<()> {
    let enforces = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    if enforces.is_ok_and(|text| text.starts_with('Y')) {
        let pod = node.until_ready("armored")?;
        return ensure_has(&node.shell(&pod, "main", LABEL)?, &["cri-containerd", "(enforce)"]);
    }
    let what = "supported_features_are_applied_and_unsupported_ones_rejected, AppArmor profile";
    could_not_run(what, "the kernel has no AppArmor")?;
    let pod = node.until_phase("armored", "Failed")?;
    ensure!(pod["status"]["reason"] == "AppArmor", "{pod:#}");
    let message = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    ensure!(pod["status"]["message"] == message, "{pod:#}");
    Ok(())
}

#[test]
fn a_pod_gets_its_own_user_namespace() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        let unmasked = sleeper("  hostUsers: false\n", "securityContext: {procMount: Unmasked}");
        node.place("apart", &sleeper("  hostUsers: false\n", ""))?;
        node.place("unmasked", &unmasked)?;
        node.place("usual", &sleeper("", ""))?;
        let mut firsts = Vec::new();
        for name in ["apart", "unmasked"] {
            let pod = node.until_ready(name)?;
            let map = node.shell(&pod, "main", "cat /proc/self/uid_map /proc/self/gid_map")?;
            let words: Vec<&str> = map.split_whitespace().collect();
            let [zero, first, length, ..] = words.as_slice() else { anyhow::bail!("{map}") };
            ensure!(*zero == "0" && *length == "65536" && words[..3] == words[3..], "{map}");
            let path = node.home.root().join("pods").join(uid(&pod)?).join("userns");
            let saved: Value = serde_json::from_slice(&fs::read(&path)?)?;
            ensure!(saved["uidMappings"][0]["hostId"] == first.parse::<u64>()?, "{saved} {map}");
            ensure!(saved["uidMappings"] == saved["gidMappings"], "{saved}");
            firsts.push((*first).to_owned());
        }
        ensure!(firsts[0] != firsts[1] && !firsts.contains(&"0".to_owned()), "{firsts:?}");
        let masks = "grep -c ' /proc/' /proc/self/mounts; true";
        let pod = node.until_ready("unmasked")?;
        ensure!(node.shell(&pod, "main", masks)?.trim() == "0", "nothing lies over /proc");
        let pod = node.until_ready("usual")?;
        ensure!(node.shell(&pod, "main", masks)?.trim() != "0", "something does elsewhere");
        let map = node.shell(&pod, "main", "cat /proc/self/uid_map")?;
        ensure!(Path::new("/proc/self/uid_map").exists(), "{map}");
        ensure!(map == fs::read_to_string("/proc/self/uid_map")?, "the node's users: {map}");

        let before = container_id(&node.until_ready("apart")?, "main")?;
        let node = node.restart_agent(|_| Ok(()))?;
        let pod = node.until_ready("apart")?;
        ensure!(container_id(&pod, "main")? == before, "the next agent leaves it alone");
        // What earlier agents gave is not given again.
        node.place("third", &sleeper("  hostUsers: false\n", ""))?;
        let third = node.until_ready("third")?;
        let map = node.shell(&third, "main", "cat /proc/self/uid_map")?;
        let first = map.split_whitespace().nth(1).context("the first user")?;
        ensure!(
            !firsts.iter().any(|supported_features| supported_features == first),
            "{firsts:?}: {map}"
        );
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

#[test]
fn images_are_pulled_from_a_separate_image_service() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let socket = bed.dir().join("images.sock");
        let knows_nothing = VersionOnlyRuntime::start(&socket)?;
        let line = format!("imageServiceEndpoint: unix://{}\n", socket.display());
        let node = StandaloneNode::start(bed, &keelson, &archives, &line)?;
        node.place("pictured", &sleeper("", ""))?;
        // Its sandbox, and so its address, is the runtime's business.
        node.until("asked elsewhere", "pictured", |pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == "ImageInspectError"
                && pod["status"]["podIP"].as_str().is_some_and(|address| !address.is_empty())
        })?;
        // The same address leads to containerd from now on.
        drop(knows_nothing);
        fs::remove_file(&socket).ok();
        let endpoint = node.containerd.endpoint();
        let own = endpoint.strip_prefix("unix://").context("a socket")?;
        std::os::unix::fs::symlink(own, &socket)?;
        node.until_ready("pictured")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

/// The image's `/etc/group` puts this user into a supplemental group.
const GROUPED: &str = "keelson.test/grouped:1";

#[test]
fn strict_policy_ignores_supplemental_groups_of_the_image() -> Result<()> {
    let (keelson, mut archives) = (keelson()?, archives()?);
    let image = images::busybox()?
        .named(GROUPED)
        .with_bytes("/etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\nworker:x:1000:1000::/:/bin/sh\n")
        .with_bytes("/etc/group", 0o644, "root:x:0:\nworker:x:1000:\nhidden:x:50000:worker\n");
    archives.push(image.oci_archive()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        for (name, policy) in [("strict", "Strict"), ("merged", "Merge")] {
            let of_pod = format!(
                "  securityContext: {{runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, \
                 supplementalGroups: [4000], supplementalGroupsPolicy: {policy}}}\n"
            );
            node.place(name, &sleeper(&of_pod, "").replace("BUSYBOX", GROUPED))?;
        }
        for (name, groups) in [("strict", "2000 3000 4000"), ("merged", "2000 3000 4000 50000")] {
            let pod = node.until_ready(name)?;
            let output = node.shell(&pod, "main", "id -G")?;
            let mut numbers: Vec<u32> =
                output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            numbers.sort_unstable();
            let output = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            ensure!(output == groups, "{name}: {output}, expected {groups}");
        }
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}
