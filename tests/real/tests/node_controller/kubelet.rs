//! A real node: our agent is stopped and resumed, and its static pod keeps running.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::{Containerd, ContainerdOptions, KubeletOptions, ReferenceKubelet};
use node_testkit::{images, programs};

use real_tests::standalone::runtime::RuntimeObserver;

use crate::stage::{ClusterTest, seconds};

const NEEDS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kubelet",
];

const STEADY: &str = "apiVersion: v1\n\
    kind: Pod\n\
    metadata: {name: steady}\n\
    spec:\n  \
      hostNetwork: true\n  \
      containers: [{name: main, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]\n";

#[test]
fn a_silent_agent_becomes_unreachable_and_recovers_while_its_static_pod_runs() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    let archives = [sandbox.oci_archive()?, images::pause()?.oci_archive()?];
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        for archive in &archives {
            containerd.import(archive)?;
        }
        let manifests = bed.create_dir("manifests")?;
        fs::write(manifests.join("steady.yaml"), STEADY)?;
        let stage = ClusterTest::new(bed, &keelson)?;
        // Other nodes are well, so that not every zone is fully disrupted.
        stage.join(&["h0", "h1", "h2"], "a")?;
        let plane = &stage.cluster.plane;
        // How full this machine's disk is must not matter here.
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             failCgroupV1: false\n\
             evictionHard: {{memory.available: 1Mi, nodefs.available: 0%, imagefs.available: 0%}}\n\
             nodeLeaseDurationSeconds: 8\n\
             staticPodPath: {}\n\
             containerRuntimeEndpoint: {}\n\
             authentication: {{x509: {{clientCAFile: {}}}}}\n",
            manifests.display(),
            containerd.endpoint(),
            plane.authority().files.certificate.display()
        );
        let options = KubeletOptions {
            configuration,
            kubeconfig: Some(plane.node_kubeconfig("real")?),
            program: Some((keelson.clone(), vec!["kubelet".to_owned()])),
            flags: vec!["--hostname-override=real".to_owned()],
            ..KubeletOptions::default()
        };
        let range = ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"];
        let mut controller = stage.controller("controller", &range)?;
        let mut kubelet = ReferenceKubelet::start(bed, &options)?;
        stage.until("registered, with a range", seconds(60), || {
            Ok(!stage.node("real")?.spec.pod_cidr.is_empty())
        })?;
        stage.until("ready", seconds(60), || Ok(stage.ready("real")? == "True"))?;
        let runtime = RuntimeObserver::connect(&containerd.endpoint())?;
        stage.until("its static pod runs", seconds(30), || {
            Ok(runtime.containers("steady-real")?.iter().any(|one| one.started_at > 0))
        })?;
        let before = runtime.containers("steady-real")?;
        // Its lease alone keeps it alive: its status comes far more rarely.
        stage.stays("ready", seconds(15), || Ok(stage.ready("real")? == "True"))?;
        stage.until("free of taints", seconds(5), || Ok(stage.taints("real")?.is_empty()))?;
        kubelet.process().kill()?;
        let died = Instant::now();
        stage.until("Unknown", seconds(30), || Ok(stage.ready("real")? == "Unknown"))?;
        let took = died.elapsed();
        ensure!(took < seconds(25), "noticed after {took:?}");
        stage.until("given up", seconds(5), || {
            Ok(stage.taints("real")? == ["unreachable:NoExecute", "unreachable:NoSchedule"])
        })?;
        drop(kubelet);
        let _kubelet = ReferenceKubelet::start(bed, &options)?;
        stage.until("ready again", seconds(60), || {
            Ok(stage.ready("real")? == "True" && stage.taints("real")?.is_empty())
        })?;
        ensure!(controller.is_alive()?, "it lives");
        let after = runtime.containers("steady-real")?;
        ensure!(before == after, "the static pod was touched: {before:?} {after:?}");
        Ok(())
    })
}
