//! The agent is killed while it mounts, updates and removes the volumes of ten pods: no pod is stuck,
//! none sees half an update, nothing stays mounted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{Containerd, ContainerdOptions, ControlPlane};
use node_testkit::{images, programs};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use serde_json::Value;

use super::contents::{LIMIT, NEEDS, NODE, apply, archives, get, log_of, wait_for};

const PODS: usize = 10;
const KILLS: u32 = 5;
/// Compares the two keys of one version again and again.
const SCRIPT: &str = "trap 'exit 0' TERM; echo run >> /out/runs; while :; do for v in /c /s /p; do d=$(readlink $v/..data); \
    a=$(cat $v/$d/a 2>/dev/null); b=$(cat $v/$d/b 2>/dev/null); \
    [ -z \"$a\" ] || [ -z \"$b\" ] || [ \"$a\" = \"$b\" ] || echo $v $a $b >> /out/half; done; \
    cat /c/a > /out/new; mv /out/new /out/now; sleep 0.1; done";

fn object(kind: &str, data: &str, value: u32) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata: {{name: both}}\n\
         {data}: {{a: '{value}', b: '{value}'}}\n"
    )
}

fn objects(value: u32) -> String {
    let [map, secret] = [object("ConfigMap", "data", value), object("Secret", "stringData", value)];
    format!("{map}---\n{secret}")
}

fn pod(number: usize) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: pod-{number}}}
spec:
  nodeName: {NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: {image}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {SCRIPT:?}]
    volumeMounts:
    - {{name: out, mountPath: /out}}
    - {{name: c, mountPath: /c}}
    - {{name: s, mountPath: /s}}
    - {{name: p, mountPath: /p}}
    - {{name: d, mountPath: /d}}
    - {{name: c, mountPath: /part, subPath: a}}
  volumes:
  - {{name: out, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
  - {{name: c, configMap: {{name: both}}}}
  - {{name: s, secret: {{secretName: both}}}}
  - {{name: p, projected: {{sources: [{{configMap: {{name: both}}}}, {{serviceAccountToken: {{path: t}}}}]}}}}
  - {{name: d, downwardAPI: {{items: [{{path: l, fieldRef: {{fieldPath: metadata.uid}}}}]}}}}
"#,
        image = images::BUSYBOX
    )
}

struct KilledNode<'a> {
    bed: &'a Bed,
    plane: &'a ControlPlane,
    kind: AgentKind,
    home: AgentHome,
}

impl KilledNode<'_> {
    fn start(&self) -> Result<AgentProcess> {
        AgentProcess::start(self.bed, &self.kind, &self.home)
    }

    /// Starts and kills it, each time a little later, so that it dies at different steps.
    fn kill_again_and_again(&self, mut between: impl FnMut(u32) -> Result<()>) -> Result<()> {
        for kill in 0..KILLS {
            let agent = self.start()?;
            between(kill)?;
            std::thread::sleep(Duration::from_millis(u64::from(70 * kill * kill)));
            agent.end()?;
        }
        Ok(())
    }

    fn pods(&self) -> Result<Vec<Value>> {
        Ok(get(self.plane, &["pods"])?["items"].as_array().context("items")?.clone())
    }

    fn out(&self, pod: &Value, file: &str) -> Result<String> {
        let uid = pod["metadata"]["uid"].as_str().context("its UID")?;
        let out = "volumes/kubernetes.io~empty-dir/out";
        let path = self.home.root().join("pods").join(uid).join(out).join(file);
        Ok(fs::read_to_string(path).unwrap_or_default())
    }

    /// Waits until all pods run and have this value.
    fn wait_value(&self, value: &str) -> Result<()> {
        wait_for(value, LIMIT, || {
            let pods = self.pods()?;
            let mut having = 0;
            for pod in &pods {
                let is_running = pod["status"]["phase"] == "Running";
                let has_value = self.out(pod, "now")?.trim() == value;
                having += usize::from(is_running && has_value);
            }
            Ok((having == PODS).then_some(()))
        })
    }

    fn run(&self, files: &Path) -> Result<()> {
        let all: String = (0..PODS).map(pod).collect();
        self.kill_again_and_again(|kill| {
            if kill == 0 {
                apply(self.plane, files, "pods", &all)?;
            }
            Ok(())
        })?;
        let agent = self.start()?;
        self.wait_value("0").context("after kills while mounting")?;
        // Until here containerd may have ended a container whose start a kill cut off.
        let mut runs = BTreeMap::new();
        for pod in self.pods()? {
            let uid = pod["metadata"]["uid"].as_str().context("its UID")?;
            runs.insert(uid.to_owned(), self.out(&pod, "runs")?);
        }
        agent.end()?;
        self.kill_again_and_again(|kill| {
            let path = files.join("new.yaml");
            fs::write(&path, objects(kill + 1))?;
            self.plane.kubectl(&["replace", "--filename", &path.to_string_lossy()]).map(drop)
        })?;
        let agent = self.start()?;
        self.wait_value(&KILLS.to_string()).context("after kills while updating")?;
        for pod in self.pods()? {
            let now = self.out(&pod, "runs")?;
            let before = runs.get(pod["metadata"]["uid"].as_str().context("its UID")?);
            ensure!(before == Some(&now), "{} was restarted: {now:?}", pod["metadata"]["name"]);
            let half = self.out(&pod, "half")?;
            ensure!(half.is_empty(), "{} saw half an update: {half}", pod["metadata"]["name"]);
        }
        agent.end()?;
        self.plane.kubectl(&["delete", "pods", "--all", "--wait=false"])?;
        self.kill_again_and_again(|_| Ok(()))?;
        let agent = self.start()?;
        wait_for("the pods are gone", LIMIT, || Ok(self.pods()?.is_empty().then_some(())))?;
        let dir = self.home.root().join("pods");
        wait_for("nothing is left", LIMIT, || {
            let is_mounted =
                fs::read_to_string("/proc/self/mounts")?.contains(&*dir.to_string_lossy());
            let left = fs::read_dir(&dir)?.count();
            Ok((!is_mounted && left == 0).then_some(()))
        })?;
        agent.end()
    }
}

#[test]
fn kills_leave_no_mount_no_half_content_and_no_stuck_pod() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = archives()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(6)).run(move |bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        for archive in &archives {
            containerd.import(archive)?;
        }
        let plane = ControlPlane::start(bed)?;
        let files = bed.create_dir("manifests")?;
        apply(&plane, &files, "objects", &objects(0))?;
        let mut kind = AgentKind::keelson(&keelson);
        let kubeconfig = plane.node_kubeconfig(NODE)?;
        kind.command.push(format!("--kubeconfig={}", kubeconfig.display()));
        let home = AgentHome::new(bed, kind.name, &containerd.endpoint())?;
        let node = KilledNode { bed, plane: &plane, kind, home };
        node.run(&files).with_context(|| log_of(bed, &node.kind))
    })
}
