//! A real node: the reference kubelet falls silent and comes back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use node_testkit::bed::Test;
use node_testkit::programs;
use node_testkit::start::{Containerd, ContainerdOptions, KubeletOptions, ReferenceKubelet};

use crate::stage::{Stage, seconds};

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

#[test]
fn a_real_kubelet_is_missed_and_found_again() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    Test::new().needs(NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        let stage = Stage::new(bed, &keelson)?;
        // Somebody else is well, so that not every zone is dark.
        stage.join(&["h0", "h1", "h2"], "a")?;
        let plane = &stage.cluster.plane;
        // How full this machine's disk is must not matter here.
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             failCgroupV1: false\n\
             evictionHard: {{memory.available: 1Mi, nodefs.available: 0%, imagefs.available: 0%}}\n\
             nodeLeaseDurationSeconds: 8\n\
             containerRuntimeEndpoint: {}\n\
             authentication: {{x509: {{clientCAFile: {}}}}}\n",
            containerd.endpoint(),
            plane.authority().files.certificate.display()
        );
        let options = KubeletOptions {
            configuration,
            kubeconfig: Some(plane.node_kubeconfig("real")?),
            credentials: Some(plane.admin_files().clone()),
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
        Ok(())
    })
}
