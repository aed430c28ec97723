//! Pods are handed over between the reference kubelet and the agent without being affected.
//!
//! Rule: one root directory, one runtime, one agent at a time. Containers of every kind are the
//! same afterwards, restart counts and back-off of a crash loop go on, and pods stay ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::{Containerd, ReferenceKubelet, get};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use real_tests::standalone::runtime::{ListedContainer, RuntimeObserver};
use serde_json::Value;

use crate::node::{
    STEADY, WAIT_LIMIT, archives, by_pod, container, containerd, is_ready, keelson, manifest, pod,
    restarts, wait_for,
};

const UNNAMED: &str = "unnamed";
const RICH: &str = "rich";
const AGAIN: &str = "again";
const LOOPS: &str = "loops";

/// Makes every back-off but the first the maximum.
const BACK_OFF: &str = "crashLoopBackOff: {maxContainerRestartPeriod: 6s}\n";
const LONGEST_WAIT: i64 = 6_000_000_000;
/// The reference's read-only port, which lists its pods without authentication.
const OPEN_PORT: &str = "readOnlyPort: 10255\n";

#[test]
fn pods_of_the_reference_kubelet_are_adopted_and_given_back() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    let needs: Vec<&'static str> =
        Containerd::NEEDS.iter().chain(ReferenceKubelet::NEEDS).copied().collect();
    BedTest::new().needs(&needs).deadline(Duration::from_secs(240)).run(move |bed| {
        fs::write(bed.create_dir("shared")?.join("word"), "from outside\n")?;
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "adoption", &containerd.endpoint())?.with(BACK_OFF);
        let open = home.clone().with(OPEN_PORT);
        let reference = AgentProcess::start(bed, &AgentKind::reference()?, &open)?;
        place(&reference)?;
        let (before, looped) = until_settled(&runtime)?;
        reference.end()?;

        let ours = AgentProcess::start(bed, &keelson, &home)?;
        let mut ready = Readiness::default();
        until_adopted(&ours, &mut ready)?;
        same(&runtime, &before).context("after the agent took over")?;
        volumes_are_the_same(&ours)?;
        loop_goes_on(&ours, &runtime, &looped, &mut ready)?;
        same(&runtime, &before).context("a while after the agent took over")?;
        // It is ours now: it is ended when its manifest goes, and nothing else is.
        ours.withdraw(UNNAMED)?;
        runtime.wait_gone(UNNAMED)?;
        let named = without(&before, UNNAMED);
        same(&runtime, &named).context("after one was withdrawn")?;
        let last = latest(&runtime, LOOPS)?.attempt;
        ours.end()?;

        let reference = AgentProcess::start(bed, &AgentKind::reference()?, &open)?;
        // It has observed everything when it has restarted the crash-looping container and reports
        // all others ready.
        wait_for("the crash loop goes on under the reference", WAIT_LIMIT, || {
            Ok(latest(&runtime, LOOPS)?.attempt > last)
        })?;
        assert_given_back(&before)?;
        same(&runtime, &named).context("given back")?;
        reference.end()?;
        runtime.remove_all()
    })
}

fn place(agent: &AgentProcess) -> Result<()> {
    agent.place(UNNAMED, &pod(UNNAMED, "", STEADY))?;
    for (number, name, spec) in [(1, RICH, RICH_SPEC), (2, AGAIN, AGAIN_SPEC), (3, LOOPS, LOOPING)]
    {
        let uid = format!("metadata:\n  uid: 6f5c1a52-7f0e-4b0e-9d31-3f1f5e8f9a1{number}\n");
        agent.place(name, &manifest(name, spec).replace("metadata:\n", &uid))?;
    }
    Ok(())
}

/// An init container, a sidecar, two containers with probes of three kinds, two kinds of volumes.
const RICH_SPEC: &str = r#"
  volumes:
  - {name: data, emptyDir: {}}
  - {name: fast, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: shared, hostPath: {path: /run/bed/shared, type: Directory}}
  initContainers:
  - name: first
    image: BUSYBOX
    command: [sh, -c, "echo made by init > /data/word"]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: beside
    image: BUSYBOX
    restartPolicy: Always
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.2; done"]
    startupProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30}
  containers:
  - name: web
    image: BUSYBOX
    command: [sh, -c, "mkdir /www; echo x > /www/up; exec httpd -f -p 8080 -h /www"]
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    resources: {requests: {cpu: 20m, memory: 16Mi}, limits: {memory: 64Mi}}
    readinessProbe: {httpGet: {path: /up, port: 8080}, periodSeconds: 1, timeoutSeconds: 30}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30}
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: fast, mountPath: /fast}
    - {name: shared, mountPath: /shared, readOnly: true}
  - name: other
    image: BUSYBOX
    command: [sleep, "1000"]
    securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    readinessProbe: {exec: {command: [test, -e, /data/word]}, periodSeconds: 1, timeoutSeconds: 30}
    volumeMounts: [{name: data, mountPath: /data}]
