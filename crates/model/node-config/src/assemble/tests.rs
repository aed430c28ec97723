//! The order of sources, the oddities of each, and the origin of every value.

use serde_json::{Value as Json, json};

use super::*;
use crate::flags::Combine;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn source(path: &str, body: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), bytes: format!("{HEAD}{body}").into_bytes() }
}

fn files(config: Option<&str>, drop_ins: &[&str]) -> ConfigFiles {
    ConfigFiles {
        config: config.map(|body| source("/etc/kubelet/config.yaml", body)),
        drop_ins: drop_ins
            .iter()
            .enumerate()
            .map(|(index, body)| source(&format!("/etc/kubelet/conf.d/{index}.conf"), body))
            .collect(),
        ..ConfigFiles::default()
    }
}

fn edit(flag: &'static str, path: &'static str, value: Json) -> ConfigEdit {
    let combine = match path {
        "featureGates" => Combine::AddKeys,
        "logging.vmodule" => Combine::Append,
        _ => Combine::Replace,
    };
    ConfigEdit { flag, path, value, combine }
}

fn settled(files: &ConfigFiles, edits: &[ConfigEdit]) -> Node {
    let assembled = assemble(edits, files, false);
    assert_eq!(assembled.diagnostics, []);
    assert!(assembled.readable);
    assembled.tree
}

fn messages_of(files: &ConfigFiles, edits: &[ConfigEdit]) -> Vec<String> {
    assemble(edits, files, false).diagnostics.iter().map(ToString::to_string).collect()
}

fn at(tree: &Node, path: &str) -> Json {
    tree.find(path).map_or(Json::Null, Node::to_json)
}

fn origin_at(tree: &Node, path: &str) -> String {
    tree.find(path).unwrap().origin.to_string()
}

