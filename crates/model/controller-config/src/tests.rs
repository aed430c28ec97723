//! Flags against the golden file, both sources together, and every error.

use node_config::SourceFile;
use proptest::prelude::*;

use crate::table;
use crate::{CloudSource, LoadedControllerConfig, NodeControllerConfig, load, parse, usage};

const GOLDEN: &str = include_str!("tests/kube-controller-manager-flags.golden");

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

fn loaded(args: &[&str], file: Option<&str>) -> LoadedControllerConfig {
    let file = file.map(|text| SourceFile { path: "/etc/c.yaml".into(), bytes: text.into() });
    load(parse(&words(args)), file.as_ref())
}

fn good(args: &[&str]) -> NodeControllerConfig {
    let loaded = loaded(args, None);
    loaded.config.unwrap_or_else(|| panic!("{args:?}: {:?}", loaded.diagnostics))
}

fn errors(loaded: &LoadedControllerConfig) -> Vec<String> {
    loaded.diagnostics.iter().filter(|it| it.is_error()).map(ToString::to_string).collect()
}

fn warnings(loaded: &LoadedControllerConfig) -> Vec<String> {
    loaded.diagnostics.iter().filter(|it| !it.is_error()).map(ToString::to_string).collect()
}

/// Ours that upstream does not have, and upstream's two that its help hides.
const OURS: [&str; 2] = ["config", "explain-socket"];
const HIDDEN: [&str; 2] = ["allow-untagged-cloud", "node-sync-period"];

#[test]
fn every_flag_of_the_pinned_version_is_known_with_its_kind_and_default() {
    let mut rows = GOLDEN.lines();
    assert!(rows.next().is_some_and(|line| line.contains(crate::KUBERNETES_VERSION)));
    let mut seen = Vec::new();
    for line in rows {
        let [name, kind, default, _] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}");
        };
        let row = table::find(name).unwrap_or_else(|| panic!("--{name} is missing"));
        let same_kind = match kind {
            "strings" => "stringSlice",
            "float32" => "float",
            // Parsed by their form; nothing here uses them.
            "stringToString" => "mapStringString",
            "int32Slice" => "stringSlice",
            "namedCertKey" => "string",
            "colonSeparatedMultimapStringString" => "mapStringBool",
            other => other,
        };
        assert_eq!(row.kind().type_name(), same_kind, "--{name}");
        if table::own().iter().any(|own| own.name == name) {
            // The lease has a name of our own.
            let ours = match name {
                "leader-elect-resource-name" => "keelson-node-controller",
                "v" => "0",
                _ => default,
            };
            assert_eq!(row.default, ours, "--{name}");
        }
        seen.push(name);
    }
    for row in table::all() {
        let known = seen.contains(&row.name) || OURS.contains(&row.name);
        assert!(known || HIDDEN.contains(&row.name), "--{} is not upstream's", row.name);
    }
}

#[test]
fn flags_at_their_defaults_change_nothing() {
    let written: Vec<String> = table::own()
        .iter()
        .filter(|row| !row.default.is_empty())
        .map(|row| format!("--{}={}", row.name, row.default.trim_matches(['[', ']'])))
        .collect();
    assert!(written.len() > 25, "{written:?}");
    let written = load(parse(&written), None);
    assert_eq!(errors(&written), Vec::<String>::new());
    assert_eq!(written.config, loaded(&[], None).config);
    assert!(written.config.is_some());
}

