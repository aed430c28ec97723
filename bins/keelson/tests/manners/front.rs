//! The command line: verbs, names, help, exit codes.

use super::support::{KubeletBed, keelson};
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
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("kubelet");
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
}

#[test]
fn the_version_is_the_same_however_it_is_asked_for() {
    let said = text(&run(&["version"]).stdout);
    assert!(said.starts_with("keelson 0.") && said.contains("v1.36"), "{said}");
    for flag in ["--version", "-V"] {
        let shown = run(&[flag]);
        assert_eq!(shown.status.code(), Some(0), "{flag}: {}", text(&shown.stderr));
        assert_eq!(text(&shown.stdout), said, "{flag}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_closed_pipe_is_not() {
    let bed = KubeletBed::new("");
    let file = format!("--config={}", bed.path("kubelet.yaml").display());
    let verbs = [&["check-config", &file][..], &["version"], &["--help"], &["kubelet", "--help"]];
    for verb in verbs {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = Command::new(keelson()).args(verb).stdout(full).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{verb:?}");
        let words = text(&refused.stderr);
        let last = words.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: cannot write to standard output: "), "{words}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = Command::new(keelson()).args(verb).stdout(writer).output().unwrap();
        assert_eq!(unread.status.code(), Some(0), "{verb:?}: {}", text(&unread.stderr));
    }
}

#[test]
fn check_config_exits_with_zero_only_for_a_usable_configuration() {
    let good = KubeletBed::new("maxPods: 77\n");
    let file = good.path("kubelet.yaml").to_str().unwrap().to_owned();
    let shown = run(&["check-config", "--config", &file]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("\nmaxPods: 77\n"));
    let table = text(&run(&["check-config", "-o", "table", "--config", &file]).stdout);
    assert!(
        table.lines().any(|line| line.starts_with("maxPods ") && line.contains(&file)),
        "{table}"
    );
    // The output is itself a configuration with the same result.
    fs::write(good.path("again.yaml"), &shown.stdout).unwrap();
    let again = good.path("again.yaml").to_str().unwrap().to_owned();
    let machine = |file: &str| {
        let shown = run(&["check-config", "-o", "json", "--config", file]);
        let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(report["usable"], true, "{report:#}");
        report["configuration"].clone()
    };
    assert_eq!(machine(&file), machine(&again));

    let bad = KubeletBed::new("maxPods: -1\nnoSuchField: 1\n");
    let file = bad.path("kubelet.yaml").to_str().unwrap().to_owned();
    let refused = run(&["check-config", "--config", &file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("maxPods"), "{}", text(&refused.stderr));
    let help = run(&["check-config", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Examples:"));
}

/// A bed with a directory of programs in which `one` and `two` are executable.
fn bed_with_programs() -> KubeletBed {
    let bed = KubeletBed::new("");
    fs::create_dir(bed.path("bin")).unwrap();
    for name in ["one", "two"] {
        symlink("/bin/true", bed.path("bin").join(name)).unwrap();
    }
    bed
}

fn provider(name: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
         - name: {name}\n  matchImages: ['*.{name}.example']\n  defaultCacheDuration: 1h\n  \
         apiVersion: credentialprovider.kubelet.k8s.io/v1\n  env: [{{name: KEY, value: s3cr3t}}]\n"
    )
}

fn check_providers(bed: &KubeletBed, providers: &str, output: &str) -> Output {
    let named = |flag: &str, name: &str| format!("--{flag}={}", bed.path(name).display());
    run(&[
        "check-config",
        "-o",
        output,
        &named("config", "kubelet.yaml"),
        &named("image-credential-provider-config", providers),
        &named("image-credential-provider-bin-dir", "bin"),
    ])
}

#[test]
fn check_config_shows_credential_providers_and_no_values_of_theirs() {
    let bed = bed_with_programs();
    fs::write(bed.path("providers.yaml"), provider("one")).unwrap();
    fs::create_dir(bed.path("providers.d")).unwrap();
    fs::write(bed.path("providers.d/20.yaml"), provider("two")).unwrap();
    fs::write(bed.path("providers.d/10.yml"), provider("one")).unwrap();
    fs::write(bed.path("providers.d/README"), "not a configuration").unwrap();
    for (path, names) in [("providers.yaml", &["one"][..]), ("providers.d", &["one", "two"])] {
        for output in ["yaml", "table", "json"] {
            let shown = check_providers(&bed, path, output);
            assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
            let words = text(&shown.stdout);
            assert!(!words.contains("s3cr3t") && words.contains("<masked>"), "{words}");
            assert!(
                names.iter().all(|name| words.contains(&format!("*.{name}.example"))),
                "{words}"
            );
        }
        let report = check_providers(&bed, path, "json");
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        let providers = report["credentialProviders"].as_array().unwrap();
        let shown: Vec<&str> =
            providers.iter().map(|each| each["name"].as_str().unwrap()).collect();
        assert_eq!(shown, names);
    }
}

#[test]
fn bad_credential_providers_are_refused_with_every_finding_by_both_verbs() {
    let bed = bed_with_programs();
    let bad = provider("a/b").replace("1h", "-1h").replace("name: KEY", "nmae: KEY");
    fs::write(bed.path("bad.yaml"), bad).unwrap();
    fs::write(bed.path("absent-program.yaml"), provider("three")).unwrap();
    let place = |name: &str, line: u32| format!("{}:{line}: ", bed.path(name).display());
    let expected: [(&str, Vec<String>); 3] = [
        (
            "bad.yaml",
            vec![
                format!("{}providers[0].name: a/b: ", place("bad.yaml", 4)),
                format!("{}providers[0].defaultCacheDuration: -1h", place("bad.yaml", 6)),
                format!("{}providers[0].env[0].nmae: ", place("bad.yaml", 8)),
            ],
        ),
        ("absent.yaml", vec![format!("cannot read {}", bed.path("absent.yaml").display())]),
        ("absent-program.yaml", vec![format!("cannot run {}", bed.path("bin/three").display())]),
    ];
    for (name, findings) in &expected {
        let checked = check_providers(&bed, name, "yaml");
        assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stderr));
        let mut agent = bed.start(&[
            &format!("--image-credential-provider-config={}", bed.path(name).display()),
            &format!("--image-credential-provider-bin-dir={}", bed.path("bin").display()),
        ]);
        assert_eq!(agent.exit_code(), Some(1), "{}", agent.log());
        for words in [text(&checked.stderr), agent.log()] {
            let mut lines = words.lines();
            for finding in findings {
                // In this order: by line.
                assert!(lines.any(|line| line.contains(finding)), "{finding} in {words}");
            }
            assert!(!words.contains("s3cr3t"), "{words}");
        }
    }
    fs::write(bed.path("good.yaml"), provider("one")).unwrap();
    let file = bed.path("good.yaml").to_str().unwrap().to_owned();
    for half in ["config", "bin-dir"] {
        let refused = run(&["check-config", &format!("--image-credential-provider-{half}={file}")]);
        assert_eq!(refused.status.code(), Some(1), "{half}");
        assert!(text(&refused.stderr).contains("must be set because"), "{}", text(&refused.stderr));
    }
}

#[test]
fn the_agents_log_shows_no_query_of_a_url() {
    let bed = KubeletBed::new("staticPodUrlHeader: {Authorization: [s3cr3t]}\n");
    let mut agent =
        bed.start(&["--manifest-url=https://me:s3cr3t@127.0.0.1:1/p?t=s3cr3t", "--v=2"]);
    agent.wait_for("READY=1");
    let log = agent.log();
    assert!(log.contains("127.0.0.1:1/p?<masked>"), "{log}");
    assert!(log.contains("staticPodUrlHeader") && !log.contains("s3cr3t"), "{log}");
}

#[test]
fn the_examples_of_the_project_are_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let shown = run(&["check-config", "--config", &format!("{examples}/kubelet.yaml")]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert_eq!(text(&shown.stderr), "");
    let dir = tempfile::tempdir().unwrap();
    // Read and shown before anything is opened: here the root is a file, and nothing can start.
    let root = dir.path().join("root");
    fs::write(&root, "").unwrap();
    let web = format!("{examples}/web.yaml");
    let pods = run(&["run", "--root", root.to_str().unwrap(), &web]);
    let words = text(&pods.stderr);
    assert!(words.starts_with("pod default/web"), "{words}");
    assert!(words.contains("container web  image localhost/keelson/web:1"), "{words}");
    assert_eq!(pods.status.code(), Some(1), "{words}");
    assert!(words.contains("error: ") && words.contains("root/agent"), "{words}");
}

#[test]
fn run_refuses_bad_manifests_before_it_does_anything() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.yaml");
    let bad = dir.path().join("bad.yaml");
    let odd = dir.path().join("odd.yaml");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:";
    fs::write(&good, format!("{pod} [{{name: c, image: i}}]\n")).unwrap();
    fs::write(&bad, format!("{pod} []\n")).unwrap();
    fs::write(&odd, format!("{pod} [{{name: c, image: i, comand: [x]}}]\n")).unwrap();
    for (files, expected) in [
        (vec![&good, &bad], format!("error: {}:5: spec.containers", bad.display())),
        (vec![&odd], format!("error: {}:5: spec.containers[0].comand", odd.display())),
        (vec![&good, &good], format!("error: {}:1: default/a is in", good.display())),
    ] {
        let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let refused = run(&[&["run", "--root", "/nonexistent/root"], files.as_slice()].concat());
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}");
        assert!(words.starts_with(&expected), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
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
    let bed = KubeletBed::new("failCgroupV1: true\nfailSwapOn: false\n");
    let mut agent = bed.start(&[]);
    if unified {
        agent.wait_for("READY=1");
    } else {
        assert_eq!(agent.exit_code(), Some(1));
        assert!(agent.log().contains("--fail-cgroupv1"), "{}", agent.log());
    }
}
