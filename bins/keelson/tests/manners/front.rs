//! The front door: verbs, names, help, exit codes.

use super::support::{Bed, keelson};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(keelson()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn under_the_name_kubelet_it_takes_a_kubelets_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubelet");
    symlink(keelson(), &link).unwrap();
    let plain = Command::new(&link).arg("--version").output().unwrap();
    assert_eq!(text(&plain.stdout), "Kubernetes v1.36.3\n");
    assert_eq!(text(&run(&["kubelet", "--version"]).stdout), "Kubernetes v1.36.3\n");
    let raw = Command::new(&link).arg("--version=raw").output().unwrap();
    assert!(text(&raw.stdout).contains("GitVersion:\"v1.36.3\""), "{raw:?}");
    let help = Command::new(&link).arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    for flag in ["--config", "--root-dir", "--lock-file", "--v"] {
        assert!(text(&help.stdout).contains(flag), "{flag}");
    }
    for wrong in ["--bogus", "stray"] {
        let refused = Command::new(&link).arg(wrong).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let words = text(&refused.stderr);
        assert!(words.starts_with('E') && words.contains(wrong), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    }
}

#[test]
fn help_has_examples_and_a_mistake_is_one_line_with_the_next_step() {
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let words = text(&help.stdout);
    for part in ["Examples:", "keelson doctor", "check-config", "cri-client", "kubelet"] {
        assert!(words.contains(part), "{part} in {words}");
    }
    assert!(!words.contains('\u{1b}'), "colours without a terminal");
    for mistake in [&["frobnicate"][..], &["doctor", "-o", "xml"], &["run"], &["version", "x"]] {
        let refused = run(mistake);
        assert_eq!(refused.status.code(), Some(2), "{mistake:?}");
        let words = text(&refused.stderr);
        assert_eq!(words.lines().count(), 1, "{words}");
        assert!(words.ends_with("; see keelson --help\n"), "{words}");
    }
    assert!(text(&run(&["version"]).stdout).starts_with("keelson 0."));
}

#[test]
fn check_config_says_by_its_exit_code_whether_a_configuration_is_usable() {
    let good = Bed::new("maxPods: 77\n");
    let file = good.path("kubelet.yaml").to_str().unwrap().to_owned();
    let shown = run(&["check-config", "--config", &file]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("\nmaxPods: 77\n"));
    let table = text(&run(&["check-config", "-o", "table", "--config", &file]).stdout);
    assert!(
        table.lines().any(|line| line.starts_with("maxPods ") && line.contains(&file)),
        "{table}"
    );
    // What was printed is itself a configuration, and comes to the same.
    fs::write(good.path("again.yaml"), &shown.stdout).unwrap();
    let again = good.path("again.yaml").to_str().unwrap().to_owned();
    let machine = |file: &str| {
        let shown = run(&["check-config", "-o", "json", "--config", file]);
        let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(report["usable"], true, "{report:#}");
        report["configuration"].clone()
    };
    assert_eq!(machine(&file), machine(&again));

    let bad = Bed::new("maxPods: -1\nnoSuchField: 1\n");
    let file = bad.path("kubelet.yaml").to_str().unwrap().to_owned();
    let refused = run(&["check-config", "--config", &file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("maxPods"), "{}", text(&refused.stderr));
    let help = run(&["check-config", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Examples:"));
}

#[test]
fn the_examples_of_the_project_are_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let shown = run(&["check-config", "--config", &format!("{examples}/kubelet.yaml")]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert_eq!(text(&shown.stderr), "");
    let pods = run(&["run", &format!("{examples}/hello.yaml")]);
    let words = text(&pods.stdout);
    assert!(words.starts_with("pod default/hello"), "{words}");
    assert!(words.contains("container hello  image busybox:1.37"), "{words}");
}

#[test]
fn run_reads_manifests_and_pretends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.yaml");
    let bad = folder.path().join("bad.yaml");
    fs::write(&good, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n").unwrap();
    fs::write(&bad, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n")
        .unwrap();
    let refused = run(&["run", good.to_str().unwrap(), bad.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    let words = text(&refused.stderr);
    assert!(words.starts_with(&format!("error: {}:4: spec.containers", bad.display())), "{words}");

    let usable = run(&["doctor"]).status.success();
    let started = run(&["run", good.to_str().unwrap()]);
    let words = text(&started.stderr);
    if usable {
        assert_eq!(started.status.code(), Some(3), "{words}");
        assert!(words.starts_with("not built yet: "), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    } else {
        assert_eq!(started.status.code(), Some(1), "{words}");
    }
}

#[test]
fn the_doctor_judges_this_machine_in_both_forms() {
    let report = run(&["doctor", "-o", "json"]);
    let findings: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(findings["usable"], report.status.success());
    let names: Vec<&str> = findings["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["name"].as_str().unwrap())
        .collect();
    for name in ["kernel", "cgroups", "seccomp", "swap", "nftables", "container runtime"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let table = text(&run(&["doctor"]).stdout);
    assert!(!table.contains('\u{1b}'), "{table}");
    assert!(names.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn a_machine_that_the_configuration_refuses_is_refused_with_the_way_out() {
    // The default refuses cgroup version 1; where there is version 2 the agent must start instead.
    let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let bed = super::support::Bed::new("failCgroupV1: true\nfailSwapOn: false\n");
    let mut agent = bed.start(&[]);
    if unified {
        agent.wait_for("READY=1");
    } else {
        assert_eq!(agent.exit_code(), Some(1));
        assert!(agent.log().contains("--fail-cgroupv1"), "{}", agent.log());
    }
}
