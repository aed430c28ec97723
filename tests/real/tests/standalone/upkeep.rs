//! What the agent does beside running pods: log rotation, limits of other cgroups, pods that
//! request what this node does not have, volume operations in a separate process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use real_tests::standalone::agent::{AgentHome, AgentProcess};

use crate::clean_up::cgroup_tops;
use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, containerd, ensure_has, keelson, uid, wait_for,
};

/// Small limits, checked as often as the configuration allows.
const SMALL_LOGS: &str = "containerLogMaxSize: 8Ki\ncontainerLogMaxFiles: 3\n\
    containerLogMonitorInterval: 3s\n";
const LAST_LINE: u32 = 1200;

#[test]
fn a_log_stays_small_and_is_read_whole_across_its_files() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, SMALL_LOGS)?;
        node.place("talker", TALKER)?;
        let pod = node.until_ready("talker")?;
        let dir = format!("/var/log/pods/default_talker-node_{}/main", uid(&pod)?);
        let dir = Path::new(&dir);
        let mut most = 0;
        wait_for("all is said and rotated", WAIT_LIMIT * 2, || {
            let names = names(dir)?;
            most = most.max(finished(&names));
            let is_small = fs::metadata(dir.join("0.log")).is_ok_and(|log| log.len() < 8 << 10);
            let is_packed = names.iter().any(|name| name.ends_with(".gz"));
            let output = node.agent.ask(&["logs", "talker", "--tail", "1"])?;
            Ok(is_small && is_packed && output.starts_with(&format!("line {LAST_LINE} ")))
        })
        .with_context(|| format!("{:?}", names(dir)))?;
        ensure!(most <= 3, "never more files than configured: {most}");
        let output = node.agent.ask(&["logs", "talker"])?;
        let numbers: Vec<u32> =
            output.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
        let first = *numbers.first().context("a line")?;
        let whole: Vec<u32> = (first..=LAST_LINE).collect();
        ensure!(numbers == whole, "a line is lost or told twice: {numbers:?}");
        ensure!(first > 1 && numbers.len() > 50, "the oldest went, the newest stay: from {first}");
        for name in names(dir)? {
            let stamp = name.strip_prefix("0.log").context("its name")?;
            let stamp = stamp.trim_start_matches('.').trim_end_matches(".gz");
            ensure!(stamp.is_empty() || stamp.len() == "20260101-000000".len(), "{name}");
        }
        node.end()
    })
}

const TALKER: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "i=0; while [ $i -lt 1200 ]; do i=$((i+1)); echo line $i ....................................; sleep 0.01; done; exec sleep 1000"]
"#;

fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Logs in the directory: a partial file and a freshly compressed one count once.
fn finished(names: &[String]) -> usize {
    let packed = |name: &&String| names.contains(&format!("{name}.gz"));
    names.iter().filter(|name| !name.ends_with(".tmp") && !packed(name)).count()
}

const RESERVING: &str = "enforceNodeAllocatable: [pods, system-reserved]\n\
    systemReservedCgroup: /reserved-for-the-system\n\
    systemReserved: {cpu: 100m, memory: 64Mi}\n";

#[test]
fn reserved_resources_are_enforced_and_unsupported_pods_rejected() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, RESERVING)?;
        // The agent runs though the cgroup is not there, and sets the limits when it is.
        let data = bed.dir().join("data");
        node.place("pod", &POD.replace("DATA", &data.to_string_lossy()))?;
        let pod = node.until_ready("pod")?;
        ensure!(data.join("made").is_dir(), "{} was made for the pod", data.display());
        let seen = node.shell(&pod, "main", "ls /data")?;
        ensure!(seen.contains("made"), "{seen}");
        let groups: Vec<_> =
            cgroup_tops()?.iter().map(|top| top.join("reserved-for-the-system")).collect();
        for group in &groups {
            ensure!(!group.exists(), "{} is not the agent's to make", group.display());
            fs::create_dir(group)?;
        }
        let read =
            |file: &str| groups.iter().find_map(|group| fs::read_to_string(group.join(file)).ok());
        wait_for("the limits", WAIT_LIMIT, || {
            let shares = read("cpu.shares").or_else(|| read("cpu.weight"));
            let memory = read("memory.limit_in_bytes").or_else(|| read("memory.max"));
            let is_weighed = shares.is_some_and(|shares| ["102", "4"].contains(&shares.trim()));
            Ok(is_weighed && memory.is_some_and(|bytes| bytes.trim() == "67108864"))
        })?;
        node.place("asking", ASKING)?;
        let refused = node.until_phase("asking", "Failed")?;
        ensure!(refused["status"]["reason"] == "SysctlForbidden", "{refused:#}");
        node.agent.withdraw_all()?;
        node.until_gone("pod")?;
        for group in &groups {
            fs::remove_dir(group)?;
        }
        node.end()
    })
}

const POD: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, hostPath: {path: DATA, type: DirectoryOrCreate}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "mkdir -p /data/made; exec sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: made}]
"#;

const ASKING: &str = r#"
  securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}
  containers: [{name: main, image: BUSYBOX, command: [sleep, "1000"]}]
"#;

/// A process's OOM score adjustment.
fn score(process: u32) -> Result<i32> {
    let path = format!("/proc/{process}/oom_score_adj");
    Ok(fs::read_to_string(&path).with_context(|| path.clone())?.trim().parse()?)
}

/// Whether this process, and so its children, may lower its OOM score adjustment.
fn may_lower_score() -> Result<bool> {
    const SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status")?;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).context("CapEff")?;
    Ok(u64::from_str_radix(held.trim(), 16)? >> SYS_RESOURCE & 1 == 1)
}

#[test]
fn the_agent_sets_its_oom_score_and_containers_do_not_inherit_it() -> Result<()> {
    const REFUSED: &str = "Running with another OOM score than configured";
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "score", &containerd.endpoint())?;
        let agent = AgentProcess::start(bed, &keelson, &home)?;
        let log = || fs::read_to_string(AgentProcess::log(bed, &keelson));
        if may_lower_score()? {
            ensure!(score(agent.process_id())? == -999, "{}", score(agent.process_id())?);
            ensure!(!log()?.contains(REFUSED), "{}", log()?);
        } else {
            // As near as it may come, and said so with what is missing.
            let (own, parent) = (score(agent.process_id())?, score(std::process::id())?);
            ensure!(own == parent, "{own}, whoever started it has {parent}");
            let output = log()?.lines().find(|line| line.contains(REFUSED)).map(str::to_owned);
            let output = output.context("a warning")?;
            ensure_has(&output, &["oom_score_adj to -999", "CAP_SYS_RESOURCE"])?;
        }
        agent.end()?;
        fs::remove_file(AgentProcess::log(bed, &keelson))?;
        // Easier to kill one may always become.
        let node = StandaloneNode::of_parts(
            bed,
            &keelson,
            (containerd, runtime),
            home.with("oomScoreAdj: 321\n"),
        )?;
        ensure!(score(node.agent.process_id())? == 321, "{}", score(node.agent.process_id())?);
        ensure!(!log()?.contains(REFUSED), "{}", log()?);
        let sleeps =
            "  containers:\n  - {name: main, image: BUSYBOX, command: [sleep, \"1000\"]}\n";
        node.place("plain", sleeps)?;
        let pod = node.until_ready("plain")?;
        let inside =
            node.shell(&pod, "main", "cat /proc/1/oom_score_adj /proc/self/oom_score_adj")?;
        ensure!(inside == "1000\n1000\n", "what its class says, for all in it: {inside}");
        node.end()
    })
}
