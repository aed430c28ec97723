//! Mounts with submounts: read-only only at the top, or recursively.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use cri_wire::v1;
use rustix::mount::{MountFlags, mount};

use super::cases;
use crate::support::{Cri, code};

cases![
    mount_read_only_leaves_submounts_writable,
    mount_recursive_read_only_covers_submounts,
    mount_recursive_read_only_is_shown_in_the_status,
    mount_recursive_read_only_needs_read_only,
    mount_recursive_read_only_needs_private_propagation,
    status_reports_recursive_read_only_support,
];

/// Creates a directory that has another file system mounted below it.
fn dir_with_submount(cri: &Cri) -> Result<PathBuf> {
    let top = cri.dir.join("top");
    let submount = top.join("below");
    std::fs::create_dir_all(&submount)?;
    mount("none", &submount, "tmpfs", MountFlags::empty(), None)
        .context("mount a file system below")?;
    Ok(top)
}

fn with_mount(cri: &Cri, change: impl FnOnce(&mut v1::Mount)) -> Result<v1::ContainerConfig> {
    let script = "touch /data/x 2>/dev/null; echo $?; touch /data/below/x 2>/dev/null; echo $?";
    let mut config = cri.container(script);
    let mut mount = v1::Mount {
        host_path: dir_with_submount(cri)?.display().to_string(),
        container_path: "/data".to_owned(),
        readonly: true,
        ..Default::default()
    };
    change(&mut mount);
    config.mounts.push(mount);
    Ok(config)
}

async fn mount_read_only_leaves_submounts_writable(cri: &Cri) -> Result<()> {
    let (_, output) = cri.ran(cri.pod(), with_mount(cri, |_| {})?).await?;
    ensure!(output == "1\n0\n", "{output:?}");
    Ok(())
}

async fn mount_recursive_read_only_covers_submounts(cri: &Cri) -> Result<()> {
    let config = with_mount(cri, |mount| mount.recursive_read_only = true)?;
    let (_, output) = cri.ran(cri.pod(), config).await?;
    ensure!(output == "1\n1\n", "{output:?}");
    // The mount on the host stays writable.
    std::fs::write(cri.dir.join("top/below/host"), "")?;
    Ok(())
}

async fn mount_recursive_read_only_is_shown_in_the_status(cri: &Cri) -> Result<()> {
    let config = with_mount(cri, |mount| mount.recursive_read_only = true)?;
    let running = cri.running_as(cri.pod(), config).await?;
    let mounts = cri.status(&running.id).await?.mounts;
    let shown = mounts.iter().find(|mount| mount.container_path == "/data");
    ensure!(shown.is_some_and(|mount| mount.readonly && mount.recursive_read_only), "{mounts:?}");
    Ok(())
}

/// The mount is expected to be rejected when the container is created.
async fn create_is_rejected(cri: &Cri, change: impl FnOnce(&mut v1::Mount)) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let config = with_mount(cri, change)?;
    code(cri.create(&sandbox, &pod, &config).await).map(drop)
}

async fn mount_recursive_read_only_needs_read_only(cri: &Cri) -> Result<()> {
    create_is_rejected(cri, |mount| (mount.readonly, mount.recursive_read_only) = (false, true))
        .await
}

async fn mount_recursive_read_only_needs_private_propagation(cri: &Cri) -> Result<()> {
    create_is_rejected(cri, |mount| {
        mount.recursive_read_only = true;
        mount.set_propagation(v1::MountPropagation::PropagationHostToContainer);
    })
    .await
}

async fn status_reports_recursive_read_only_support(cri: &Cri) -> Result<()> {
    let status = cri.rt().status(v1::StatusRequest { verbose: false }).await?.into_inner();
    let default_handler = status.runtime_handlers.iter().find(|handler| handler.name.is_empty());
    let features = default_handler.and_then(|handler| handler.features);
    ensure!(features.is_some_and(|features| features.recursive_read_only_mounts), "{features:?}");
    Ok(())
}
