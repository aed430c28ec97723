//! Starting a container: set up, create, start, then its postStart hook.
//!
//! Rule: the program runs only after its start is on disk: restart count and back-off must outlive
//! the agent. The worker saves them while the container is created. The next agent removes a
//! container that was created and not started; it counts neither as a restart nor for the back-off.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go

use super::{ActionInputs, contents};
use crate::crash_points::reached;
use crate::hooks::{self, HookTarget};
use crate::metrics::names;
use crate::observed::StartGuard;
use container_setup::inputs::{
    AllocatedDevices, ContainerSetupInputs, NodeSetupInputs, ReadyVolume,
};
use container_setup::termination;
use container_setup::{
    container, env_file, environment, host_name, hosts_file, log_paths, mounts, sandbox,
};
use pod_lifecycle::{Action, StartFailure, StartStage};
use pod_model::pod::Container;
use pod_model::pod::spec::ContainerList;
use ports::pod_host::{PodDirs, PodFile, SubPath, VolumeFile};
use ports::runtime_objects::{ContainerConfig, ImageRecord, ImageSpec, SandboxConfig};
use resource_allocation::may_need_devices;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tracing::warn;

/// The fields of the action.
struct Start<'a> {
    name: &'a str,
    attempt: u32,
    sandbox_id: &'a str,
    pod_ips: &'a [String],
    image_ref: &'a str,
    target_id: Option<&'a String>,
}

