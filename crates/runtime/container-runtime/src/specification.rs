//! From CRI's configuration to the supervisor's specification: every choice about a container is
//! made here.
//!
//! Rule: the result is complete; nothing is decided later. What this host cannot do is an error
//! before anything is created. Reads the host (links, devices, mounts) and the image's user tables;
//! changes nothing except missing directories of host paths, and the SELinux labels of volumes
//! whose mounts request it.

mod apparmor;
pub(crate) mod capabilities;
mod devices;
mod image_files;
mod mounts;
mod named_devices;
mod pod;
mod process;
mod relabel;
pub(crate) mod resources;
mod seccomp;
mod selinux;
mod users;

use std::path::{Path, PathBuf};

use container_create::spec::{
    CgroupSpec, ContainerNamespaces, ContainerSpec, HandlerSpec, MountSpec, NamespaceMode,
    OverlaySpec, Propagation, RootFilesystem, SecuritySpec, StreamsSpec,
};
use cri_wire::v1;
use image_store::{ContainerConfig as ImageRunConfig, OverlayOptions};
use mount_table::MountTable;

use crate::failure::{CallContext as _, CriError, Result};
use crate::settings::CgroupDriver;

pub(crate) use mounts::clean;

pub(crate) use apparmor::AppArmor;
pub(crate) use image_files::ImageFiles;
pub(crate) use pod::{PodPaths, cgroup_of, group_of_pod, pod_spec};
pub(crate) use resources::KernelFeatures;
pub(crate) use selinux::{LabelRequest, Selinux, SelinuxLabels};
pub use users::{ResolvedUser, UserTables, resolve as resolve_identity};

/// The capabilities of this host and this server; read once.
#[derive(Debug, Clone)]
pub(crate) struct HostCapabilities {
    pub hostname: String,
    /// The server's own bounding set, the upper limit for containers.
    pub capabilities: u64,
    /// The lowest score that can be set without CAP_SYS_RESOURCE.
    pub lowest_oom_score: i32,
    pub apparmor: AppArmor,
    pub selinux: Selinux,
    /// The host has cgroup version 2.
    pub unified_cgroups: bool,
    /// What creates cgroups: this runtime, or systemd.
    pub cgroup_driver: CgroupDriver,
    pub kernel_features: KernelFeatures,
}

/// The inputs of a container's specification.
#[derive(Debug)]
pub(crate) struct ContainerInputs<'a> {
    pub id: &'a str,
    pub config: &'a v1::ContainerConfig,
    pub sandbox: &'a v1::PodSandboxConfig,
    /// The namespaces that the pod was created with.
    pub pod_namespaces: v1::NamespaceOption,
    pub image: &'a ImageRunConfig,
    pub overlay: &'a OverlayOptions,
    pub pod_paths: &'a PodPaths,
    /// Mounts that the runtime adds: image volumes, volumes that the image defines.
    pub extra_mounts: Vec<v1::Mount>,
    pub log_path: &'a str,
    /// The OCI runtime that creates the container, in a root that is already mounted.
    pub handler: Option<HandlerSpec>,
    pub root: Option<PathBuf>,
    /// Directories of CDI specifications.
    pub device_dirs: &'a [PathBuf],
    /// SELinux labels.
    pub labels: &'a SelinuxLabels,
}