"#;

/// Restarted once.
const AGAIN_SPEC: &str = r#"
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "[ -e /data/seen ] && exec sleep 1000; touch /data/seen; exit 5"]
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30}
    volumeMounts: [{name: data, mountPath: /data}]
"#;

const LOOPING: &str = r#"
  containers:
  - {name: main, image: BUSYBOX, command: [sh, -c, "sleep 0.3; exit 1"]}
"#;

/// Pods by name, each with its running containers.
type RunningContainers = BTreeMap<String, BTreeSet<String>>;

fn lives(runtime: &RuntimeObserver) -> Result<RunningContainers> {
    let seen = runtime.containers("")?;
    let running = seen.into_iter().filter(|one| one.started_at > 0 && one.finished_at == 0);
    let pods = by_pod(running.filter(|one| !one.pod.starts_with(LOOPS)).collect());
    let ids = |seen: Vec<ListedContainer>| seen.into_iter().map(|one| one.id).collect();
    Ok(pods.into_iter().map(|(pod, seen)| (pod, ids(seen))).collect())
}

fn without(lives: &RunningContainers, pod: &str) -> RunningContainers {
    lives
        .iter()
        .filter(|(name, _)| !name.starts_with(pod))
        .map(|(a, b)| (a.clone(), b.clone()))
        .collect()
}

fn same(runtime: &RuntimeObserver, before: &RunningContainers) -> Result<()> {
    let now = lives(runtime)?;
    ensure!(now == *before, "running were {before:#?}, are {now:#?}");
    Ok(())
}

/// The last container of a pod with one container.
fn latest(runtime: &RuntimeObserver, pod: &str) -> Result<ListedContainer> {
    let seen = runtime.containers(pod)?;
    seen.into_iter().max_by_key(|one| one.attempt).with_context(|| format!("nothing of {pod}"))
}

/// The reference reports all running and ready, one has crashed once, and one crash loop waits for
/// its third restart.
fn until_settled(runtime: &RuntimeObserver) -> Result<(RunningContainers, ListedContainer)> {
    wait_for("the reference's pods are ready", WAIT_LIMIT, || {
        let reported = of_reference().unwrap_or_default();
        let ready = |name: &str| reported.get(name).is_some_and(is_ready);
        Ok([UNNAMED, RICH, AGAIN].iter().all(|name| ready(name)))
    })?;
    let mut last = None;
    wait_for("the third life of the crash loop is over", WAIT_LIMIT, || {
        let life = latest(runtime, LOOPS)?;
        let over = life.attempt >= 2 && life.finished_at > 0;
        last = Some(life);
        Ok(over)
    })?;
    let lives = lives(runtime)?;
    ensure!(lives.len() == 3 && lives[&format!("{RICH}-node")].len() == 3, "{lives:#?}");
    ensure!(latest(runtime, AGAIN)?.attempt == 1, "restarted once");
    Ok((lives, last.context("a life of the crash loop")?))
}

/// The reference's pods by the names of their manifests.
fn of_reference() -> Result<BTreeMap<String, Value>> {
    let answer = get(([127, 0, 0, 1], 10255).into(), "/pods")?;
    named(&serde_json::from_str(&answer.body)?)
}

fn named(pods: &Value) -> Result<BTreeMap<String, Value>> {
    let items = pods["items"].as_array().cloned().unwrap_or_default();
    let name =
        |pod: &Value| Some(pod["metadata"]["name"].as_str()?.strip_suffix("-node")?.to_owned());
    items.into_iter().map(|pod| Ok((name(&pod).context("a name")?, pod))).collect()
}

/// Each pod's reported readiness, changes only.
#[derive(Debug, Default)]
struct Readiness(BTreeMap<String, Vec<bool>>);

