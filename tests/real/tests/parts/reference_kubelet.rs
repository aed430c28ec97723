//! The reference kubelet's defaults: its `/configz` with almost nothing configured.
//!
//! The golden's name contains the kubelet's version: a new pinned version fails here until a new
//! golden is made with KEELSON_WRITE_GOLDENS=1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::parts;
use node_testkit::start::{
    Containerd, ContainerdOptions, ControlPlane, KubeletOptions, ReferenceKubelet,
};

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
fn defaults_are_those_of_the_golden() -> Result<()> {
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(4)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        let plane = ControlPlane::start(bed)?;
        // The three settings that the test needs: cgroup v1 is no error, anonymous requests are
        // allowed, and there is a runtime. All else is the kubelet's default.
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             failCgroupV1: false\n\
             containerRuntimeEndpoint: {}\n\
             authentication: {{x509: {{clientCAFile: {}}}}}\n",
            containerd.endpoint(),
            plane.authority().files.certificate.display()
        );
        let options = KubeletOptions {
            configuration,
            kubeconfig: Some(plane.node_kubeconfig("reference")?),
            credentials: Some(plane.admin_files().clone()),
            flags: vec!["--hostname-override=reference".to_owned()],
            ..KubeletOptions::default()
        };
        let kubelet = ReferenceKubelet::start(bed, &options)?;
        ensure!(kubelet.healthz()? == "ok", "healthy");
        let found = serde_json::to_string_pretty(&kubelet.configz()?)? + "\n";
        let golden = golden()?;
        if std::env::var_os("KEELSON_WRITE_GOLDENS").is_some() {
            if let Some(dir) = golden.parent() {
                fs::create_dir_all(dir)?;
            }
            fs::write(&golden, &found).with_context(|| golden.display().to_string())?;
        }
        let expected = fs::read_to_string(&golden).with_context(|| {
            format!("{}: take it with KEELSON_WRITE_GOLDENS=1", golden.display())
        })?;
        ensure!(found == expected, "differs from {}:\n{found}", golden.display());
        Ok(())
    })
}

fn golden() -> Result<PathBuf> {
    let version = parts::version("kubelet")?;
    Ok(Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/model/node-config/goldens")
        .join(format!("configz-{version}.json")))
}
