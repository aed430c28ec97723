//! What a user of the cluster gets: a kubeconfig with the administrator's rights, and a kubectl.
//!
//! Rule: keys are readable by their owner only, and lie in the cluster's own directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use node_testkit::parts;
use node_testkit::start::ControlPlane;
use serde_json::json;

/// The name of kubectl in the directory.
pub(super) const KUBECTL: &str = "kubectl";

/// Writes the files; returns the kubeconfig's path.
pub(super) fn write(plane: &ControlPlane, dir: &Path, port: u16) -> Result<PathBuf> {
    let copy = |from: &Path, name: &str| -> Result<PathBuf> {
        let to = dir.join(name);
        // Copies keep the mode, which is 0600 for keys.
        fs::copy(from, &to).with_context(|| format!("copy {}", from.display()))?;
        Ok(to)
    };
    let files = plane.admin_files();
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "keelson", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": copy(&plane.authority().files.certificate, "ca.crt")?,
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate": copy(&files.certificate, "admin.crt")?,
            "client-key": copy(&files.key, "admin.key")?,
        }}],
        "contexts": [{"name": "keelson", "context": {"cluster": "keelson", "user": "admin"}}],
        "current-context": "keelson",
    });
    symlink(parts::program("kubectl", "kubectl")?, dir.join(KUBECTL)).context("link kubectl")?;
    let kubeconfig = dir.join("kubeconfig");
    // The whole file at once: a program that waits for it reads it as soon as it is there.
    let unfinished = dir.join(".kubeconfig");
    fs::write(&unfinished, serde_json::to_vec_pretty(&content)?)
        .and_then(|()| fs::rename(&unfinished, &kubeconfig))
        .with_context(|| format!("write {}", kubeconfig.display()))?;
    Ok(kubeconfig)
}

/// The port of `https://address:port`.
pub(super) fn port_of(url: &str) -> Result<u16> {
    let port = url.rsplit(':').next().context("a port")?;
    port.parse().with_context(|| format!("{url}: a port"))
}
