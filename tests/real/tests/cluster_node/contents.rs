//! What pods take from the API: variables and volumes of ConfigMaps, Secrets, tokens and the pod's
//! own fields, as a container sees them; beside the reference kubelet as far as it is as quick.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{Containerd, ContainerdOptions, ControlPlane};
use node_testkit::{images, programs};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use serde_json::{Value, json};

pub(super) const NEEDS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kubelet",
];
pub(super) const NODE: &str = "node";
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The reference takes more than a minute for an update.
const UPDATE_LIMIT: Duration = Duration::from_secs(10);

/// Shows variables and files again and again, of tokens only that they are there.
const SCRIPT: &str = "trap 'exit 0' TERM; cd /v; while :; do { env | grep ^T_ | sort; \
    for f in $(find -L . -type f | grep -v '/\\.\\.' | sort); do \
    case $f in */token|*/ca.crt) echo $f $(stat -L -c '%a %u %g' $f);; \
    *) echo $f $(stat -L -c '%a %u %g' $f) $(od -A n -c $f | tr -d ' \\n');; esac; done; } > /out/new; \
    mv /out/new /out/seen; sleep 0.2; done";

const OBJECTS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n\
    data: {plain: 'one', other.txt: 'two'}\nbinaryData: {binary: /w==}\n\
    ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed}\nimmutable: true\n\
    data: {never: changes}\n\
    ---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {user: me, pass: first}\n";

fn taker() -> String {
    format!(
        r#"apiVersion: v1
kind: Pod
metadata: {{name: taker, labels: {{stage: early}}, annotations: {{note: "a b"}}}}
spec:
  nodeName: {NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  securityContext: {{fsGroup: 4321}}
  containers:
  - name: main
    image: {image}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {SCRIPT:?}]
    resources: {{limits: {{memory: 32Mi}}, requests: {{cpu: 10m}}}}
    envFrom: [{{prefix: T_ALL_, configMapRef: {{name: settings}}}}]
    env:
    - {{name: T_USER, valueFrom: {{secretKeyRef: {{name: login, key: user}}}}}}
    - {{name: T_GONE, valueFrom: {{secretKeyRef: {{name: later, key: user, optional: true}}}}}}
    - {{name: T_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
    - {{name: T_PART, value: other}}
    - {{name: T_BOTH, value: $(T_USER)-at-$(T_ALL_plain)}}
    volumeMounts:
    - {{name: out, mountPath: /out}}
    - {{name: config, mountPath: /v/config}}
    - {{name: config, mountPath: /v/part, subPathExpr: $(T_PART).txt}}
    - {{name: some, mountPath: /v/some}}
    - {{name: secret, mountPath: /v/secret}}
    - {{name: fields, mountPath: /v/fields}}
    - {{name: all, mountPath: /v/all}}
  volumes:
  - {{name: out, emptyDir: {{}}}}
  - {{name: config, configMap: {{name: settings}}}}
  - {{name: some, configMap: {{name: fixed, items: [{{key: never, path: deep/er, mode: 0640}}]}}}}
  - {{name: secret, secret: {{secretName: login, defaultMode: 0400}}}}
  - name: fields
    downwardAPI:
      items:
      - {{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}
      - {{path: notes/one, fieldRef: {{fieldPath: "metadata.annotations['note']"}}}}
      - {{path: memory, resourceFieldRef: {{containerName: main, resource: limits.memory, divisor: 1Mi}}}}
  - name: all
    projected:
      sources:
      - {{configMap: {{name: fixed}}}}
      - {{secret: {{name: later, optional: true}}}}
      - {{serviceAccountToken: {{path: token, audience: vault, expirationSeconds: 600}}}}
      - {{downwardAPI: {{items: [{{path: space, fieldRef: {{fieldPath: metadata.namespace}}}}]}}}}
"#,
        image = images::BUSYBOX,
    )
}

/// Pods that lack an object.
fn lacking() -> String {
    let pod = |name: &str, container: &str, volumes: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {NODE}\n  \
             hostNetwork: true\n  automountServiceAccountToken: false\n  \
             terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: main, image: '{}', \
             imagePullPolicy: IfNotPresent, command: [sleep, '1000']{container}}}\n  \
             volumes: [{volumes}]\n",
            images::BUSYBOX
        )
    };
    let map = ", envFrom: [{configMapRef: {name: gone}}]";
    let key = ", env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: gone}}}]";
    let mount = ", volumeMounts: [{name: v, mountPath: /v}]";
    [
        pod("no-map", map, ""),
        pod("no-key", key, ""),
        pod("no-volume", mount, "{name: v, secret: {secretName: gone}}"),
        pod("no-item", mount, "{name: v, configMap: {name: settings, items: [{key: q, path: q}]}}"),
        // What no container mounts is not missed.
        pod("unused", "", "{name: v, secret: {secretName: gone}}"),
    ]
    .concat()
}

