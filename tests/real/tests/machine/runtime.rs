//! The embedded runtime in the machine: the script, and the expected facts with either cgroup
//! driver.

pub(crate) const SCRIPT: &str = include_str!("runtime.sh");

type MachineFact = (&'static str, &'static str);

const SMOKE: &[MachineFact] = &[
    ("memory.max", "33554432"),
    ("memory.swap.max", "0"),
    ("cpu.max", "10000 50000"),
    ("cpu.weight", "59"),
    ("pids.max", "max"),
    ("device number", "1"),
    ("device", "dd: can't open '/tmp/disk': Operation not permitted"),
    ("seccomp of the container", "Seccomp: 2"),
    ("seccomp of an exec", "Seccomp: 2"),
    ("AppArmor of the container", "keelson-default (enforce)"),
    ("AppArmor of an exec", "keelson-default (enforce)"),
    ("own cgroup", "0::/"),
    ("cgroup of an exec", "0::/keelson-exec"),
    ("exit code of one that ended alone", "5"),
    ("killed and restarted server", "same process"),
    ("lines go on", "yes"),
    ("gaps in the log", "0"),
    ("greedy", "OOMKilled 137"),
    ("killed", "137"),
    ("groups left", "0"),
    ("scopes left", "0"),
    ("supervisors left", "0"),
    ("mounts left", "0"),
];

/// Independent of the cgroup driver: `cargo xtask test` checks it once, with systemd.
const USERS: &[MachineFact] = &[
    // A file of the machine's root and the image's: the pod's root owns both.
    ("owners seen inside", "0 0"),
    ("owner of what it wrote", "0"),
    ("its process outside", "2000000"),
    ("its map", "0 2000000 65536"),
    // A user of the second layer; the third hides a file of it; the same image as a volume.
    ("several layers", "7 upper upper done"),
];

/// What `cargo xtask test` has no time for.
const WHOLE: &[MachineFact] = &[
    ("changed memory.max", "50331648"),
    ("changed cpu.max", "20000 100000"),
    ("changed cpu.weight", "59"),
    ("reloaded memory.max", "50331648"),
    ("reloaded memory.swap.max", "0"),
    ("reloaded cpu.max", "20000 100000"),
    ("reloaded cpu.weight", "59"),
    ("reloaded pids.max", "max"),
    ("device after a reload", "dd: can't open '/tmp/disk': Operation not permitted"),
    // A limit that is there is moved; none is made.
    ("pod memory.max", "83886080"),
    ("pod cpu.max", "max 100000"),
    ("a mount with RuntimeDefault", "keelson-default (enforce) refused"),
    ("a mount with Unconfined", "unconfined done"),
    ("a mount with Localhost", "own (enforce) done"),
    ("a profile that is not there", "1"),
    ("first process of a shared pod", "keelson"),
    ("device of a privileged one", "it was read"),
    ("exec beside groups of its own", "inside inside"),
    ("left of a late exec", "0"),
    ("killed again and again", "same process"),
    ("gaps in the log at last", "0"),
    ("metrics", "1"),
    // Two features of each of two names.
    ("features", "4"),
    ("groups left of the agent's", "0"),
];

pub(crate) fn facts(driver: &str, whole: bool) -> Vec<MachineFact> {
    let more = if whole { WHOLE } else { &[] };
    let users = if whole || driver == "systemd" { USERS } else { &[] };
    SMOKE.iter().chain(users).chain(more).copied().collect()
}
