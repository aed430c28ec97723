//! Resource settings, read from the cgroup files of a v1 machine, and the reports of OOM kills.
//!
//! On a cgroup v2 machine the values are in other files: tested on the cgroup v2 machine, not here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use real_tests::could_not_run::could_not_run;
use serde_json::Value;

use crate::node::{
    StandaloneNode, archives, container, container_id, ensure_has, keelson, uid, wait_for,
};

const CONFIGURATION: &str = "podPidsLimit: 77\nsystemReserved: {memory: 100Mi}\n";
const SLEEPS: &str = "command: [sleep, \"1000\"]";

#[test]
fn resource_limits_are_set_in_cgroups_and_oom_kills_are_reported() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        let what = "resource_limits_are_set_in_cgroups_and_oom_kills_are_reported";
        return could_not_run(what, "the machine has the unified cgroup hierarchy alone");
    }
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, CONFIGURATION)?;
        let same = "{cpu: 500m, memory: 64Mi}";
        node.place("sure", &sleeps(&format!("{{requests: {same}, limits: {same}}}")))?;
        let some = "{requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 64Mi}}";
        node.place("some", &sleeps(some))?;
        node.place("none", &sleeps("{}"))?;
        node.place("whole", POD_LEVEL)?;
        node.place("greedy", GREEDY)?;
        node.place("child", CHILD)?;
        node.place("too-much", &sleeps("{requests: {cpu: \"9000\"}}"))?;
        classes(&node)?;
        whole(&node).context("resources of the pod itself")?;
        memory(&node)?;
        huge_pages(&node)?;
        let pod = node.until_phase("too-much", "Failed")?;
        // A static pod is critical: room was looked for among the others, and not found.
        ensure!(pod["status"]["reason"] == "UnexpectedAdmissionError", "{pod:#}");
        let output = node.until_explained("too-much", "Pod was rejected")?;
        ensure_has(&output, &["no set of running pods found to reclaim resources: [(res: cpu"])?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        // The value of an empty QoS cgroup.
        let shares = Path::new("/sys/fs/cgroup/cpu/kubepods/burstable/cpu.shares");
        wait_for("an empty class has the least weight", Duration::from_secs(60), || {
            Ok(fs::read_to_string(shares)?.trim() == "2")
        })?;
        node.end()
    })
}

fn sleeps(resources: &str) -> String {
    format!(
        "  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: BUSYBOX\n    \
         {SLEEPS}\n    resources: {resources}\n"
    )
}

const POD_LEVEL: &str = r#"
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 200m, memory: 48Mi}, limits: {cpu: 300m, memory: 96Mi}}
  containers:
  - {name: main, image: BUSYBOX, command: [sleep, "1000"]}
"#;
const GREEDY: &str = r#"
  restartPolicy: Never
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "exec tail /dev/zero"]
    resources: {limits: {memory: 24Mi}}
"#;
const CHILD: &str = r#"
  restartPolicy: Never
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "tail /dev/zero; head -c 100m /dev/zero | sort; echo survived; exit 9"]
    resources: {limits: {memory: 24Mi}}
"#;

fn classes(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("sure")?;
    ensure!(pod["status"]["qosClass"] == "Guaranteed", "{pod:#}");
    let (own, inner) = groups(&pod, "")?;
    for group in [&own, &inner] {
        value("cpu", group, "cpu.shares", "512")?;
        value("cpu", group, "cpu.cfs_quota_us", "50000")?;
        value("cpu", group, "cpu.cfs_period_us", "100000")?;
        value("memory", group, "memory.limit_in_bytes", "67108864")?;
    }
    value("pids", &own, "pids.max", "77")?;
    // As much with swap as without: none of it is swap.
    value("memory", &inner, "memory.memsw.limit_in_bytes", "67108864")?;

    let pod = node.until_ready("some")?;
    ensure!(pod["status"]["qosClass"] == "Burstable", "{pod:#}");
    let (own, inner) = groups(&pod, "burstable")?;
    for group in [&own, &inner] {
        value("cpu", group, "cpu.shares", "102")?;
        value("cpu", group, "cpu.cfs_quota_us", "-1")?;
        value("memory", group, "memory.limit_in_bytes", "67108864")?;
    }
    let score: i64 = node.shell(&pod, "main", "cat /proc/1/oom_score_adj")?.trim().parse()?;
    ensure!((3..1000).contains(&score), "between the other classes: {score}");

    let pod = node.until_ready("none")?;
    ensure!(pod["status"]["qosClass"] == "BestEffort", "{pod:#}");
    let (own, inner) = groups(&pod, "besteffort")?;
    for group in [&own, &inner] {
        value("cpu", group, "cpu.shares", "2")?;
        value("cpu", group, "cpu.cfs_quota_us", "-1")?;
    }
    let score = node.shell(&pod, "main", "cat /proc/1/oom_score_adj")?;
    ensure!(score.trim() == "1000", "the first to be killed: {score}");
    value("cpu", Path::new("kubepods/besteffort"), "cpu.shares", "2")?;
    // All pods together: the machine without what is reserved and the eviction threshold of 1 Mi.
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.split_whitespace().next()).context("MemTotal")?;
    let left = total.parse::<u64>()? * 1024 - (100 << 20);
    let limit_in_bytes =
        read("memory", Path::new("kubepods"), "memory.limit_in_bytes")?.parse::<u64>()?;
    ensure!(
        limit_in_bytes.abs_diff(left) <= 2 << 20,
        "all pods may use {limit_in_bytes}, expected about {left}"
    );
    Ok(())
}