const LACKING: [&str; 5] = ["no-map", "no-key", "no-volume", "no-item", "unused"];

#[test]
fn pods_see_what_the_api_has_and_its_changes() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives: Vec<PathBuf> =
        [images::pause()?, images::pause()?.named(images::CONTAINERD_PAUSE), images::busybox()?]
            .iter()
            .map(images::TestImage::oci_archive)
            .collect::<Result<_>>()?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(4)).run(move |bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        for archive in &archives {
            containerd.import(archive)?;
        }
        let plane = ControlPlane::start(bed)?;
        let kubeconfig = plane.node_kubeconfig(NODE)?;
        let files = bed.create_dir("manifests")?;
        apply(&plane, &files, "objects", OBJECTS)?;
        let mut seen = Vec::new();
        for mut kind in [AgentKind::reference()?, AgentKind::keelson(&keelson)] {
            kind.command.push(format!("--kubeconfig={}", kubeconfig.display()));
            let is_ours = kind.name == AgentKind::KEELSON;
            let home = AgentHome::new(bed, kind.name, &containerd.endpoint())?;
            let agent = AgentProcess::start(bed, &kind, &home)?;
            let run = || -> Result<[String; 2]> {
                apply(&plane, &files, "pods", &format!("{}{}", taker(), lacking()))?;
                let pod = RunningPod::wait(&plane, &home)?;
                let seen = [pod.seen()?, reports(&plane)?];
                if is_ours {
                    pod.follow_changes(&plane, &files)?;
                    pod.check_token(&plane, &files)?;
                }
                Ok(seen)
            };
            seen.push(run().with_context(|| log_of(bed, &kind))?);
            delete(&plane, &home).with_context(|| log_of(bed, &kind))?;
            agent.end()?;
            plane.kubectl(&["delete", "node", NODE])?;
            plane.kubectl(&["delete", "events", "--all"])?;
        }
        let (ours, reference) = (seen.pop().context("ours")?, seen.pop().context("reference")?);
        for (what, reference, ours) in
            [("files", &reference[0], &ours[0]), ("reports", &reference[1], &ours[1])]
        {
            ensure!(reference == ours, "{what} of the reference:\n{reference}\nours:\n{ours}");
        }
        ensure!(
            ours[0].contains("T_BOTH=me-at-one") && !ours[0].contains("T_ALL_binary"),
            "{ours:?}"
        );
        Ok(())
    })
}

/// The images must be built before the bed, which cannot reach their sources.
pub(super) fn archives() -> Result<Vec<PathBuf>> {
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    [images::pause()?, sandbox, images::busybox()?]
        .iter()
        .map(images::TestImage::oci_archive)
        .collect()
}

