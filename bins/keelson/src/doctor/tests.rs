//! Tests on directories that stand for the root of a machine.

use super::assessment::{MachineVerdict, findings_of};
use super::facts::{Cgroups, MachineFacts, gather};
use super::trials::Trials;
use super::*;
use std::fs;
use std::os::unix::net::UnixListener;

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

const CGROUP_V2_MACHINE: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
    (
        "proc/self/mountinfo",
        "24 20 0:22 / /run rw - tmpfs tmpfs rw\n\
         25 20 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    ),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
    ("proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n\text4\n"),
    ("proc/sys/user/max_user_namespaces", "31000\n"),
    ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
    ("proc/swaps", "Filename Type Size Used Priority\n"),
    ("proc/sys/fs/inotify/max_user_instances", "128\n"),
    ("proc/sys/fs/inotify/max_user_watches", "65536\n"),
    ("proc/self/limits", "Limit  Soft  Hard  Units\nMax open files  1024  1048576  files\n"),
    ("proc/sys/kernel/pid_max", "4194304\n"),
    ("sys/module/apparmor/parameters/enabled", "Y\n"),
    ("sys/kernel/security/apparmor/profiles", ""),
    ("sbin/apparmor_parser", ""),
];

/// Trials that all succeed: what is tried on the real machine is not tested here.
fn all_succeed() -> Trials {
    let success = || Ok(());
    Trials {
        seccomp: success(),
        nftables: success(),
        user_namespaces: success(),
        recursive_read_only: success(),
        pod_network: success(),
    }
}

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, MachineFacts) {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), files);
    for name in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
        write(root.path(), &[(&format!("proc/self/ns/{name}"), "")]);
    }
    let facts = gather(root.path(), all_succeed());
    (root, facts)
}

fn verdict(facts: &MachineFacts, name: &str) -> (MachineVerdict, String) {
    let finding = findings_of(facts).into_iter().find(|finding| finding.name == name).unwrap();
    assert_eq!(finding.verdict == MachineVerdict::Good, finding.next_step.is_none(), "{finding:?}");
    (finding.verdict, finding.found)
}

#[test]
fn a_machine_with_every_feature_has_only_good_findings() {
    let (root, _) = machine(CGROUP_V2_MACHINE);
    fs::create_dir_all(root.path().join("run/containerd")).unwrap();
    let _socket = UnixListener::bind(root.path().join("run/containerd/containerd.sock")).unwrap();
    let findings = findings_of(&gather(root.path(), all_succeed()));
    assert!(findings.iter().all(|finding| finding.verdict == MachineVerdict::Good), "{findings:?}");
    let text = table(&findings, Palette::plain());
    assert!(text.contains("good     kernel               6.1.0-18-amd64\n"), "{text}");
    assert!(text.contains("unix:///run/containerd/containerd.sock"), "{text}");
    assert!(text.ends_with("\nThis machine has everything that pods need.\n"), "{text}");
}

#[test]
fn cgroup_v1_is_limited_and_an_absent_controller_is_missing() {
    let mounts = "26 25 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                  27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  28 25 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                  29 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let controllers_table =
        "#subsys_name hierarchy num enabled\ncpu 1 1 1\nmemory 2 1 1\npids 3 1 1\n";
    let files = [("proc/self/mountinfo", mounts), ("proc/cgroups", controllers_table)];
    let (_root, facts) = machine(&files);
    let (cgroups_verdict, found) = verdict(&facts, "cgroups");
    assert_eq!(cgroups_verdict, MachineVerdict::Missing);
    assert_eq!(found, "version 1 with cpu, memory, pids; without cpuset");

    let controllers = ["cpu", "cpuset", "memory", "pids"].map(str::to_owned).into();
    let facts = MachineFacts { cgroups: Some(Cgroups { unified: false, controllers }), ..facts };
    assert_eq!(verdict(&facts, "cgroups").0, MachineVerdict::Limited);
}

#[test]
fn names_that_are_not_utf_8_hide_neither_cgroups_nor_swap() {
    let (root, _) = machine(CGROUP_V2_MACHINE);
    let path = root.path().join("proc/self/mountinfo");
    let odd = b"23 20 0:21 / /mnt/\xff\xfe rw - tmpfs tmpfs rw\n";
    fs::write(&path, [odd, &*fs::read(&path).unwrap()].concat()).unwrap();
    let swap = b"Filename Type Size Used Priority\n/swap\xff file 1 0 -2\n";
    fs::write(root.path().join("proc/swaps"), swap).unwrap();
    let facts = gather(root.path(), all_succeed());
    assert_eq!(verdict(&facts, "cgroups").0, MachineVerdict::Good);
    assert_eq!(facts.swap_areas, Some(1));
}

