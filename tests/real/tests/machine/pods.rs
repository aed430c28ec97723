//! Static pods in the machine: the script, and the expected facts with either cgroup driver.
//!
//! Rule: values are exact. Those that depend on the machine's size are computed from the machine's
//! own facts; with the verb `machine` the reference kubelet runs the same pods and must give the
//! same values.

use anyhow::{Context, Result, ensure};
use node_testkit::machine::fact;

pub(crate) const SCRIPT: &str = include_str!("pods.sh");

/// Values of a cgroup or a container's process.
const VALUES: &[(&str, &str)] = &[
    // Two processors, by the straight line that the reference has for groups of its own.
    ("all pods cpu.weight", "79"),
    ("all pods cpu.max", "max 100000"),
    ("burstable cpu.weight", "8"),
    ("burstable cpu.max", "max 100000"),
    ("burstable memory.max", "max"),
    ("burstable pids.max", "max"),
    ("besteffort cpu.weight", "1"),
    ("besteffort cpu.max", "max 100000"),
    ("besteffort memory.max", "max"),
    ("besteffort pids.max", "max"),
    ("sure cpu.weight", "20"),
    ("sure cpu.max", "50000 100000"),
    ("sure memory.max", "67108864"),
    ("sure pids.max", "77"),
    // A container's weight is the runtime's word, which has a curve for it.
    ("sure container cpu.weight", "59"),
    ("sure container cpu.max", "50000 100000"),
    ("sure container memory.max", "67108864"),
    ("sure container memory.oom.group", "1"),
    ("sure container memory.swap.max", "0"),
    ("sure oom_score_adj", "-997"),
    ("some cpu.weight", "8"),
    ("some cpu.max", "150000 100000"),
    ("some memory.max", "max"),
    ("some pids.max", "77"),
    ("some container cpu.weight", "29"),
    ("some container cpu.max", "150000 100000"),
    ("some container memory.max", "max"),
    ("some container memory.oom.group", "1"),
    ("some container memory.swap.max", "0"),
    ("none cpu.weight", "1"),
    ("none cpu.max", "max 100000"),
    ("none memory.max", "max"),
    ("none pids.max", "77"),
    ("none container cpu.weight", "1"),
    ("none container cpu.max", "max 100000"),
    ("none container memory.max", "max"),
    ("none container memory.oom.group", "1"),
    ("none container memory.swap.max", "0"),
    ("none oom_score_adj", "1000"),
    ("pages hugetlb.2MB.max", "4194304"),
    ("pages container hugetlb.2MB.max", "4194304"),
];

/// Pods when memory is short, when the agent dies, and when their manifests are removed.
const COURSE: &[(&str, &str)] = &[
    ("killed child", "survived"),
    ("killed agent", "same containers"),
    ("values after the kill", "the same"),
    ("left", "0"),
];

/// AppArmor profiles of a pod's containers: from the pod, from the container, and one that does not
/// exist.
const ARMOR: &[(&str, &str)] = &[
    ("AppArmor of inherits", "pods-own (enforce)"),
    ("AppArmor of free", "unconfined"),
    ("AppArmor of missing", "CreateContainerError"),
];

/// Memory request of the Burstable pod.
const SOME_MEMORY: u64 = 200 << 20;

pub(crate) fn check(output: &str, driver: &str, whole: bool) -> Result<()> {
    let runs: &[(&str, bool)] = if whole {
        &[("", true), (" reference", false), (" embedded", true)]
    } else {
        &[("", true)]
    };
    let memory: u64 = fact(output, "memory in bytes")?.parse().context("memory in bytes")?;
    let of_machine = [
        ("all pods memory.max", memory.to_string()),
        ("all pods pids.max", fact(output, "most tasks")?.to_owned()),
        ("some oom_score_adj", (1000 - 1000 * SOME_MEMORY / memory).to_string()),
    ];
    for (on, is_ours) in runs {
        let course = if *is_ours { COURSE } else { &[] };
        let is_armored = *is_ours && (whole || driver == "systemd");
        let armor = if is_armored { ARMOR } else { &[] };
        let default = [("AppArmor of default", default_profile(on))];
        let default = default.iter().filter(|_| is_armored);
        let fixed = VALUES.iter().chain(course).chain(armor).chain(default);
        let fixed = fixed.map(|(name, value)| (*name, *value));
        let all = fixed.chain(of_machine.iter().map(|(name, value)| (*name, value.as_str())));
        for (name, expected) in all {
            let actual = fact(output, &format!("{driver}{on} {name}"))?;
            ensure!(
                actual == expected,
                "{driver}{on} {name}: {actual:?}, not {expected:?}:\n{output}"
            );
        }
    }
    Ok(())
}

/// A runtime's default AppArmor profile for containers.
fn default_profile(on: &str) -> &'static str {
    if on.is_empty() { "cri-containerd.apparmor.d (enforce)" } else { "keelson-default (enforce)" }
}