pub(super) fn log_of(bed: &Bed, kind: &AgentKind) -> String {
    let log = fs::read_to_string(AgentProcess::log(bed, kind)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

pub(super) fn apply(plane: &ControlPlane, dir: &Path, name: &str, text: &str) -> Result<String> {
    let path = dir.join(format!("{name}.yaml"));
    fs::write(&path, text)?;
    plane.kubectl(&["create", "--output=json", "--filename", &path.to_string_lossy()])
}

pub(super) fn get(plane: &ControlPlane, arguments: &[&str]) -> Result<Value> {
    let mut all = vec!["get", "--output=json"];
    all.extend(arguments);
    serde_json::from_str(&plane.kubectl(&all)?).context("kubectl get")
}

pub(super) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What is reported of pods that lack something: the container's reason, or the event.
fn reports(plane: &ControlPlane) -> Result<String> {
    let report = |name: &str| -> Result<Option<String>> {
        let pod = get(plane, &["pod", name])?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        if waiting["reason"] == "CreateContainerConfigError" {
            return Ok(Some(format!("{name}: {}", waiting["message"])));
        }
        if pod["status"]["phase"] == "Running" {
            return Ok(Some(format!("{name}: it runs")));
        }
        let selector = format!("--field-selector=involvedObject.name={name},reason=FailedMount");
        let events = get(plane, &["events", &selector])?;
        let message = &events["items"][0]["message"];
        Ok(message.as_str().map(|message| format!("{name}: {message}")))
    };
    let texts = LACKING.map(|name| wait_for(name, LIMIT, || report(name)));
    Ok(texts.into_iter().collect::<Result<Vec<_>>>()?.join("\n"))
}

fn delete(plane: &ControlPlane, home: &AgentHome) -> Result<()> {
    plane.kubectl(&["delete", "pods", "--all", "--wait=false"])?;
    wait_for("the pods are gone", LIMIT, || {
        let left = get(plane, &["pods"])?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })?;
    let pods = home.root().join("pods").display().to_string();
    wait_for("nothing is mounted", LIMIT, || {
        Ok((!fs::read_to_string("/proc/self/mounts")?.contains(&pods)).then_some(()))
    })
}

struct RunningPod {
    volumes: PathBuf,
}

impl RunningPod {
    fn wait(plane: &ControlPlane, home: &AgentHome) -> Result<Self> {
        let volumes = wait_for("the pod runs", LIMIT, || {
            let pod = get(plane, &["pod", "taker"])?;
            let uid = pod["metadata"]["uid"].as_str().context("its UID")?;
            let volumes = home.root().join("pods").join(uid).join("volumes");
            let is_there = volumes.join("kubernetes.io~empty-dir/out/seen").exists();
            Ok((pod["status"]["phase"] == "Running" && is_there).then_some(volumes))
        })?;
        Ok(Self { volumes })
    }

    /// As the container has last written it.
    fn seen(&self) -> Result<String> {
        let path = self.volumes.join("kubernetes.io~empty-dir/out/seen");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    fn wait_seen(&self, line: &str, is_there: bool) -> Result<()> {
        let found = wait_for(line, UPDATE_LIMIT, || {
            let seen = self.seen()?;
            let found = seen.lines().any(|each| each.trim_end() == line);
            Ok((found == is_there).then_some(()))
        });
        found.with_context(|| self.seen().unwrap_or_default())
    }

    fn follow_changes(&self, plane: &ControlPlane, dir: &Path) -> Result<()> {
        let patch = |object: &str, patch: &str| plane.kubectl(&["patch", object, "--patch", patch]);
        patch("configmap/settings", "data: {plain: changed, new: one}")?;
        self.wait_seen("./config/plain 644 0 4321 changed", true)?;
        self.wait_seen("./config/new 644 0 4321 one", true)?;
        patch("secret/login", "stringData: {pass: second}")?;
        self.wait_seen("./secret/pass 440 0 4321 second", true)?;
        plane.kubectl(&["label", "pod", "taker", "--overwrite", "stage=late"])?;
        self.wait_seen("./fields/labels 644 0 4321 stage=\"late\"", true)?;
        let later =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: later}\nstringData: {user: you}\n";
        apply(plane, dir, "later", later)?;
        self.wait_seen("./all/user 644 0 4321 you", true)?;
        plane.kubectl(&["delete", "secret", "later"])?;
        self.wait_seen("./all/user 644 0 4321 you", false)?;
        // A file that is mounted by itself stays what it was.
        self.wait_seen("T_ALL_plain=one", true)
    }

    fn check_token(&self, plane: &ControlPlane, dir: &Path) -> Result<()> {
        let token = fs::read_to_string(self.volumes.join("kubernetes.io~projected/all/token"))?;
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {"token": token, "audiences": ["vault"]},
        });
        let review: Value =
            serde_json::from_str(&apply(plane, dir, "review", &review.to_string())?)?;
        let status = &review["status"];
        let pod = &status["user"]["extra"]["authentication.kubernetes.io/pod-name"];
        ensure!(
            status["authenticated"] == true
                && *pod == json!(["taker"])
                && status["user"]["username"] == "system:serviceaccount:default:default",
            "{status:#}"
        );
        Ok(())
    }
}