/// The container's specification for the supervisor, and the identity it runs as.
pub(crate) fn container_spec(
    machine: &HostCapabilities,
    inputs: &ContainerInputs<'_>,
) -> Result<(ContainerSpec, ResolvedUser)> {
    let empty = v1::LinuxContainerSecurityContext::default();
    let linux = inputs.config.linux.clone().unwrap_or_default();
    let security = linux.security_context.as_ref().unwrap_or(&empty);
    check(machine, inputs, security)?;
    let identity = identity(security, inputs)?;
    let hostname = match inputs.sandbox.hostname.as_str() {
        "" => machine.hostname.as_str(),
        name => name,
    };
    let process = process::of(inputs.config, inputs.image, (hostname, &identity.home))?;
    let capabilities = capabilities::of(security, machine.capabilities);
    let seccomp = seccomp::filter(security, capabilities.bounding, inputs.handler.is_some())?;
    let oom = resources::oom_score(linux.resources.as_ref(), machine.lowest_oom_score);
    let namespaces = namespaces(machine, security, &inputs.pod_namespaces);
    let devices = devices::asked(&inputs.config.devices)?;
    let mut nodes = devices.nodes;
    if security.privileged {
        nodes.extend(devices::of_the_host()?);
    }
    let user_namespace = namespaces.user == i32::from(NamespaceMode::Pod);
    let mut spec = ContainerSpec {
        id: inputs.id.to_owned(),
        root: Some(root(inputs, security, user_namespace)),
        process: Some(process),
        security: Some(SecuritySpec {
            uid: identity.uid,
            gid: identity.gid,
            additional_gids: identity.groups.clone(),
            umask: None,
            capabilities: Some(capabilities),
            no_new_privileges: security.no_new_privs,
            seccomp,
            apparmor_profile: machine.apparmor.profile(security)?,
            selinux_label: inputs.labels.process.clone(),
            limits: Vec::new(),
            oom_score_adjustment: Some(oom),
        }),
        mounts: all_mounts(inputs, security, user_namespace)?,
        devices: nodes,
        cgroup: Some(CgroupSpec {
            limits: linux
                .resources
                .as_ref()
                .map(|resources| resources::limits(resources, machine.kernel_features)),
            device_rules: devices.rules,
            all_devices: security.privileged,
            ..cgroup_of(machine.cgroup_driver, inputs.sandbox, inputs.id)?
        }),
        namespaces: Some(namespaces),
        masked_paths: if security.privileged { Vec::new() } else { security.masked_paths.clone() },
        read_only_paths: if security.privileged {
            Vec::new()
        } else {
            security.readonly_paths.clone()
        },
        streams: Some(StreamsSpec {
            log_path: inputs.log_path.to_owned(),
            stdin: inputs.config.stdin,
            stdin_once: inputs.config.stdin_once,
            longest_line: 0,
            log_dir: inputs.sandbox.log_directory.clone(),
        }),
        handler: inputs.handler.clone(),
        mount_label: inputs.labels.file.clone(),
        ..ContainerSpec::default()
    };
    named_devices::add(&mut spec, inputs.config, inputs.device_dirs)?;
    Ok((spec, identity))
}

fn check(
    machine: &HostCapabilities,
    inputs: &ContainerInputs<'_>,
    security: &v1::LinuxContainerSecurityContext,
) -> Result<()> {
    let sandbox = inputs.sandbox.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    if security.privileged && !sandbox.is_some_and(|sandbox| sandbox.privileged) {
        return Err(CriError::plain("no privileged container allowed in sandbox"));
    }
    let of_pod = sandbox.and_then(|sandbox| sandbox.namespace_options.as_ref());
    let of_pod = of_pod.and_then(|options| options.userns_options.as_ref());
    let own = security.namespace_options.as_ref();
    let own = own.and_then(|options| options.userns_options.as_ref());
    if !pod::same_user_namespace(of_pod, own) {
        return Err(CriError::plain(
            "user namespace config for sandbox is different from container",
        ));
    }
    let resources = inputs.config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let huge = resources
        .is_some_and(|resources| resources.hugepage_limits.iter().any(|limit| limit.limit > 0));
    if huge && !machine.kernel_features.huge_pages {
        tracing::warn!(
            container = inputs.id,
            "no hugetlb controller: huge page limits are not set"
        );
    }
    Ok(())
}

fn identity(
    security: &v1::LinuxContainerSecurityContext,
    inputs: &ContainerInputs<'_>,
) -> Result<ResolvedUser> {
    let files = ImageFiles::open(inputs.overlay)?;
    let tables = UserTables { passwd: files.read("etc/passwd")?, group: files.read("etc/group")? };
    users::resolve(security, &inputs.image.user, &tables)
}

fn root(
    inputs: &ContainerInputs<'_>,
    security: &v1::LinuxContainerSecurityContext,
    user_namespace: bool,
) -> RootFilesystem {
    let text = |path: &Path| path.display().to_string();
    let upper = inputs.overlay.upper.as_ref();
    let options =
        if inputs.overlay.user_attributes { vec!["userxattr".to_owned()] } else { Vec::new() };
    let overlay = OverlaySpec {
        lower: inputs.overlay.lower.iter().map(|path| text(path)).collect(),
        upper: upper.map(|upper| text(&upper.changes)).unwrap_or_default(),
        work: upper.map(|upper| text(&upper.work)).unwrap_or_default(),
        options,
    };
    RootFilesystem {
        path: inputs.root.as_deref().map(text).unwrap_or_default(),
        overlay: inputs.root.is_none().then_some(overlay),
        read_only: security.readonly_rootfs,
        map_ids: user_namespace,
        propagation: match mounts::root_propagation(&inputs.config.mounts) {
            // A root that does not propagate out still receives mounts.
            Propagation::Shared => Propagation::Shared.into(),
            other => other.into(),
        },
    }
}