#[test]
fn facts_that_cannot_be_read_are_never_good() {
    let root = tempfile::tempdir().unwrap();
    let refused = || Err("refused".to_owned());
    let trials = Trials {
        seccomp: refused(),
        nftables: refused(),
        user_namespaces: refused(),
        recursive_read_only: refused(),
        pod_network: refused(),
    };
    let facts = gather(root.path(), trials);
    for finding in findings_of(&facts) {
        assert!(finding.verdict != MachineVerdict::Good || finding.name == "swap", "{finding:?}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&report::json(&findings_of(&facts))).unwrap();
    assert_eq!(report["usable"], false);
    assert_eq!(report["findings"][0]["name"], "kernel");
    assert_eq!(report["findings"][0]["nextStep"], "mount /proc");
}

#[test]
fn each_fact_decides_its_finding() {
    let change = |path: &'static str, content: &'static str| {
        let (root, _) = machine(CGROUP_V2_MACHINE);
        write(root.path(), &[(path, content)]);
        gather(root.path(), all_succeed())
    };
    let cases = [
        ("proc/sys/kernel/osrelease", "4.19.0", "kernel", MachineVerdict::Limited),
        ("proc/sys/kernel/osrelease", "3.10.0-1160.el7", "kernel", MachineVerdict::Missing),
        ("proc/sys/user/max_user_namespaces", "0", "user namespaces", MachineVerdict::Limited),
        ("proc/filesystems", "\text4\n", "overlayfs", MachineVerdict::Missing),
        ("proc/self/status", "CapEff:\t0000000000000000\n", "privileges", MachineVerdict::Missing),
        (
            "proc/self/status",
            "CapEff:\t0000000000200000\n",
            "CAP_SYS_RESOURCE",
            MachineVerdict::Limited,
        ),
        ("proc/swaps", "Filename\n/swapfile file 1 0 -2\n", "swap", MachineVerdict::Limited),
        ("proc/sys/fs/inotify/max_user_instances", "16", "inotify", MachineVerdict::Limited),
        (
            "proc/self/limits",
            "Max open files 1024 4096 files\n",
            "open files",
            MachineVerdict::Limited,
        ),
        (
            "proc/self/limits",
            "Max open files 1 unlimited files\n",
            "open files",
            MachineVerdict::Good,
        ),
        ("proc/sys/kernel/pid_max", "4096", "process ids", MachineVerdict::Limited),
    ];
    for (path, content, name, expected) in cases {
        assert_eq!(verdict(&change(path, content), name).0, expected, "{path}: {content}");
    }
}

/// A machine without containerd or CRI-O still has a runtime: the embedded one.
#[test]
fn the_embedded_runtime_is_found_where_the_kernel_supports_it() {
    let (root, facts) = machine(CGROUP_V2_MACHINE);
    let embedded = "the embedded one, by keelson run and keelson cri";
    assert_eq!(verdict(&facts, "container runtime"), (MachineVerdict::Good, embedded.to_owned()));
    write(root.path(), &[("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n")]);
    let old = gather(root.path(), all_succeed());
    let (old_kernel, found) = verdict(&old, "container runtime");
    assert_eq!(old_kernel, MachineVerdict::Missing);
    assert!(found.ends_with("the embedded one lacks a kernel from 5.12 on"), "{found}");
    fs::create_dir_all(root.path().join("run/keelson")).unwrap();
    let _socket = UnixListener::bind(root.path().join("run/keelson/cri.sock")).unwrap();
    let (external_runtime, found) =
        verdict(&gather(root.path(), all_succeed()), "container runtime");
    assert_eq!(external_runtime, MachineVerdict::Good);
    assert!(found.starts_with("unix:///run/keelson/cri.sock; not the embedded one"), "{found}");
}

#[test]
fn a_failed_trial_limits_its_finding_only() {
    let (root, _) = machine(CGROUP_V2_MACHINE);
    let refused = || Err("refused".to_owned());
    let with = |change: &dyn Fn(&mut Trials)| {
        let mut trials = all_succeed();
        change(&mut trials);
        gather(root.path(), trials)
    };
    let network = with(&|trials| trials.pod_network = refused());
    for (facts, name) in [
        (with(&|trials| trials.seccomp = refused()), "seccomp"),
        (with(&|trials| trials.nftables = refused()), "nftables"),
        (with(&|trials| trials.user_namespaces = refused()), "user namespaces"),
        (with(&|trials| trials.recursive_read_only = refused()), "recursive read-only"),
        (network, "pod network"),
    ] {
        let (limited, found) = verdict(&facts, name);
        assert!(limited == MachineVerdict::Limited && found.contains("refused"), "{name}: {found}");
        assert!(
            findings_of(&facts).iter().all(|other| other.verdict != MachineVerdict::Missing),
            "{name}"
        );
    }
    // CNI plugins do not need the embedded runtime's bridge.
    write(root.path(), &[("etc/cni/net.d/10-pods.conflist", "{}")]);
    let plugins = with(&|trials| trials.pod_network = refused());
    assert_eq!(verdict(&plugins, "pod network").0, MachineVerdict::Good);
}

#[test]
fn nftables_needs_a_reply_that_is_no_netlink_error() {
    let mut netlink_error = [0_u8; 36];
    netlink_error[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    netlink_error[16..20].copy_from_slice(&(-22_i32).to_ne_bytes());
    assert!(nftables::verdict(&netlink_error).unwrap_err().contains("Invalid argument"));
    let mut reply = [0_u8; 28];
    reply[4..6].copy_from_slice(&0x0a0f_u16.to_ne_bytes());
    assert_eq!(nftables::verdict(&reply), Ok(()));
    assert!(nftables::verdict(&[0; 3]).is_err());
}

#[test]
fn the_confinement_finding_names_the_module() {
    let app_armor = [
        ("sys/module/apparmor/parameters/enabled", "Y\n"),
        ("sys/kernel/security/apparmor/profiles", ""),
    ];
    for (files, expected, word) in [
        (&[][..], MachineVerdict::Limited, "neither"),
        (&app_armor[..1], MachineVerdict::Limited, "neither"),
        (&app_armor[..], MachineVerdict::Limited, "apparmor_parser"),
        (&[("sys/fs/selinux/enforce", "0")][..], MachineVerdict::Limited, "permissive"),
        (&[("sys/fs/selinux/enforce", "1")][..], MachineVerdict::Good, "SELinux, enforcing"),
    ] {
        let (_root, facts) = machine(files);
        let (found, text) = verdict(&facts, "confinement");
        assert!(found == expected && text.contains(word), "{files:?}: {found:?} {text}");
    }
}