#[test]
fn a_unit_of_kube_controller_manager_is_taken_with_warnings() {
    let loaded = loaded(
        &[
            "--allocate-node-cidrs=true",
            "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--bind-address=127.0.0.1",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-cidr=10.244.0.0/16",
            "--cluster-name=kubernetes",
            "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
            "--controllers=*,bootstrapsigner,tokencleaner",
            "--kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--leader-elect=true",
            "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
            "--root-ca-file=/etc/kubernetes/pki/ca.crt",
            "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
            "--service-cluster-ip-range=10.96.0.0/12",
            "--use-service-account-credentials=true",
        ],
        None,
    );
    assert_eq!(errors(&loaded), Vec::<String>::new());
    let warned = warnings(&loaded);
    assert_eq!(warned.len(), 8, "{warned:#?}");
    assert!(warned.iter().any(|it| it.starts_with("--root-ca-file: it belongs to the serviceacc")));
    assert!(warned.iter().any(|it| it.contains("--controllers: bootstrapsigner: it runs in")));
    let config = loaded.config.expect("a configuration");
    assert!(config.controllers.pod_ranges && config.controllers.lifecycle);
    let ranges = config.ranges.expect("ranges");
    assert_eq!((ranges.cluster[0].1, ranges.service.len()), (24, 1));
}

#[test]
fn the_list_of_controllers_is_read_as_upstream_reads_it() {
    let on = |list: &str| {
        let it =
            good(&["--cluster-cidr=10.0.0.0/8", "--allocate-node-cidrs", "--controllers", list])
                .controllers;
        [it.lifecycle, it.taint_eviction, it.pod_ranges, it.pod_cleanup]
    };
    assert_eq!(on("*"), [true; 4]);
    assert_eq!(on(""), [false; 4]);
    assert_eq!(on("*,-taint-eviction-controller"), [true, false, true, true]);
    assert_eq!(on("podgc"), [false, false, false, true]);
    assert_eq!(on("nodelifecycle,nodeipam,*,-nodelifecycle"), [true; 4]);
    assert_eq!(on("-nodelifecycle,*,nodelifecycle"), [false, true, true, true]);
    assert_eq!(on("-job,-attachdetach"), [false; 4]);
    let refused = errors(&loaded(&["--controllers=*,nodes"], None));
    assert_eq!(
        refused,
        ["--controllers: nodes: it is not in the list of known controllers".to_owned()]
    );
}

type Mistake = (&'static [&'static str], &'static str);

const MISTAKES: &[Mistake] = &[
    (&["--no-such"], "unknown flag: --no-such"),
    (&["explain"], "expected flags only, found the word \"explain\""),
    (&["--node-eviction-rate=fast"], "--node-eviction-rate: fast: expected a number, such as 0.1"),
    (
        &["--node-monitor-grace-period=0s"],
        "--node-monitor-grace-period: 0s: expected a duration greater than zero",
    ),
    (
        &["--node-monitor-grace-period=-1s"],
        "--node-monitor-grace-period: -1s: expected a duration that is not negative",
    ),
    (
        &["--leader-elect-resource-lock=endpoints"],
        "--leader-elect-resource-lock: endpoints: expected \"leases\"",
    ),
    (
        &["--leader-elect-lease-duration=10s"],
        "--leader-elect-lease-duration: 10s: expected whole seconds that are more than --leader-elect-renew-deadline 10s",
    ),
    (
        &["--leader-elect-retry-period=9s"],
        "--leader-elect-renew-deadline: 10s: expected more than 1.2 times --leader-elect-retry-period 9s",
    ),
    (
        &["--allocate-node-cidrs"],
        "--cluster-cidr: \"\": expected a range, since --allocate-node-cidrs is on",
    ),
    (
        &["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8,10.9.0.0/16"],
        "--cluster-cidr: 10.0.0.0/8,10.9.0.0/16: expected one range, or one of each family",
    ),
    (
        &["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size=33"],
        "--node-cidr-mask-size: 33: expected from 8 to 32 for the cluster range 10.0.0.0/8",
    ),
    (
        &["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/26"],
        "--node-cidr-mask-size-ipv4: 24: expected from 26 to 32 for the cluster range 10.0.0.0/26",
    ),
    (
        &[
            "--allocate-node-cidrs",
            "--cluster-cidr=10.0.0.0/8,fd00::/48",
            "--node-cidr-mask-size=25",
        ],
        "--node-cidr-mask-size: 25: expected the two flags per family instead, with two families",
    ),
    (
        &["--allocate-node-cidrs", "--cluster-cidr=fd00::/48", "--node-cidr-mask-size-ipv4=25"],
        "--node-cidr-mask-size-ipv4: 25: expected no IPv4 mask size, since the cluster is IPv6 only",
    ),
    (
        &["--cidr-allocator-type=CloudAllocator"],
        "--cidr-allocator-type: CloudAllocator: expected RangeAllocator: others need a cloud",
    ),
    (&["--cloud-provider=aws"], "--cloud-provider: aws: expected file, exec, external or nothing"),
    (
        &["--cloud-provider=file"],
        "--cloud-config: \"\": expected an absolute path with --cloud-provider=file",
    ),
    (&["--secure-port=70000"], "--secure-port: 70000: expected a port from 0 to 65535"),
    (&["--tls-cert-file=/c"], "--tls-cert-file: /c: expected --tls-private-key-file beside it"),
    (
        &["--tls-min-version=VersionTLS14"],
        "--tls-min-version: VersionTLS14: expected VersionTLS12 or VersionTLS13",
    ),
    (
        &["--explain-socket=here"],
        "--explain-socket: here: expected an absolute path of at most 107 bytes, or nothing",
    ),
    (
        &["--feature-gates=cloud:A=true"],
        "--feature-gates: cloud:A=true: expected the component kube, found \"cloud\"",
    ),
    (
        &["--concurrent-job-syncs=x"],
        "--concurrent-job-syncs: x: expected a whole number from -2147483648 to 2147483647",
    ),
    (&["--logging-format=xml"], "--logging-format: xml: expected text or json"),
    (
        &["--node-eviction-rate=1e300"],
        "--node-eviction-rate: expected a number that fits into 32 bits",
    ),
];