fn whole(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("whole")?;
    ensure!(pod["status"]["qosClass"] == "Burstable", "{pod:#}");
    let (own, _) = groups(&pod, "burstable")?;
    value("cpu", &own, "cpu.shares", "204")?;
    value("cpu", &own, "cpu.cfs_quota_us", "30000")?;
    value("memory", &own, "memory.limit_in_bytes", "100663296")?;
    // The class weighs as much as its pods together (102 + 204, and two small ones of 2).
    let class = Path::new("kubepods/burstable");
    wait_for("the weight of a class", Duration::from_secs(20), || {
        let shares: u64 = read("cpu", class, "cpu.shares")?.parse()?;
        Ok((306..=320).contains(&shares))
    })
}

fn huge_pages(node: &StandaloneNode<'_>) -> Result<()> {
    let what = "resource_limits_are_set_in_cgroups_and_oom_kills_are_reported, huge pages";
    if !Path::new("/sys/fs/cgroup/hugetlb").exists() {
        return could_not_run(what, "the kernel has no hugetlb cgroups");
    }
    let limits = "{limits: {cpu: 100m, memory: 32Mi, hugepages-2Mi: 4Mi}}";
    node.place("pages", &sleeps(limits))?;
    let pod = node.until_ready("pages")?;
    let (own, inner) = groups(&pod, "")?;
    for group in [&own, &inner] {
        value("hugetlb", group, "hugetlb.2MB.limit_in_bytes", "4194304")?;
    }
    Ok(())
}

fn memory(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_phase("greedy", "Failed")?;
    let ended = &container(&pod, "main")["state"]["terminated"];
    ensure!(ended["exitCode"] == 137 && ended["reason"] == "OOMKilled", "{ended:#}");
    let pod = node.until("the kill is told", "greedy", |pod| {
        let message = container(pod, "main")["state"]["terminated"]["message"].as_str();
        message.is_some_and(|message| message.contains("want of memory"))
    })?;
    let message = container(&pod, "main")["state"]["terminated"]["message"].to_string();
    ensure_has(&message, &["process tail", "of a limit of 25165824 bytes"])?;
    node.until_explained("greedy", "OOMKilled")?;

    let pod = node.until_phase("child", "Failed")?;
    let ended = &container(&pod, "main")["state"]["terminated"];
    ensure!(
        ended["exitCode"] == 9 && ended["reason"] == "Error",
        "the container itself was not killed: {ended:#}"
    );
    let output = node.until_explained("child", "OOMKilling")?;
    ensure_has(&output, &["process tail", "of a limit of 25165824 bytes"])?;
    // The two OOM kills are milliseconds apart: both are reported, in events and in the
    // termination.
    let output = node.until_explained("child", "process sort (pid")?;
    let pod = node.until("both kills are told of the end", "child", |pod| {
        let message = container(pod, "main")["state"]["terminated"]["message"].as_str();
        message.is_some_and(|text| text.contains("process tail") && text.contains("process sort"))
    })?;
    ensure!(output.matches("OOMKilling").count() == 2, "{output}\n{pod:#}");
    ensure!(node.agent.ask(&["logs", "child"])?.contains("survived"), "its shell went on");
    Ok(())
}

/// The pod's cgroup and its container's, below a hierarchy.
fn groups(pod: &Value, class: &str) -> Result<(PathBuf, PathBuf)> {
    let own = Path::new("kubepods").join(class).join(format!("pod{}", uid(pod)?));
    let inner = own.join(container_id(pod, "main")?);
    Ok((own, inner))
}

fn read(hierarchy: &str, group: &Path, file: &str) -> Result<String> {
    let path = Path::new("/sys/fs/cgroup").join(hierarchy).join(group).join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

fn value(hierarchy: &str, group: &Path, file: &str, expected: &str) -> Result<()> {
    let found = read(hierarchy, group, file)?;
    ensure!(found == expected, "{}/{file}: {found}, expected {expected}", group.display());
    Ok(())
}