impl Readiness {
    fn look(&mut self, agent: &AgentProcess) -> Result<BTreeMap<String, Value>> {
        let pods = named(&agent.pods()?)?;
        for (name, pod) in pods.iter().filter(|(name, _)| *name != LOOPS) {
            let readiness_values = self.0.entry(name.clone()).or_default();
            if readiness_values.last() != Some(&is_ready(pod)) {
                readiness_values.push(is_ready(pod));
            }
        }
        for (name, readiness_values) in &self.0 {
            ensure!(
                !readiness_values.windows(2).any(|pair| pair == [true, false]),
                "{name} flaps: {readiness_values:?}"
            );
        }
        Ok(pods)
    }

    fn all(&self) -> bool {
        self.0.len() == 3
            && self.0.values().all(|readiness_values| readiness_values.last() == Some(&true))
    }
}

fn until_adopted(agent: &AgentProcess, ready: &mut Readiness) -> Result<()> {
    let mut pods = BTreeMap::new();
    wait_for("the pods are ready under the agent", WAIT_LIMIT, || {
        pods = ready.look(agent)?;
        Ok(ready.all())
    })
    .with_context(|| format!("{ready:?}"))?;
    eprintln!("readiness as it was told: {ready:?}");
    let again = &pods[AGAIN];
    ensure!(restarts(again, "main") == 1, "{again:#}");
    let ended = &container(again, "main")["lastState"]["terminated"];
    ensure!(ended["exitCode"] == 5, "how it ended before: {again:#}");
    let rich = &pods[RICH];
    for name in ["first", "beside", "web", "other"] {
        ensure!(restarts(rich, name) == 0, "{name}: {rich:#}");
    }
    let first = &container(rich, "first")["state"]["terminated"];
    ensure!(first["exitCode"] == 0 && first["reason"] == "Completed", "{rich:#}");
    ensure!(container(rich, "beside")["started"] == true, "{rich:#}");
    Ok(())
}

fn volumes_are_the_same(agent: &AgentProcess) -> Result<()> {
    let script = "cat /data/word /shared/word; grep -c ' /fast tmpfs ' /proc/mounts";
    let reported = agent.ask(&["exec", RICH, "-c", "web", "--", "sh", "-c", script])?;
    ensure!(reported == "made by init\nfrom outside\n1\n", "{reported:?}");
    Ok(())
}

/// The restart count goes on, and a back-off that had begun runs to its end.
fn loop_goes_on(
    agent: &AgentProcess,
    runtime: &RuntimeObserver,
    before: &ListedContainer,
    ready: &mut Readiness,
) -> Result<()> {
    let mut next = None;
    wait_for("the crash loop goes on", WAIT_LIMIT, || {
        let pods = ready.look(agent)?;
        let count = restarts(&pods[LOOPS], "main");
        ensure!(count >= before.attempt.into(), "{count} restarts, were {}", before.attempt);
        next = Some(latest(runtime, LOOPS)?).filter(|life| life.attempt > before.attempt);
        Ok(next.as_ref().is_some_and(|life| life.started_at > 0))
    })?;
    let next = next.context("the next life")?;
    ensure!(next.attempt == before.attempt + 1, "one at a time: {before:?}, then {next:?}");
    let waited = next.started_at - before.finished_at;
    ensure!(waited >= LONGEST_WAIT, "restarted after {waited} ns: {before:?}, then {next:?}");
    Ok(())
}

/// The reference reports the same containers, and that they are ready.
fn assert_given_back(before: &RunningContainers) -> Result<()> {
    let mut reported = BTreeMap::new();
    let seen = wait_for("the reference's pods are ready again", WAIT_LIMIT, || {
        reported = of_reference().unwrap_or_default();
        Ok([RICH, AGAIN].iter().all(|name| reported.get(*name).is_some_and(is_ready)))
    });
    seen.with_context(|| format!("{reported:#?}"))?;
    let id = &container(&reported[RICH], "web")["containerID"];
    let known = &before[&format!("{RICH}-node")];
    let is_known =
        id.as_str().and_then(|id| id.split("//").nth(1)).is_some_and(|id| known.contains(id));
    ensure!(is_known, "{id} is none of {known:?}");
    ensure!(restarts(&reported[AGAIN], "main") == 1, "{:#}", reported[AGAIN]);
    Ok(())
}
