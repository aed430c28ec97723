//! The standalone reference kubelet over `keelson cri`: it runs a static pod to completion,
//! restarts a container, and removes the pod when its manifest is removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::images;
use node_testkit::start::{KubeletOptions, ReferenceKubelet, get};
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};

/// The kubelet's read-only port, which lists its pods without authentication.
const READ_ONLY: u16 = 10255;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: first
    image: IMAGE
    command: [sh, -c, "echo served > /www/index.html"]
    volumeMounts: [{name: www, mountPath: /www}]
  containers:
  - name: server
    image: IMAGE
    command: [httpd, -f, -p, "80", -h, /www]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
    livenessProbe: {exec: {command: [test, -e, /www/index.html]}, periodSeconds: 1, timeoutSeconds: 30}
    resources: {limits: {memory: 64Mi, cpu: 100m}}
    volumeMounts: [{name: www, mountPath: /www}]
  - name: restarts
    image: IMAGE
    command: [sh, -c, "test -e /www/mark && exec sleep 1000; touch /www/mark; exit 3"]
    volumeMounts: [{name: www, mountPath: /www}]
  volumes: [{name: www, emptyDir: {medium: Memory}}]
"#;

/// Common to both tests: anonymous requests are allowed, cgroup v1 is no error.
pub(crate) fn configuration(endpoint: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\n\
         makeIPTablesUtilChains: false\nauthorization: {{mode: AlwaysAllow}}\n\
         evictionHard: {{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}}\n\
         syncFrequency: 1s\ncontainerRuntimeEndpoint: {endpoint}\n"
    )
}

pub(crate) fn with_busybox(bed: &Bed, programs: &RuntimePrograms) -> Result<Embedded> {
    let server = Embedded::start(bed, programs, &EmbeddedOptions::default())?;
    server.import(&images::busybox()?.oci_archive()?)?;
    Ok(server)
}

#[test]
fn reference_kubelet_runs_static_pods_over_our_runtime() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().needs(ReferenceKubelet::NEEDS).deadline(Duration::from_mins(3)).run(|bed| {
        let mut server = with_busybox(bed, &programs)?;
        let manifests = bed.create_dir("manifests")?;
        let configuration = format!(
            "{}authentication: {{webhook: {{enabled: false}}, anonymous: {{enabled: true}}}}\n\
             staticPodPath: {}\nreadOnlyPort: {READ_ONLY}\n",
            configuration(&server.endpoint()),
            manifests.display()
        );
        let options = KubeletOptions { configuration, ..KubeletOptions::default() };
        let _kubelet = ReferenceKubelet::start(bed, &options)?;
        fs::write(manifests.join("web.yaml"), POD.replace("IMAGE", images::BUSYBOX))?;
        let pod = until_pod("ready, with one restart", |pod| {
            let states = pod["status"]["containerStatuses"].as_array()?;
            let ready = states.len() == 2 && states.iter().all(|state| state["ready"] == true);
            let restarts: i64 =
                states.iter().filter_map(|state| state["restartCount"].as_i64()).sum();
            (ready && restarts == 1).then(|| pod.clone())
        })?;
        let states = pod["status"]["containerStatuses"].as_array().context("states")?;
        let again = states.iter().find(|state| state["name"] == "restarts").context("restarts")?;
        let ended = &again["lastState"]["terminated"];
        ensure!(ended["exitCode"] == 3, "how its first life ended: {again}");
        // The server may go and come: the kubelet's pod does not notice.
        let before = again["containerID"].clone();
        server.kill_and_start(bed)?;
        let output = until_served()?;
        ensure!(output == "served\n", "the pod after the server was killed: {output:?}");
        let now = until_pod("the same containers", |pod| {
            let states = pod["status"]["containerStatuses"].as_array()?.clone();
            let same = states.iter().find(|state| state["name"] == "restarts")?;
            (same["containerID"] == before && same["ready"] == true).then_some(states)
        })?;
        ensure!(now.len() == 2);
        fs::remove_file(manifests.join("web.yaml"))?;
        until_gone(&server)
    })
}

fn pods() -> Result<Vec<serde_json::Value>> {
    let answer = get(([127, 0, 0, 1], READ_ONLY).into(), "/pods")?;
    ensure!(answer.status == 200, "/pods: {answer:?}");
    let list: serde_json::Value = serde_json::from_str(&answer.body)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn until_pod<T>(what: &str, look: impl Fn(&serde_json::Value) -> Option<T>) -> Result<T> {
    let begun = Instant::now();
    let mut last = String::new();
    while begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        // The kubelet is healthy before its read-only server listens.
        match pods() {
            Ok(pods) => {
                let Some(pod) = pods.first() else { continue };
                if let Some(found) = look(pod) {
                    return Ok(found);
                }
                last = pod["status"].to_string();
            }
            Err(error) => last = format!("{error:#}"),
        }
    }
    bail!("the pod was not {what} within a minute: {last}")
}

/// The response of the pod's own server, once there is one.
fn until_served() -> Result<String> {
    let begun = Instant::now();
    loop {
        let found = pods()?;
        let name = found.first().and_then(|pod| pod["metadata"]["name"].as_str());
        let name = name.context("the pod")?;
        let address = found[0]["status"]["podIP"].as_str().unwrap_or_default().to_owned();
        match get(format!("{address}:80").parse()?, "/") {
            Ok(answer) if answer.status == 200 => return Ok(answer.body),
            Ok(answer) => bail!("{name} answered {}", answer.status),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn until_gone(server: &Embedded) -> Result<()> {
    let supervised = |dir: &Path| fs::read_dir(dir).map_or(0, Iterator::count);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let left = supervised(&server.dir().join("state/pods"));
        if pods()?.is_empty() && left == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!("the pod is still there a minute after its manifest went: {:?}", pods()?)
}