#[test]
fn mistakes_are_all_found_and_named() {
    for (args, expected) in MISTAKES {
        let found = loaded(args, None);
        assert!(found.config.is_none(), "{args:?}");
        assert_eq!(errors(&found), [(*expected).to_owned()], "{args:?}");
    }
    let three =
        loaded(&["--secure-port=-1", "--cloud-provider=x", "--leader-elect-retry-period=0s"], None);
    assert_eq!(errors(&three).len(), 3, "{three:?}");
}

#[test]
fn both_families_get_their_own_mask() {
    let ranges = |args: &[&str]| {
        let mut all = vec!["--allocate-node-cidrs", "--cluster-cidr=fd00::/48,10.0.0.0/8"];
        all.extend(args);
        good(&all).ranges.expect("ranges").cluster.iter().map(|it| it.1).collect::<Vec<_>>()
    };
    assert_eq!(ranges(&[]), [64, 24]);
    assert_eq!(
        ranges(&["--node-cidr-mask-size-ipv4=20", "--node-cidr-mask-size-ipv6=60"]),
        [60, 20]
    );
    assert_eq!(good(&["--cluster-cidr=10.0.0.0/8"]).ranges, None);
}

const FILE: &str = "
apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1
kind: KubeControllerManagerConfiguration
Generic:
  ClientConnection: {kubeconfig: /file.conf, qps: 7.5, burst: 9}
  LeaderElection: {leaderElect: false}
  Controllers: ['*', -podgc]
  MinResyncPeriod: 12h
KubeCloudShared:
  CloudProvider: {Name: file, CloudConfigFile: /machines.yaml}
  NodeMonitorPeriod: 3s
nodeLifecycleController:
  NodeMonitorGracePeriod: 40s
  UnhealthyZoneThreshold: 1
  PodEvictionTimeout: 5m
JobController: {ConcurrentJobSyncs: 5}
";