fn failure(stage: StartStage, message: &impl ToString) -> StartFailure {
    StartFailure { stage, message: message.to_string(), id: None }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in for the error that it takes")]
fn config_failure(message: impl ToString) -> StartFailure {
    failure(StartStage::Config, &message)
}

pub(super) async fn start(
    action_inputs: &ActionInputs,
    action: &Action,
) -> Result<String, StartFailure> {
    let started = set_up_and_start(action_inputs, action).await;
    count(action_inputs, action, started.as_ref().err());
    started
}

/// Counts a start. The image is present by now, so a missing image is no start error here.
/// upstream: pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod)
fn count(action_inputs: &ActionInputs, action: &Action, failure: Option<&StartFailure>) {
    let Action::StartContainer { name, .. } = action else { return };
    let mut all = action_inputs.pod.spec.all_containers();
    let list = all.find(|(_, _, each)| *each.name == **name).map(|(list, _, _)| list);
    let kind = match list {
        Some(ContainerList::Init) => "init_container",
        Some(ContainerList::Ephemeral) => "ephemeral_container",
        Some(ContainerList::Regular) | None => "container",
    };
    let metrics = action_inputs.context.status_store.metrics();
    metrics.count(&names::STARTED_CONTAINERS, &[kind]);
    if let Some(failure) = failure {
        let code = match failure.stage {
            StartStage::Config => "CreateContainerConfigError",
            StartStage::Create => "CreateContainerError",
            StartStage::Start => "RunContainerError",
            StartStage::PostStart => "PostStartHookError",
        };
        metrics.count(&names::STARTED_CONTAINER_ERRORS, &[code, kind]);
    }
}

async fn set_up_and_start(
    action_inputs: &ActionInputs,
    action: &Action,
) -> Result<String, StartFailure> {
    let Action::StartContainer { name, attempt, sandbox_id, pod_ips, image_ref, target_id, .. } =
        action
    else {
        return Err(config_failure("this is no start of a container"));
    };
    let (attempt, target_id) = (*attempt, target_id.as_ref());
    let start = Start { name, attempt, sandbox_id, pod_ips, image_ref, target_id };
    let mut all = action_inputs.pod.spec.all_containers().map(|(_, _, each)| each);
    let Some(spec) = all.find(|each| *each.name == *start.name) else {
        return Err(config_failure(format!("the pod has no container {:?}", start.name)));
    };
    let (config, sandbox) = set_up(action_inputs, spec, &start).await?;
    let runtime = &action_inputs.context.ports.runtime;
    let starting = action_inputs.context.observed.starting(action_inputs.uid());
    let creation = runtime.create_container(start.sandbox_id, &config, &sandbox);
    let created = action_inputs.context.call_limiter.take(creation).await;
    let id = created.map_err(|error| failure(StartStage::Create, &error.message_for_pods()))?;
    let with_id = |failure: StartFailure| StartFailure { id: Some(id.clone()), ..failure };
    reached("container-created");
    let recorded = action_inputs.wait_until_recorded().await;
    recorded.map_err(|why| with_id(failure(StartStage::Start, &why)))?;
    let started = action_inputs.context.call_limiter.take(runtime.start_container(&id)).await;
    started.map_err(|error| with_id(failure(StartStage::Start, &error.message_for_pods())))?;
    reached("container-begun");
    let target = format!("{}/{}", sandbox.log_directory, config.log_path);
    let link = log_paths::link_name(&action_inputs.pod, &config.name, &id);
    link_log(&*action_inputs.context.ports.dirs, &link, &target).await;
    post_start(action_inputs, spec, &id, starting, start.pod_ips).await.map_err(with_id)?;
    Ok(id)
}

/// Creates all that must exist before the container, and returns the runtime's request.
async fn set_up(
    action_inputs: &ActionInputs,
    spec: &Container,
    start: &Start<'_>,
) -> Result<(ContainerConfig, SandboxConfig), StartFailure> {
    // In parallel, as a crashed container waits for it. If several fail, the first one in this
    // order is reported.
    let (node, pod_facts, image, contents) = tokio::join!(
        action_inputs.node_facts(),
        action_inputs.pod_facts(),
        image(action_inputs, start.image_ref),
        contents::read(action_inputs, spec)
    );
    let node = node.map_err(config_failure)?;
    let pod_facts = pod_facts.map_err(config_failure)?;
    let mut facts = ContainerSetupInputs {
        image_ref: start.image_ref.to_owned(),
        image: image.map_err(config_failure)?,
        restart_count: start.attempt,
        pod_ips: pod_ips(action_inputs, start),
        target_id: start.target_id.cloned(),
        volumes: volumes(action_inputs, spec).await.map_err(config_failure)?,
        contents,
        service_environment: action_inputs.service_environment().map_err(config_failure)?,
        given: devices(action_inputs, spec).await.map_err(config_failure)?,
        ..ContainerSetupInputs::default()
    };
    let (termination_file, hosts_file, env_files) = tokio::join!(
        create_log_dir(action_inputs, spec, &node),
        write_hosts(action_inputs, &node, start.pod_ips),
        read_env_files(action_inputs, spec, &node)
    );
    facts.termination_file = termination_file.map_err(config_failure)?;
    facts.hosts_file = hosts_file.map_err(config_failure)?;
    facts.env_files = env_files;
    let source = environment::EnvironmentSource {
        pod: &action_inputs.pod,
        container: spec,
        node: &node,
        facts: &facts,
    };
    let env = environment::make(&source).map_err(config_failure)?;
    let wanted = mounts::wanted_sub_paths(spec, &facts, &env).map_err(config_failure)?;
    for sub_path in wanted {
        let index = sub_path.mount_index;
        let pinned = pin_mount(action_inputs, spec, sub_path).await.map_err(config_failure)?;
        facts.sub_paths.insert(index, pinned);
    }
    let config = container::config(&action_inputs.pod, spec, &node, &pod_facts, &facts);
    let attempt = action_inputs.observed.sandboxes.iter().find(|each| each.id == start.sandbox_id);
    let attempt = attempt.map_or(0, |sandbox| sandbox.attempt);
    let sandbox = sandbox::config(&action_inputs.pod, &node, &pod_facts, attempt);
    let (sandbox, _) = sandbox.map_err(config_failure)?;
    Ok((config.map_err(config_failure)?, sandbox))
}

/// The devices of the container.
async fn devices(
    action_inputs: &ActionInputs,
    spec: &Container,
) -> Result<AllocatedDevices, String> {
    match &action_inputs.context.devices {
        Some(devices) if may_need_devices(&action_inputs.pod) => {
            devices.prepare(&action_inputs.pod, &spec.name).await
        }
        _ => Ok(AllocatedDevices::default()),
    }
}

/// The image's record, from the runtime unless it has just been read. If the image was removed
/// since, the creation fails and the image is looked up again.
async fn image(action_inputs: &ActionInputs, image_ref: &str) -> Result<ImageRecord, String> {
    if let Some(found) = action_inputs.found_image.as_ref().filter(|found| found.id == image_ref) {
        return Ok((**found).clone());
    }
    let spec = ImageSpec { image: image_ref.to_owned(), ..ImageSpec::default() };
    let found = action_inputs.context.ports.runtime.image(&spec).await;
    let found = found.map_err(|error| format!("cannot inspect image {image_ref:?}: {error}"))?;
    found.ok_or_else(|| format!("the runtime has no image {image_ref:?} any more"))
}

/// The pod's volumes. Those of the container that are images are named by what the runtime has now,
/// so that a tag that moves cannot change them between the check and the mount.
async fn volumes(
    action_inputs: &ActionInputs,
    spec: &Container,
) -> Result<BTreeMap<String, ReadyVolume>, String> {
    let mut volumes = action_inputs.volumes.clone();
    for mount in &spec.volume_mounts {
        let Some(image) = volumes.get_mut(&*mount.name).and_then(|volume| volume.image.as_mut())
        else {
            continue;
        };
        let named = image.user_specified_image.clone();
        let found = action_inputs.context.ports.runtime.image(image).await;
        let found = found.map_err(|error| format!("cannot inspect image {named:?}: {error}"))?;
        let found = found.filter(|record| !record.id.is_empty());
        image.image =
            found.ok_or_else(|| format!("the runtime has no image {named:?} any more"))?.id;
    }
    Ok(volumes)
}

/// Creates the log directory and the termination message file; returns the file's path on the host.
async fn create_log_dir(
    action_inputs: &ActionInputs,
    spec: &Container,
    node: &NodeSetupInputs,
) -> Result<Option<String>, String> {
    let logs =
        log_paths::container_directory(&node.pod_logs_directory, &action_inputs.pod, &spec.name);
    // A new name for every start: the file of an earlier instance may still be read.
    let file = match termination::container_path(spec) {
        Some(_) => format!("{:08x}", action_inputs.context.clock.now().nanos() & 0xffff_ffff),
        None => String::new(),
    };
    let made = action_inputs.context.ports.dirs.make_container(
        action_inputs.uid(),
        &spec.name,
        &file,
        &logs,
    );
    let path = made
        .await
        .map_err(|error| format!("cannot create the container's directories: {error}"))?;
    Ok((!file.is_empty()).then(|| path.display().to_string()))
}

/// What the container sees as its pod's addresses: the node's in the node's network. A standalone
/// node of the reference shows none there.
fn pod_ips(action_inputs: &ActionInputs, start: &Start<'_>) -> Vec<String> {
    let context = &action_inputs.context;
    let is_in_cluster = context.node_object.borrow().is_some();
    if action_inputs.pod.spec.host_network && start.pod_ips.is_empty() && is_in_cluster {
        return context.host_ips();
    }
    start.pod_ips.to_vec()
}

async fn write_hosts(
    action_inputs: &ActionInputs,
    node: &NodeSetupInputs,
    pod_ips: &[String],
) -> Result<Option<String>, String> {
    let pod = &action_inputs.pod;
    if !hosts_file::is_wanted(pod, pod_ips) {
        return Ok(None);
    }
    let content = if pod.spec.host_network {
        let own = action_inputs.context.ports.texts.read("/etc/hosts").await;
        let own = own.map_err(|error| error.to_string())?.unwrap_or_default();
        hosts_file::from_host(pod, own.as_bytes())
    } else {
        let name = host_name::of_pod(pod, node).map_err(|error| error.to_string())?;
        hosts_file::managed(pod, &name, pod_ips)
    };
    let path = hosts_file::FILE_NAME.to_owned();
    let file = PodFile { path, content, mode: hosts_file::FILE_MODE };
    let written = action_inputs.context.ports.dirs.write(action_inputs.uid(), &file).await;
    let path: PathBuf = written.map_err(|error| format!("cannot write the hosts file: {error}"))?;
    Ok(Some(path.display().to_string()))
}

/// Reads the files that variables come from. A file that cannot be read is passed on as missing,
/// with the reason.
async fn read_env_files(
    action_inputs: &ActionInputs,
    spec: &Container,
    node: &NodeSetupInputs,
) -> BTreeMap<(String, String), Vec<u8>> {
    let mut files = BTreeMap::new();
    if !node.gates.env_files {
        return files;
    }
    for (volume, path) in environment::wanted_files(spec) {
        let Some(ready) = action_inputs.volumes.get(&volume) else { continue };
        let file = VolumeFile {
            volume_path: PathBuf::from(&ready.path),
            path: path.clone(),
            most: env_file::LARGEST_FILE,
        };
        match action_inputs.context.ports.volumes.read_file(&file).await {
            Ok(content) => {
                files.insert((volume, path), content);
            }
            Err(error) => warn!(
                pod_uid = action_inputs.uid(),
                container = %spec.name,
                volume,
                path,
                err = %error,
                "Cannot read a file of variables"
            ),
        }
    }
    files
}

async fn pin_mount(
    action_inputs: &ActionInputs,
    spec: &Container,
    wanted: mounts::WantedSubPath,
) -> Result<String, String> {
    let request = SubPath {
        volume: wanted.volume,
        volume_path: PathBuf::from(wanted.volume_path),
        sub_path: wanted.sub_path,
        container: spec.name.to_string(),
        mount_index: wanted.mount_index,
    };
    let pinned =
        action_inputs.context.ports.volumes.pin_sub_path(action_inputs.uid(), &request).await;
    let path = pinned.map_err(|error| {
        format!(
            "failed to prepare subPath for volumeMount {:?} of container {:?}: {error}",
            request.volume, spec.name
        )
    })?;
    Ok(path.display().to_string())
}

/// A hanging log directory must not hide that a container runs.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the link that log shippers read. Without it the container runs all the same.
pub(crate) async fn link_log(dirs: &dyn PodDirs, name: &str, target: &str) {
    let why = match tokio::time::timeout(LINK_TIMEOUT, dirs.link_log(name, target)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took longer than {LINK_TIMEOUT:?}"),
    };
    warn!(link = name, err = why, "Cannot make the link to a container's log");
}

async fn post_start(
    action_inputs: &ActionInputs,
    spec: &Container,
    id: &str,
    starting: StartGuard,
    pod_ips: &[String],
) -> Result<(), StartFailure> {
    let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_deref());
    let Some(hook) = hook else { return Ok(()) };
    // The hook may take long, and the running container must be seen before it ends.
    drop(starting);
    action_inputs.context.observed.request_relist(action_inputs.uid());
    let ports = &action_inputs.context.ports;
    let host = action_inputs.context.host_ips().into_iter().next();
    let hook_target = HookTarget {
        runtime: &*ports.runtime,
        prober: &*ports.prober,
        container: spec,
        container_id: id,
        pod_ip: pod_ips.first().or(host.as_ref()).map(String::as_str),
    };
    let end = hooks::run(hook, &hook_target).await;
    if let Some(event) = end.event {
        action_inputs.context.status_store.metrics().count(&names::HTTP_FALLBACKS, &[]);
        action_inputs.send_event(event).await;
    }
    end.result.map_err(|why| {
        warn!(pod_uid = action_inputs.uid(), container = %spec.name, err = why, "PostStart hook failed");
        failure(StartStage::PostStart, &"PostStartHook failed")
    })
}