/// A container shares the pod's namespaces; only its PID namespace may differ.
fn namespaces(
    machine: &HostCapabilities,
    security: &v1::LinuxContainerSecurityContext,
    pod: &v1::NamespaceOption,
) -> ContainerNamespaces {
    let options = security.namespace_options.clone().unwrap_or_default();
    let user = pod.userns_options.as_ref().is_some_and(pod::has_user_namespace);
    let pod_or_node = |mode: v1::NamespaceMode| match mode {
        v1::NamespaceMode::Node => NamespaceMode::Node.into(),
        _ => NamespaceMode::Pod.into(),
    };
    ContainerNamespaces {
        pid: match (options.pid(), pod.pid()) {
            (v1::NamespaceMode::Container, _) => NamespaceMode::Container.into(),
            (v1::NamespaceMode::Target, _) => NamespaceMode::Target.into(),
            (_, v1::NamespaceMode::Node) => NamespaceMode::Node.into(),
            (_, v1::NamespaceMode::Pod) => NamespaceMode::Pod.into(),
            // The pod shares no PID namespace, whatever the container requests.
            _ => NamespaceMode::Container.into(),
        },
        pid_target: options.target_id.clone(),
        network: pod_or_node(pod.network()),
        ipc: pod_or_node(pod.ipc()),
        uts: pod_or_node(pod.network()),
        cgroup: if machine.unified_cgroups && !security.privileged {
            NamespaceMode::Container.into()
        } else {
            NamespaceMode::Node.into()
        },
        user: if user { NamespaceMode::Pod.into() } else { NamespaceMode::Node.into() },
    }
}

/// Files that the pod's containers share, unless the caller mounts something there.
fn shared_files(
    inputs: &ContainerInputs<'_>,
    security: &v1::LinuxContainerSecurityContext,
) -> Vec<v1::Mount> {
    let shm = match inputs.pod_namespaces.ipc() {
        v1::NamespaceMode::Node => PathBuf::from("/dev/shm"),
        _ => inputs.pod_paths.shared_memory(),
    };
    [
        ("/etc/hostname", inputs.pod_paths.hostname(), security.readonly_rootfs),
        ("/etc/hosts", inputs.pod_paths.hosts(), security.readonly_rootfs),
        ("/etc/resolv.conf", inputs.pod_paths.resolver(), security.readonly_rootfs),
        ("/dev/shm", shm, false),
    ]
    .into_iter()
    .filter(|(_, source, _)| source.exists())
    .map(|(target, source, readonly)| v1::Mount {
        container_path: target.to_owned(),
        host_path: source.display().to_string(),
        readonly,
        // Shared memory is mounted with its label, or is the host's.
        selinux_relabel: target != "/dev/shm",
        ..Default::default()
    })
    .collect()
}

fn all_mounts(
    inputs: &ContainerInputs<'_>,
    security: &v1::LinuxContainerSecurityContext,
    user_namespace: bool,
) -> Result<Vec<MountSpec>> {
    let table = MountTable::read().doing("reading the mount table")?;
    let of_caller: Vec<&v1::Mount> =
        inputs.config.mounts.iter().filter(|mount| mount.image.is_none()).collect();
    let mut all = Vec::new();
    let extra = shared_files(inputs, security);
    let taken =
        |target: &str| of_caller.iter().any(|mount| clean(&mount.container_path) == clean(target));
    for mount in &of_caller {
        let spec = mounts::of_caller(mount, &table)?;
        selinux::relabel(mount, Path::new(&spec.source), inputs.labels)?;
        all.push(spec);
    }
    // The pod's shared files belong to the pod's own root; volumes of images belong to the host's,
    // and are id-mapped for the pod.
    let extra = extra.iter().map(|mount| (mount, false));
    let volumes = inputs.extra_mounts.iter().map(|mount| (mount, user_namespace));
    for (mount, map_ids) in extra.chain(volumes) {
        if !taken(&mount.container_path) {
            selinux::relabel(mount, Path::new(&mount.host_path), inputs.labels)?;
            let spec = mounts::asked(mount, Path::new(&mount.host_path))?;
            all.push(MountSpec { map_ids, ..spec });
        }
    }
    Ok(mounts::arranged(mounts::usual(security.privileged), all))
}
