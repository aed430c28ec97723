//! A pod's namespaces and cgroup, and the files that its containers share.
//!
//! upstream: containerd internal/cri/server/podsandbox (sandbox_run_linux.go), helpers_linux.go

use std::path::{Path, PathBuf};

use cgroup_files::names::{CgroupManager, CgroupNameError, ContainerCgroup, expand_slice};
use container_create::spec::{CgroupSpec, IdMappings, IdRange, NamespaceMode, PodSpec};
use cri_wire::v1;

use crate::failure::{CriError, Result};
use crate::settings::CgroupDriver;

/// The parent cgroup of containers whose sandbox names none.
const DEFAULT_PARENT: &str = "/keelson";
const DEFAULT_SLICE: &str = "keelson.slice";
/// The prefix of containers' scopes, in the form that tools know from other runtimes.
const SCOPE_PREFIX: &str = "cri-keelson";

/// The paths of one sandbox's files.
#[derive(Debug, Clone)]
pub(crate) struct PodPaths {
    dir: PathBuf,
}

impl PodPaths {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn hostname(&self) -> PathBuf {
        self.dir.join("hostname")
    }

    pub(crate) fn hosts(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    pub(crate) fn resolver(&self) -> PathBuf {
        self.dir.join("resolv.conf")
    }

    pub(crate) fn shared_memory(&self) -> PathBuf {
        self.dir.join("shm")
    }
}

pub(super) fn has_user_namespace(options: &v1::UserNamespace) -> bool {
    options.mode() == v1::NamespaceMode::Pod
}

/// Whether a container requests the pod's user namespace.
pub(super) fn same_user_namespace(
    pod: Option<&v1::UserNamespace>,
    own: Option<&v1::UserNamespace>,
) -> bool {
    let requested = |options: Option<&v1::UserNamespace>| {
        options
            .filter(|options| has_user_namespace(options))
            .map(|options| (options.uids.clone(), options.gids.clone()))
    };
    requested(pod) == requested(own)
}

/// The parent cgroup that the caller requests for a pod's containers.
fn parent_of(sandbox: &v1::PodSandboxConfig) -> Option<&str> {
    let parent = sandbox.linux.as_ref().map(|linux| linux.cgroup_parent.as_str());
    parent.filter(|parent| !parent.is_empty())
}

/// The slice of a parent: `a-b.slice`, or a path that ends in one.
fn slice_of(parent: &str) -> Option<&str> {
    let last = parent.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    last.ends_with(".slice").then_some(last)
}

/// The cgroup of the whole pod, which the caller owns. None if it named no parent.
pub(crate) fn group_of_pod(sandbox: &v1::PodSandboxConfig) -> Option<String> {
    let parent = parent_of(sandbox)?;
    match slice_of(parent) {
        Some(slice) => expand_slice(slice).ok(),
        None => Some(format!("/{}", parent.trim_matches('/'))),
    }
}

/// The cgroup of one container.
pub(crate) fn cgroup_of(
    driver: CgroupDriver,
    sandbox: &v1::PodSandboxConfig,
    id: &str,
) -> Result<CgroupSpec> {
    let odd = |error: CgroupNameError| CriError::plain(format!("cgroup parent: {error}"));
    match driver {
        CgroupDriver::Systemd => {
            let parent = parent_of(sandbox).unwrap_or(DEFAULT_SLICE);
            if slice_of(parent).is_none() {
                return Err(CriError::plain(format!(
                    "the cgroup driver is systemd, but the cgroup parent {parent:?} is no slice; \
                     expected such as kubepods-burstable-pod1234.slice"
                )));
            }
            let group = ContainerCgroup::within(parent, SCOPE_PREFIX, id, CgroupManager::Systemd);
            let ContainerCgroup { path, scope } = group.map_err(odd)?;
            let (systemd_unit, systemd_slice) =
                scope.map(|scope| (scope.unit, scope.slice)).unwrap_or_default();
            Ok(CgroupSpec { path, systemd_unit, systemd_slice, ..CgroupSpec::default() })
        }
        // A slice as a parent is a directory like others: systemd is not involved.
        CgroupDriver::Cgroupfs => {
            let parent = group_of_pod(sandbox).unwrap_or_else(|| DEFAULT_PARENT.to_owned());
            let group = ContainerCgroup::within(&parent, SCOPE_PREFIX, id, CgroupManager::CgroupFs);
            Ok(CgroupSpec { path: group.map_err(odd)?.path, ..CgroupSpec::default() })
        }
    }
}

/// The pod's namespaces. `pin` is the path of its network namespace.
pub(crate) fn pod_spec(
    driver: CgroupDriver,
    id: &str,
    config: &v1::PodSandboxConfig,
    pin: &Path,
) -> Result<PodSpec> {
    let group = cgroup_of(driver, config, id)?;
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let options = security.namespace_options.unwrap_or_default();
    let host_network = options.network() == v1::NamespaceMode::Node;
    let user_namespace = match &options.userns_options {
        Some(requested) if has_user_namespace(requested) => Some(mappings(requested)?),
        Some(requested) if requested.mode() != v1::NamespaceMode::Node => {
            return Err(CriError::plain(format!(
                "user namespace mode {:?} is not supported; expected POD or NODE",
                requested.mode().as_str_name()
            )));
        }
        _ => None,
    };
    let mut sysctls = linux.sysctls;
    if !host_network {
        // Ports below 1024 and ping are safe to allow in the pod's own network namespace.
        let mut set_default = |name: &str, value: &str| {
            sysctls.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        };
        set_default("net.ipv4.ip_unprivileged_port_start", "0");
        if user_namespace.is_none() {
            set_default("net.ipv4.ping_group_range", "0 2147483647");
        }
    }
    let mode = |mode: v1::NamespaceMode| match mode {
        v1::NamespaceMode::Node => NamespaceMode::Node.into(),
        _ => NamespaceMode::Pod.into(),
    };
    Ok(PodSpec {
        id: id.to_owned(),
        hostname: if host_network { String::new() } else { config.hostname.clone() },
        network: mode(options.network()),
        ipc: mode(options.ipc()),
        pid: match options.pid() {
            v1::NamespaceMode::Pod => NamespaceMode::Pod.into(),
            v1::NamespaceMode::Node => NamespaceMode::Node.into(),
            _ => NamespaceMode::Container.into(),
        },
        user_namespace,
        sysctls,
        network_pin: if host_network { String::new() } else { pin.display().to_string() },
        network_path: String::new(),
        uts: mode(options.network()),
        oom_score_adjustment: None,
        init_cgroup: group.path,
        init_unit: group.systemd_unit,
        init_slice: group.systemd_slice,
    })
}

/// upstream: containerd parseUsernsIDs accepts one range for users and one for groups.
fn mappings(requested: &v1::UserNamespace) -> Result<IdMappings> {
    let ranges = |what: &str, list: &[v1::IdMapping]| match list {
        [one] if one.length > 0 => {
            Ok(vec![IdRange { inside: one.container_id, outside: one.host_id, count: one.length }])
        }
        _ => Err(CriError::plain(format!(
            "user namespace configuration: expected one {what} mapping with a length, got {}",
            list.len()
        ))),
    };
    if requested.uids != requested.gids {
        return Err(CriError::plain(
            "user namespace configuration: mappings of users and groups differ",
        ));
    }
    Ok(IdMappings {
        users: ranges("uid", &requested.uids)?,
        groups: ranges("gid", &requested.gids)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(parent: &str) -> v1::PodSandboxConfig {
        let linux =
            v1::LinuxPodSandboxConfig { cgroup_parent: parent.into(), ..Default::default() };
        v1::PodSandboxConfig { linux: Some(linux), hostname: "web".into(), ..Default::default() }
    }

    #[test]
    fn cgroups_lie_below_the_parent_of_the_caller() {
        let path = |parent| cgroup_of(CgroupDriver::Cgroupfs, &sandbox(parent), "id").unwrap().path;
        assert_eq!(path("/kubepods/podx"), "/kubepods/podx/id");
        assert_eq!(path("kubepods/podx/"), "/kubepods/podx/id");
        assert_eq!(path(""), "/keelson/id");
        // Accepted, though the caller uses the other driver's form.
        assert_eq!(path("a-b.slice"), "/a.slice/a-b.slice/id");
        let systemd = |parent| cgroup_of(CgroupDriver::Systemd, &sandbox(parent), "id");
        let slice = systemd("/kubepods.slice/kubepods-besteffort-podx.slice").unwrap();
        let dir = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx.slice";
        assert_eq!(slice.path, format!("{dir}/cri-keelson-id.scope"));
        assert_eq!(slice.systemd_unit, "cri-keelson-id.scope");
        assert_eq!(slice.systemd_slice, "kubepods-besteffort-podx.slice");
        assert_eq!(systemd("").unwrap().path, "/keelson.slice/cri-keelson-id.scope");
        assert!(systemd("/kubepods/podx").unwrap_err().text.contains("is no slice"));
        let whole = group_of_pod(&sandbox("kubepods-besteffort-podx.slice"));
        assert_eq!(whole.as_deref(), Some(dir));
        assert_eq!(group_of_pod(&sandbox("kubepods/podx/")).as_deref(), Some("/kubepods/podx"));
        assert_eq!(group_of_pod(&sandbox("")), None);
    }

    #[test]
    fn pods_on_the_hosts_network_keep_its_name_and_settings() {
        let mut config = sandbox("");
        let spec = pod_spec(CgroupDriver::Cgroupfs, "id", &config, Path::new("/pin")).unwrap();
        assert_eq!((&*spec.hostname, &*spec.network_pin), ("web", "/pin"));
        assert_eq!(spec.sysctls["net.ipv4.ip_unprivileged_port_start"], "0");
        let options = v1::NamespaceOption { network: 2, ..Default::default() };
        let security = v1::LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..Default::default()
        };
        if let Some(linux) = &mut config.linux {
            linux.security_context = Some(security);
        }
        let spec = pod_spec(CgroupDriver::Cgroupfs, "id", &config, Path::new("/pin")).unwrap();
        assert_eq!((&*spec.hostname, &*spec.network_pin), ("", ""));
        assert!(spec.sysctls.is_empty());
        assert_eq!(spec.uts, i32::from(NamespaceMode::Node));
    }

    #[test]
    fn user_namespaces_have_one_range_and_the_same_for_all() {
        let range = |length| v1::IdMapping { host_id: 65536, container_id: 0, length };
        let requested = |uids: Vec<v1::IdMapping>, gids: Vec<v1::IdMapping>| v1::UserNamespace {
            mode: 0,
            uids,
            gids,
        };
        assert!(mappings(&requested(vec![range(10)], vec![range(10)])).is_ok());
        assert!(mappings(&requested(vec![range(10)], vec![range(9)])).is_err());
        assert!(mappings(&requested(vec![range(0)], vec![range(0)])).is_err());
        assert!(mappings(&requested(vec![], vec![])).is_err());
        let node = v1::UserNamespace { mode: 2, ..Default::default() };
        assert!(same_user_namespace(None, Some(&node)));
        assert!(!same_user_namespace(None, Some(&requested(vec![range(1)], vec![]))));
    }
}