#[test]
fn the_file_is_read_and_flags_win() {
    let loaded = loaded(&["--node-monitor-grace-period=30s", "--kube-api-burst=11"], Some(FILE));
    assert_eq!(errors(&loaded), Vec::<String>::new());
    let warned = warnings(&loaded);
    assert_eq!(warned.len(), 3, "{warned:#?}");
    assert!(warned[0].starts_with("/etc/c.yaml:8: Generic.MinResyncPeriod: it has no effect here"));
    let config = loaded.config.expect("a configuration");
    assert_eq!(config.connection.kubeconfig, "/file.conf");
    assert_eq!(config.connection.rate, Some((7.5, 11)));
    assert_eq!(config.leader, None);
    assert!(!config.controllers.pod_cleanup && config.controllers.cloud);
    assert_eq!(config.cloud, Some(CloudSource::File("/machines.yaml".into())));
    assert_eq!(config.lifecycle.monitor_grace.as_secs(), 30);
    assert_eq!(config.lifecycle.monitor_period.as_secs(), 3);
    assert!((config.lifecycle.unhealthy_share - 1.0).abs() < f32::EPSILON);
}

#[test]
fn a_bad_file_is_refused_with_place_and_field() {
    let head = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                kind: KubeControllerManagerConfiguration\n";
    for (text, expected) in [
        ("Nodes: {}", "/etc/c.yaml:3: Nodes: unknown field"),
        ("Generic: {Controlers: []}", "/etc/c.yaml:3: Generic.Controlers: unknown field"),
        ("Generic: 5", "/etc/c.yaml:3: Generic: 5: expected an object"),
        (
            "Generic: {Controllers: '*'}",
            "/etc/c.yaml:3: Generic.Controllers: *: expected a list of strings, found a string",
        ),
        (
            "Generic: {Controllers: [nodes]}",
            "/etc/c.yaml:3: Generic.Controllers: nodes: it is not in the list of known controllers",
        ),
        (
            "NodeLifecycleController: {NodeEvictionRate: fast}",
            "/etc/c.yaml:3: NodeLifecycleController.NodeEvictionRate: fast: expected a number, found a string",
        ),
        (
            "NodeLifecycleController: {LargeClusterSizeThreshold: 3000000000}",
            "/etc/c.yaml:3: NodeLifecycleController.LargeClusterSizeThreshold: 3000000000: expected 32 bits",
        ),
        (
            "NodeLifecycleController: {NodeMonitorGracePeriod: -5s}",
            "/etc/c.yaml:3: NodeLifecycleController.NodeMonitorGracePeriod: -5s: expected a duration that is not negative",
        ),
        (
            "Generic: {Address: 1.1.1.1, ADDRESS: 1.1.1.2}",
            "/etc/c.yaml:3: Generic.Address: the same field stands here twice",
        ),
        ("Generic: {Address: x}", "/etc/c.yaml:3: Generic.Address: x: \"x\" is not an IP address"),
    ] {
        let found = loaded(&[], Some(&format!("{head}{text}\n")));
        let errors = errors(&found);
        assert!(errors.iter().any(|it| it.starts_with(expected)), "{text}: {errors:#?}");
        assert!(found.config.is_none());
    }
    let untyped = errors(&loaded(&[], Some("Generic: {}")));
    assert_eq!(untyped.len(), 2, "{untyped:#?}");
}

#[test]
fn the_help_names_every_flag_that_does_something_and_keeps_to_the_width() {
    let text = usage(80);
    for row in table::own() {
        assert!(text.contains(&format!("--{}", row.name)), "{}", row.name);
        assert!(!row.help.is_empty(), "{}", row.name);
    }
    let longest = text.lines().filter(|line| line.contains(' ')).map(|it| it.chars().count()).max();
    assert!(longest <= Some(80), "{longest:?}");
}

proptest! {
    #[test]
    fn no_command_line_and_no_file_make_it_panic(
        args in prop::collection::vec("(--?[a-z-]{1,20}(=.{0,10})?|.{0,10})", 0..8),
        file in ".{0,200}",
    ) {
        let file = SourceFile { path: "/f".into(), bytes: file.into_bytes() };
        let _ = load(parse(&args), Some(&file));
    }
}
