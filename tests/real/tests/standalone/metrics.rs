//! Metrics compared with the reference's: every metric of ours has the reference's kind, labels and
//! bounds, and ours has those that operators monitor a node by.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{Containerd, get};
use real_tests::metric_families::{ScrapedFamily, differences, families};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use real_tests::standalone::runtime::RuntimeObserver;

use crate::node::{archives, containerd, keelson, manifest, wait_for};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const READ_ONLY: ([u8; 4], u16) = ([127, 0, 0, 1], 10255);

/// Probes of every kind, and one that fails.
const PROBED: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]
    startupProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    readinessProbe: {exec: {command: ["false"]}, periodSeconds: 1}
"#;

/// The metrics that the node must have, at least.
const EXPECTED_METRICS: &[&str] = &[
    "kubelet_cgroup_manager_duration_seconds",
    "kubelet_evented_pleg_connection_latency_seconds",
    "kubelet_pleg_relist_duration_seconds",
    "kubelet_pod_start_duration_seconds",
    "kubelet_pod_worker_duration_seconds",
    "kubelet_pod_worker_start_duration_seconds",
    "kubelet_run_podsandbox_duration_seconds",
    "kubelet_running_pods",
    "kubelet_runtime_operations_duration_seconds",
    "kubelet_runtime_operations_total",
    "kubelet_started_containers_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "prober_probe_duration_seconds",
    "prober_probe_total",
];

/// Exposed only after the first error of its kind, which one of the two may have had.
const AFTER_ERRORS_ONLY: &[&str] = &[
    "kubelet_evented_pleg_connection_error_count",
    "kubelet_run_podsandbox_errors_total",
    "kubelet_runtime_operations_errors_total",
    "kubelet_started_containers_errors_total",
    "kubelet_started_pods_errors_total",
];

#[test]
fn metrics_are_named_and_measured_as_the_reference_does() -> Result<()> {
    let (keelson, archives, reference) = (keelson()?, archives()?, AgentKind::reference()?);
    let needs = [Containerd::NEEDS, &["kubelet"]].concat();
    BedTest::new().needs(&needs).deadline(Duration::from_secs(240)).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home =
            AgentHome::new(bed, "reference", &containerd.endpoint())?.with("readOnlyPort: 10255\n");
        let theirs = scrape_metrics(bed, &runtime, (&reference, &home), |_, path| {
            Ok(get(READ_ONLY.into(), path)?.body)
        })?;
        let home = AgentHome::new(bed, "own", &containerd.endpoint())?;
        let ours = scrape_metrics(bed, &runtime, (&keelson, &home), AgentProcess::scrape)?;
        ensure!(theirs.len() > 50, "the reference tells more: {:?}", theirs.keys());
        for name in EXPECTED_METRICS {
            ensure!(ours.contains_key(*name), "{name} is not told: {:?}", ours.keys());
        }
        let wrong = differences(&ours, &theirs, AFTER_ERRORS_ONLY);
        let missing = theirs.keys().filter(|name| !ours.contains_key(*name));
        let missing = missing.filter(|name| name.starts_with("kubelet_"));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        println!("{} families the same; of the reference alone: {missing:?}", ours.len());
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Runs the pod under an agent and reads its metrics.
fn scrape_metrics(
    bed: &Bed,
    runtime: &RuntimeObserver,
    (kind, home): (&AgentKind, &AgentHome),
    ask: impl Fn(&AgentProcess, &str) -> Result<String>,
) -> Result<BTreeMap<String, ScrapedFamily>> {
    let agent = AgentProcess::start(bed, kind, home)?;
    agent.place("probed", &manifest("probed", PROBED))?;
    runtime.wait_started("probed", 1, 0)?;
    let mut probes = String::new();
    wait_for("every probe was tried", WAIT_LIMIT, || {
        // The reference's server may start after it is healthy.
        probes = ask(&agent, "/metrics/probes").unwrap_or_default();
        let tried = |kind: &str, result: &str| {
            probes.lines().any(|line| {
                line.starts_with("prober_probe_total")
                    && line.contains(kind)
                    && line.contains(result)
            })
        };
        Ok(tried("Startup", "successful")
            && tried("Liveness", "succ")
            && tried("Readiness", "failed"))
    })
    .with_context(|| format!("{}:\n{probes}", kind.name))?;
    let mut text = String::new();
    wait_for("all was counted", WAIT_LIMIT, || {
        text = ask(&agent, "/metrics")?;
        // The reference counts pods when it keeps house, every two seconds.
        Ok(text.contains("\nkubelet_working_pods{"))
    })?;
    let mut families = families(&text)?;
    families.extend(real_tests::metric_families::families(&probes)?);
    // The agent first: two clients that stop one sandbox at once interfere.
    agent.end()?;
    runtime.remove_all()?;
    Ok(families)
}