#[test]
fn without_a_file_the_four_older_defaults_apply_and_no_eviction_thresholds() {
    let bare = settled(&files(None, &[]), &[]);
    let with_file = settled(&files(Some(""), &[]), &[]);
    for (path, older, newer) in [
        ("authentication.anonymous.enabled", json!(true), json!(false)),
        ("authentication.webhook.enabled", json!(false), json!(true)),
        ("authorization.mode", json!("AlwaysAllow"), json!("Webhook")),
        ("readOnlyPort", json!(10255), json!(0)),
        (
            "evictionHard",
            json!({}),
            json!({"memory.available": "100Mi", "nodefs.available": "10%",
            "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}),
        ),
        ("port", json!(10250), json!(10250)),
    ] {
        assert_eq!(at(&bare, path), older, "{path}");
        assert_eq!(at(&with_file, path), newer, "{path}");
        assert_eq!(origin_at(&bare, path), "default");
    }
}

#[test]
fn sources_come_in_order_and_every_value_knows_its_own() {
    let files = files(
        Some("maxPods: 1\nport: 1\naddress: 1.1.1.1\nhealthzPort: 1\n"),
        &["maxPods: 2\nport: 2\naddress: 2.2.2.2", "maxPods: 3\nport: 3"],
    );
    let tree = settled(&files, &[edit("max-pods", "maxPods", json!(4))]);
    for (path, value, origin) in [
        ("maxPods", json!(4), "--max-pods"),
        ("port", json!(3), "/etc/kubelet/conf.d/1.conf:4"),
        ("address", json!("2.2.2.2"), "/etc/kubelet/conf.d/0.conf:5"),
        ("healthzPort", json!(1), "/etc/kubelet/config.yaml:6"),
        ("eventBurst", json!(100), "default"),
    ] {
        assert_eq!(at(&tree, path), value, "{path}");
        assert_eq!(origin_at(&tree, path), origin, "{path}");
    }
}

#[test]
fn strictness_is_relaxed_for_the_file_with_warnings() {
    let relaxed =
        files(Some("maxPods: 5\nnothing: 1\nmaxPods: 6\nauthentication: {Webhook: {}}\n"), &[]);
    let assembled = assemble(&[], &relaxed, false);
    assert!(assembled.diagnostics.iter().all(|diagnostic| !diagnostic.is_error()));
    assert_eq!(at(&assembled.tree, "maxPods"), json!(6));
    assert_eq!(
        messages_of(&relaxed, &[]),
        [
            "/etc/kubelet/config.yaml:5: maxPods: the key is given more than once, the last one counts",
            "/etc/kubelet/config.yaml:6: authentication.Webhook: {}: unknown field, ignored; did you mean webhook?",
            "/etc/kubelet/config.yaml:4: nothing: 1: unknown field, ignored",
        ]
    );
}

#[test]
fn drop_ins_refuse_repeated_keys_but_take_names_of_any_case() {
    let repeated = files(Some(""), &["maxPods: 5\nmaxPods: 6"]);
    assert_eq!(
        messages_of(&repeated, &[]),
        ["/etc/kubelet/conf.d/0.conf:4: maxPods: the key is given more than once, expected once"]
    );
    assert!(assemble(&[], &repeated, false).diagnostics[0].is_error());
    // The base sets maxPods, and "MAXPODS" sorts before it while "maxpods" sorts after it.
    let tree = settled(&files(Some(""), &["MAXPODS: 5\npodcidr: 10.0.0.0/24"]), &[]);
    assert_eq!(at(&tree, "maxPods"), json!(110));
    assert_eq!(at(&tree, "podCIDR"), json!("10.0.0.0/24"));
    assert_eq!(at(&settled(&files(Some(""), &["maxpods: 5"]), &[]), "maxPods"), json!(5));
    let unknown = files(Some(""), &["nothing: 5"]);
    assert_eq!(
        messages_of(&unknown, &[]),
        ["/etc/kubelet/conf.d/0.conf:3: nothing: 5: unknown field, ignored"]
    );
}

#[test]
fn drop_ins_are_merged_over_the_defaulted_document() {
    let text = "evictionHard: {memory.available: 200Mi}\nclusterDNS: [a, b]\nsyncFrequency: 5s\nmaxParallelImagePulls: 3\n";
    for (drop_in, path, wanted) in [
        (
            "evictionHard: {nodefs.available: 1%}",
            "evictionHard",
            json!({"memory.available": "200Mi", "nodefs.available": "1%"}),
        ),
        ("evictionHard: {memory.available: null}", "evictionHard", json!({})),
        ("evictionHard: null", "evictionHard", json!({})),
        ("clusterDNS: [c]", "clusterDNS", json!(["c"])),
        ("clusterDNS: null", "clusterDNS", json!([])),
        // A null removes the value, and the default comes back.
        ("syncFrequency: null", "syncFrequency", json!("1m0s")),
        ("authentication: null", "authentication.webhook.enabled", json!(true)),
        (
            "authentication: {webhook: {cacheTTL: 5s}}",
            "authentication.webhook",
            json!({"enabled": true, "cacheTTL": "5s"}),
        ),
        ("nodeStatusUpdateFrequency: 1s", "nodeStatusReportFrequency", json!("5m0s")),
        ("maxParallelImagePulls: 1", "serializeImagePulls", json!(false)),
        ("tlsCertFile: relative.crt", "tlsCertFile", json!("relative.crt")),
        ("userNamespaces: {idsPerPod: null}", "userNamespaces", json!({})),
    ] {
        assert_eq!(at(&settled(&files(Some(text), &[drop_in]), &[]), path), wanted, "{drop_in}");
    }
    // With an empty file, the loader's thresholds are already part of the base of the merge.
    let tree = settled(&files(Some(""), &["evictionHard: {memory.available: 1Mi}"]), &[]);
    assert_eq!(at(&tree, "evictionHard[memory.available]"), json!("1Mi"));
    assert_eq!(at(&tree, "evictionHard[imagefs.available]"), json!("15%"));
}

#[test]
fn merge_default_eviction_settings_fills_only_the_gaps_of_the_file() {
    let tree = settled(
        &files(
            Some("mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}"),
            &[],
        ),
        &[],
    );
    assert_eq!(at(&tree, "evictionHard[memory.available]"), json!("1Gi"));
    assert_eq!(at(&tree, "evictionHard[nodefs.available]"), json!("10%"));
    let tree = settled(&files(Some("evictionHard: {memory.available: 1Gi}"), &[]), &[]);
    assert_eq!(at(&tree, "evictionHard"), json!({"memory.available": "1Gi"}));
    let tree = settled(&files(Some("evictionHard: {}"), &[]), &[]);
    assert_eq!(at(&tree, "evictionHard"), json!({}));
    assert_eq!(
        at(
            &settled(&files(Some("evictionHard: null"), &[]), &[]),
            "evictionHard[memory.available]"
        ),
        json!("100Mi")
    );
}

#[test]
fn a_drop_in_directory_alone_gives_an_empty_list_its_default_back() {
    let files = files(Some("enforceNodeAllocatable: []"), &[]);
    assert_eq!(at(&assemble(&[], &files, false).tree, "enforceNodeAllocatable"), json!([]));
    assert_eq!(at(&assemble(&[], &files, true).tree, "enforceNodeAllocatable"), json!(["pods"]));
}

#[test]
fn drop_ins_without_a_file_land_on_the_older_defaults() {
    let tree = settled(&files(None, &["maxPods: 7"]), &[edit("port", "port", json!(1))]);
    for (path, wanted) in [
        ("authorization.mode", json!("AlwaysAllow")),
        ("readOnlyPort", json!(10255)),
        ("evictionHard", json!({})),
        ("maxPods", json!(7)),
        ("port", json!(1)),
    ] {
        assert_eq!(at(&tree, path), wanted, "{path}");
    }
}

#[test]
fn flags_replace_fields_and_merge_gates() {
    let files = files(
        Some(
            "kubeReserved: {cpu: 1}\nfeatureGates: {NodeSwap: true, MemoryQoS: true}\nlogging: {flushFrequency: 1000000000, vmodule: [{filePattern: a, verbosity: 1}]}",
        ),
        &[],
    );
    let edits = [
        edit("kube-reserved", "kubeReserved", json!({"memory": "1Gi"})),
        edit("feature-gates", "featureGates", json!({"MemoryQoS": false})),
        edit("log-flush-frequency", "logging.flushFrequency", json!("2s")),
        edit("vmodule", "logging.vmodule", json!([{"filePattern": "b", "verbosity": 2}])),
        edit("max-pods", "maxPods", json!(0)),
        edit("sync-frequency", "syncFrequency", json!("60s")),
        edit("anonymous-auth", "authentication.anonymous.enabled", json!(true)),
    ];
    let tree = assemble(&edits, &files, false).tree;
    for (path, wanted) in [
        ("kubeReserved", json!({"memory": "1Gi"})),
        ("featureGates", json!({"NodeSwap": true, "MemoryQoS": false})),
        ("logging.flushFrequency", json!(2_000_000_000_i64)),
        (
            "logging.vmodule",
            json!([{"filePattern": "a", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}]),
        ),
        ("maxPods", json!(0)),
        ("syncFrequency", json!("1m0s")),
        ("authentication.anonymous.enabled", json!(true)),
    ] {
        assert_eq!(at(&tree, path), wanted, "{path}");
    }
    assert_eq!(origin_at(&tree, "featureGates.NodeSwap"), "/etc/kubelet/config.yaml:4");
    assert_eq!(origin_at(&tree, "featureGates.MemoryQoS"), "--feature-gates");
    let wrong = [edit("x", "nothing.here", json!(1)), edit("max-pods", "maxPods", json!("many"))];
    let found = messages_of(&ConfigFiles::default(), &wrong);
    assert_eq!(found[0], "--x: nothing.here: no such configuration field");
    assert!(
        found[1].starts_with("--max-pods: maxPods: many: expected a whole number"),
        "{}",
        found[1]
    );
}

#[test]
fn gates_on_the_command_line_are_known_while_the_file_is_defaulted() {
    let policy = "imagePullCredentialsVerificationPolicy";
    let off =
        [edit("feature-gates", "featureGates", json!({"KubeletEnsureSecretPulledImages": false}))];
    assert_eq!(at(&assemble(&off, &files(Some(""), &[]), false).tree, policy), json!(""));
    // The file's own gate has precedence while it is defaulted, and without a file no flag counts.
    let text = "featureGates: {KubeletEnsureSecretPulledImages: true}";
    let filled = json!("NeverVerifyPreloadedImages");
    assert_eq!(at(&assemble(&off, &files(Some(text), &[]), false).tree, policy), filled);
    assert_eq!(at(&assemble(&off, &files(None, &[]), false).tree, policy), filled);
    let text = "featureGates: {KubeletCrashLoopBackOffMax: false}";
    assert_eq!(
        at(&assemble(&[], &files(Some(text), &[]), false).tree, "crashLoopBackOff"),
        json!({})
    );
}

#[test]
fn a_gate_that_is_wrong_in_one_source_stays_wrong_when_another_corrects_it() {
    let files = files(Some("featureGates:\n  NoSuchGate: true\n"), &[]);
    let edits = [edit("feature-gates", "featureGates", json!({"NeitherThis": true}))];
    let found = messages_of(&files, &edits);
    assert!(
        found.iter().any(|line| line.starts_with("/etc/kubelet/config.yaml:4: featureGates")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|line| line.starts_with("--feature-gates: featureGates")),
        "{found:?}"
    );
}

#[test]
fn relative_paths_of_the_file_are_resolved_against_its_dir() {
    let text = "staticPodPath: manifests/\ntlsCertFile: ../pki/./a.crt\ntlsPrivateKeyFile: /abs/a.key\n\
                resolvConf: ''\nvolumePluginDir: x//y/../z\npodLogsDir: ../../../..\n\
                authentication: {x509: {clientCAFile: ca.crt}}\ncgroupRoot: relative\n";
    let tree = settled(&files(Some(text), &[]), &[]);
    for (path, wanted) in [
        ("staticPodPath", "/etc/kubelet/manifests"),
        ("tlsCertFile", "/etc/pki/a.crt"),
        ("tlsPrivateKeyFile", "/abs/a.key"),
        ("resolvConf", ""),
        ("volumePluginDir", "/etc/kubelet/x/z"),
        ("podLogsDir", "/"),
        ("authentication.x509.clientCAFile", "/etc/kubelet/ca.crt"),
        ("cgroupRoot", "relative"),
    ] {
        assert_eq!(at(&tree, path), json!(wanted), "{path}");
    }
    assert_eq!(paths::clean("a/../../b"), "../b");
    assert_eq!(paths::clean("a/.."), ".");
}

#[test]
fn reserved_memory_of_the_file_is_rounded_up_to_thousandths() {
    let text =
        |memory: &str| format!("reservedMemory: [{{numaNode: 0, limits: {{memory: {memory}}}}}]");
    for (memory, in_file, in_drop_in) in [
        ("100u", "1m", "100u"),
        ("1e-7", "1e-3", "100e-9"),
        ("1Gi", "1Gi", "1Gi"),
        ("1.5", "1500m", "1500m"),
    ] {
        let path = "reservedMemory[0].limits.memory";
        let tree = settled(&files(Some(&text(memory)), &[]), &[]);
        assert_eq!(at(&tree, path), json!(in_file), "{memory}");
        let tree = settled(&files(Some(""), &[&text(memory)]), &[]);
        assert_eq!(at(&tree, path), json!(in_drop_in), "{memory}");
    }
}

#[test]
fn only_a_kubelet_configuration_of_v1beta1_is_taken() {
    for (text, found) in [
        (
            "kind: KubeletConfiguration",
            "c:1: apiVersion: missing, expected kubelet.config.k8s.io/v1beta1",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1",
            "c:1: kind: missing, expected KubeletConfiguration",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration",
            "c:1: apiVersion: kubelet.config.k8s.io/v1: expected kubelet.config.k8s.io/v1beta1",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: CredentialProviderConfig",
            "c:2: kind: CredentialProviderConfig: expected KubeletConfiguration",
        ),
        ("[1]", "c:1: expected an object of kind KubeletConfiguration, found a list"),
        ("# nothing", "c:1: expected an object of kind KubeletConfiguration, found nothing"),
        ("", "c: the file is empty, expected a configuration"),
    ] {
        let file = SourceFile { path: "c".to_owned(), bytes: text.as_bytes().to_vec() };
        let config = ConfigFiles { config: Some(file.clone()), ..ConfigFiles::default() };
        assert_eq!(messages_of(&config, &[]), [found], "{text}");
        assert!(!assemble(&[], &config, false).readable);
        let drop_in = ConfigFiles { drop_ins: vec![file], ..ConfigFiles::default() };
        assert_eq!(messages_of(&drop_in, &[]), [found], "{text}");
    }
    // The two keys match in any case in the file, exactly in a drop-in.
    let bytes = b"APIVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration".to_vec();
    let file = SourceFile { path: "c".to_owned(), bytes };
    let found =
        messages_of(&ConfigFiles { config: Some(file.clone()), ..ConfigFiles::default() }, &[]);
    assert_eq!(found, ["c:1: APIVersion: kubelet.config.k8s.io/v1beta1: unknown field, ignored"]);
    assert!(
        !assemble(&[], &ConfigFiles { drop_ins: vec![file], ..ConfigFiles::default() }, false)
            .readable
    );
}

#[test]
fn all_findings_of_all_files_are_collected() {
    let files =
        files(Some("maxPods: many\nport: x\n"), &["maxPods: {}\n", "address: [\n", "kind: Pod"]);
    let found = messages_of(&files, &[]);
    assert!(found.iter().any(|line| line.contains("config.yaml:3: maxPods: many")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("config.yaml:4: port: x")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("0.conf:3: maxPods: {}")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("1.conf:")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("2.conf:3: kind")), "{found:?}");
}

#[test]
fn drop_ins_are_taken_by_suffix_in_walking_order() {
    let order = drop_in_order(&[
        "b.conf",
        "a/z.conf",
        "a.conf",
        "a/b/c.conf",
        "x.yaml",
        "10.conf",
        "9.conf",
        ".conf",
        "a.CONF",
        "a-b.conf",
    ]);
    assert_eq!(
        order.taken,
        [".conf", "10.conf", "9.conf", "a/b/c.conf", "a/z.conf", "a-b.conf", "a.conf", "b.conf"]
    );
    assert_eq!(order.skipped, ["a.CONF", "x.yaml"]);
}
