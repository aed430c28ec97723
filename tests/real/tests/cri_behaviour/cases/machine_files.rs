//! A container cannot change the host's files and devices that it is given. The host's `/dev/null`
//! is here the test bed's own.

use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use cri_wire::v1;

use super::cases;
use super::user_namespaces::{container as in_user_namespace, pod as with_user_namespace};
use crate::support::{Cri, StartedContainer, security, texts};

cases![
    device_of_the_machine_is_not_changed_by_a_mask_or_a_stream,
    device_of_the_machine_is_not_changed_by_a_command,
    device_of_the_machine_is_not_changed_in_a_user_namespace,
    mount_over_proc_is_refused,
    mount_of_the_hosts_proc_over_proc_works,
    oom_score_without_resources_is_zero,
    program_of_the_runtime_as_a_command_breaks_no_other_container,
];

const NULL: &str = "/dev/null";

/// The metadata of the host's `/dev/null` before a case; mode and owner are restored on drop.
struct HostNullDevice(Metadata);

impl HostNullDevice {
    fn read() -> Result<Self> {
        Ok(Self(std::fs::metadata(NULL)?))
    }

    fn require_unchanged(&self) -> Result<()> {
        let describe = |device: &Metadata| {
            format!(
                "{:o} {}:{} of {}.{}",
                device.mode(),
                device.uid(),
                device.gid(),
                device.mtime(),
                device.mtime_nsec()
            )
        };
        let (now, before) = (describe(&std::fs::metadata(NULL)?), describe(&self.0));
        ensure!(now == before, "{NULL} of the machine was {before} and is {now}");
        Ok(())
    }
}

impl Drop for HostNullDevice {
    fn drop(&mut self) {
        let _ = std::os::unix::fs::chown(NULL, Some(self.0.uid()), Some(self.0.gid()));
        let _ = std::fs::set_permissions(NULL, Permissions::from_mode(self.0.mode() & 0o7777));
    }
}

/// Tries every change through every path that leads to the device: masked files, the standard input
/// and the device itself.
const CHANGE_SCRIPT: &str = "for f in /proc/keys /proc/timer_list /proc/self/fd/0 /dev/null; do \
    touch -d '2001-01-01 00:00' $f; touch $f; chown 1000:1000 $f; chmod 640 $f; done 2>/dev/null; echo tried";

fn masked(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    security(&mut config).masked_paths = texts(&["/proc/keys", "/proc/timer_list"]);
    config
}

async fn device_of_the_machine_is_not_changed_by_a_mask_or_a_stream(cri: &Cri) -> Result<()> {
    let device = HostNullDevice::read()?;
    let (code, printed) = cri.ran(cri.pod(), masked(cri.container(CHANGE_SCRIPT))).await?;
    ensure!(code == 0 && printed == "tried\n", "{code}: {printed}");
    device.require_unchanged()
}

async fn device_of_the_machine_is_not_changed_by_a_command(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    let device = HostNullDevice::read()?;
    let answer = cri.exec(&running.id, &["sh", "-c", CHANGE_SCRIPT], 20).await?;
    ensure!(answer.stdout == b"tried\n", "{answer:?}");
    device.require_unchanged()
}

async fn device_of_the_machine_is_not_changed_in_a_user_namespace(cri: &Cri) -> Result<()> {
    let own = v1::NamespaceMode::Container;
    let device = HostNullDevice::read()?;
    let config = masked(in_user_namespace(cri, CHANGE_SCRIPT, own));
    let (code, printed) = cri.ran(with_user_namespace(cri, own), config).await?;
    ensure!(code == 0 && printed == "tried\n", "{code}: {printed}");
    device.require_unchanged()
}

/// Creates and starts a container. A runtime may return an error for either call.
async fn create_and_start(cri: &Cri, config: &v1::ContainerConfig) -> Result<StartedContainer> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, config).await?;
    cri.start(&id).await?;
    Ok(StartedContainer { pod, sandbox, id, log: cri.dir.join(&config.log_path) })
}

fn with_mount(cri: &Cri, source: &Path, target: &str) -> v1::ContainerConfig {
    let mut config = masked(cri.container("cat /proc/1/comm"));
    config.mounts.push(v1::Mount {
        host_path: source.display().to_string(),
        container_path: target.to_owned(),
        ..Default::default()
    });
    config
}

async fn mount_over_proc_is_refused(cri: &Cri) -> Result<()> {
    let dir = cri.dir.join("no-proc");
    std::fs::create_dir_all(&dir)?;
    for target in ["/proc", "/proc/", "/proc/sys"] {
        match create_and_start(cri, &with_mount(cri, &dir, target)).await {
            Ok(_) => bail!("{target} was accepted"),
            Err(error) if format!("{error:#}").contains("/proc") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn mount_of_the_hosts_proc_over_proc_works(cri: &Cri) -> Result<()> {
    let running = create_and_start(cri, &with_mount(cri, Path::new("/proc"), "/proc")).await?;
    ensure!(cri.until_ended(&running.id).await?.exit_code == 0);
    ensure!(running.output()? == std::fs::read_to_string("/proc/1/comm")?);
    Ok(())
}

async fn oom_score_without_resources_is_zero(cri: &Cri) -> Result<()> {
    let config = cri.container("cat /proc/self/oom_score_adj");
    ensure!(config.linux.as_ref().is_some_and(|linux| linux.resources.is_none()));
    let (_, printed) = cri.ran(cri.pod(), config).await?;
    ensure!(printed == "0\n", "the score is {printed:?}");
    Ok(())
}

/// CVE-2019-5736: a container's command `/proc/self/exe` is the runtime's own program. Whether the
/// runtime rejects the command or it exits, other containers can run afterwards.
async fn program_of_the_runtime_as_a_command_breaks_no_other_container(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 1000").await?;
    let mut config = cri.container("");
    config.command = texts(&["/proc/self/exe"]);
    if let Ok(container) = create_and_start(cri, &config).await {
        cri.until_ended(&container.id).await?;
    }
    let write_script = "printf '#!/proc/self/exe\\n' > /tmp/script; chmod 755 /tmp/script";
    ensure!(cri.exec(&running.id, &["sh", "-c", write_script], 20).await?.exit_code == 0);
    for program in ["/proc/self/exe", "/tmp/script"] {
        let _ = cri.exec(&running.id, &[program], 20).await;
    }
    let (code, printed) = cri.script("echo runs").await?;
    ensure!(code == 0 && printed == "runs\n", "{code}: {printed}");
    Ok(())
}
