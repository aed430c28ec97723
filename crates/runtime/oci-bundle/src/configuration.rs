//! A container's specification as the OCI configuration of a bundle.
//!
//! Rule: pure. The pod's namespaces are given as paths, because a command-line runtime opens them
//! itself. A user namespace of the pod, a root that is not mounted yet and a path below a mount's
//! source cannot be expressed in OCI and are refused.

mod limits;
mod mounts;
mod security;

use container_create::spec::{
    ContainerNamespaces, ContainerSpec, NamespaceMode, ProcessSpec, Propagation, SecuritySpec,
};

use crate::json::{Json, Members, texts};

#[cfg(test)]
mod tests;

/// Version of the specification in the output: an old one, since runtimes reject newer versions
/// than theirs (crun 1.8 all but 1.0), and none rejects older ones.
const OCI_VERSION: &str = "1.0.2";

/// Paths of the namespaces that the container shares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespacePaths {
    pub network: Option<String>,
    pub ipc: Option<String>,
    pub uts: Option<String>,
    /// The pod's, or the target container's.
    pub pid: Option<String>,
}

/// The specification needs something that a command-line runtime does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedSpec(pub String);

pub(crate) type Result<T> = std::result::Result<T, UnsupportedSpec>;

pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T> {
    Err(UnsupportedSpec(reason.into()))
}

/// Returns the text of `config.json`.
pub fn configuration(spec: &ContainerSpec, paths: &NamespacePaths) -> Result<String> {
    let missing = |what: &str| UnsupportedSpec(format!("the container has no {what}"));
    let process = spec.process.as_ref().ok_or_else(|| missing("process"))?;
    let security = spec.security.as_ref().ok_or_else(|| missing("security"))?;
    let root = spec.root.as_ref().ok_or_else(|| missing("root"))?;
    let namespaces = spec.namespaces.as_ref().ok_or_else(|| missing("namespaces"))?;
    if root.overlay.is_some() || root.map_ids || !root.path.starts_with('/') {
        return unsupported("the container's root is not a directory that is mounted already");
    }
    let mut all = Members::default();
    all.put("ociVersion", OCI_VERSION);
    all.put("process", process_members(process, security)?);
    let mut dir = Members::default();
    dir.put("path", &root.path);
    dir.put("readonly", root.read_only);
    all.put("root", dir);
    let hostname = spec.handler.as_ref().map(|handler| handler.hostname.as_str());
    // With the host's UTS namespace no hostname may be set.
    if mode(namespaces.uts)? != NamespaceMode::Node {
        all.put_text("hostname", hostname.unwrap_or_default());
    }
    all.put("mounts", Json::List(mounts::list(&spec.mounts)?));
    all.put_members("hooks", hooks(spec));
    all.put_members("annotations", annotations(spec));
    all.put("linux", linux(spec, namespaces, paths)?);
    Ok(Json::from(all).write())
}

/// The text of the `config.json` for hooks that we run ourselves: the container's process, and the
/// path of its root while the hooks run.
pub fn for_hooks(spec: &ContainerSpec, root: &str) -> Result<String> {
    let missing = |what: &str| UnsupportedSpec(format!("the container has no {what}"));
    let process = spec.process.as_ref().ok_or_else(|| missing("process"))?;
    let security = spec.security.as_ref().ok_or_else(|| missing("security"))?;
    let mut all = Members::default();
    all.put("ociVersion", OCI_VERSION);
    all.put("process", process_members(process, security)?);
    let mut dir = Members::default();
    dir.put("path", root);
    dir.put("readonly", spec.root.as_ref().is_some_and(|root| root.read_only));
    all.put("root", dir);
    Ok(Json::from(all).write())
}

/// The text of a `process.json` for an exec in an existing container.
pub fn process(process: &ProcessSpec, security: &SecuritySpec) -> Result<String> {
    Ok(Json::from(process_members(process, security)?).write())
}

fn process_members(process: &ProcessSpec, security: &SecuritySpec) -> Result<Members> {
    let mut all = Members::default();
    all.put("terminal", process.terminal);
    if let Some(size) = process.terminal_size.filter(|_| process.terminal) {
        let mut console = Members::default();
        console.put("height", size.rows);
        console.put("width", size.columns);
        all.put("consoleSize", console);
    }
    all.put("user", security::user(security));
    all.put("args", texts(&process.arguments));
    all.put("env", texts(&process.environment));
    let dir = process.working_directory.as_str();
    all.put("cwd", if dir.is_empty() { "/" } else { dir });
    if let Some(capabilities) = &security.capabilities {
        all.put("capabilities", security::capabilities(capabilities));
    }
    let limits: Vec<Json> = security.limits.iter().map(security::limit).collect();
    if !limits.is_empty() {
        all.put("rlimits", Json::List(limits));
    }
    all.put("noNewPrivileges", security.no_new_privileges);
    all.put_text("apparmorProfile", &security.apparmor_profile);
    all.put_text("selinuxLabel", &security.selinux_label);
    all.put_some("oomScoreAdj", security.oom_score_adjustment);
    Ok(all)
}

fn annotations(spec: &ContainerSpec) -> Members {
    let mut all = Members::default();
    for (name, value) in spec.handler.iter().flat_map(|handler| &handler.annotations) {
        all.put(name, value);
    }
    all
}

/// By lifecycle stage, in the given order.
fn hooks(spec: &ContainerSpec) -> Members {
    let hooks = spec.handler.as_ref().map(|handler| handler.hooks.as_slice()).unwrap_or_default();
    let mut all = Members::default();
    let mut points: Vec<&str> = Vec::new();
    for hook in hooks {
        if !points.contains(&hook.point.as_str()) {
            points.push(&hook.point);
        }
    }
    for point in points {
        let list = hooks.iter().filter(|hook| hook.point == point).map(|hook| {
            let mut one = Members::default();
            one.put("path", &hook.path);
            one.put_texts("args", &hook.arguments);
            one.put_texts("env", &hook.environment);
            one.put_some("timeout", Some(hook.timeout).filter(|timeout| *timeout > 0));
            Json::from(one)
        });
        all.put(point, Json::List(list.collect()));
    }
    all
}

fn linux(
    spec: &ContainerSpec,
    wanted: &ContainerNamespaces,
    paths: &NamespacePaths,
) -> Result<Members> {
    let mut all = Members::default();
    all.put("namespaces", Json::List(namespaces(wanted, paths)?));
    if let Some(cgroup) = &spec.cgroup {
        let place = match cgroup.systemd_unit.as_str() {
            "" => cgroup.path.clone(),
            unit => systemd_cgroups_path(&cgroup.systemd_slice, unit)?,
        };
        all.put("cgroupsPath", &place);
        all.put("resources", limits::resources(cgroup));
    }
    let devices: Vec<Json> = spec.devices.iter().map(limits::device).collect();
    if !devices.is_empty() {
        all.put("devices", Json::List(devices));
    }
    let mut sysctls = Members::default();
    for (name, value) in &spec.sysctls {
        sysctls.put(name, value);
    }
    all.put_members("sysctl", sysctls);
    all.put_text("mountLabel", &spec.mount_label);
    all.put_texts("maskedPaths", &spec.masked_paths);
    all.put_texts("readonlyPaths", &spec.read_only_paths);
    let root = spec.root.as_ref().map_or(0, |root| root.propagation);
    all.put("rootfsPropagation", mounts::propagation(root)?.trim_start_matches('r'));
    let filter = spec.security.as_ref().and_then(|security| security.seccomp.as_ref());
    if let Some(filter) = filter {
        if filter.document.is_empty() {
            return unsupported("the seccomp filter is there only as a program for the kernel");
        }
        all.put("seccomp", Json::Raw(filter.document.clone()));
    }
    Ok(all)
}

/// `slice:prefix:name`, from which the runtime forms the scope `prefix-name.scope`.
fn systemd_cgroups_path(slice: &str, unit: &str) -> Result<String> {
    let name = unit.strip_suffix(".scope").and_then(|name| name.split_once('-'));
    match name {
        Some((prefix, name)) => Ok(format!("{slice}:{prefix}:{name}")),
        None => unsupported(format!("the unit {unit:?} is not of the form prefix-name.scope")),
    }
}

fn namespaces(wanted: &ContainerNamespaces, paths: &NamespacePaths) -> Result<Vec<Json>> {
    let entry = |kind: &str, path: Option<&String>| {
        let mut one = Members::default();
        one.put("type", kind);
        one.put_some("path", path);
        Json::from(one)
    };
    if mode(wanted.user)? != NamespaceMode::Node {
        return unsupported("a user namespace of the pod cannot be given to this runtime handler");
    }
    let mut all = vec![entry("mount", None)];
    for (kind, choice, path) in [
        ("network", wanted.network, &paths.network),
        ("ipc", wanted.ipc, &paths.ipc),
        ("uts", wanted.uts, &paths.uts),
        ("pid", wanted.pid, &paths.pid),
        ("cgroup", wanted.cgroup, &None),
    ] {
        match (mode(choice)?, path) {
            (NamespaceMode::Node, _) => {}
            (NamespaceMode::Container, _) => all.push(entry(kind, None)),
            (NamespaceMode::Pod | NamespaceMode::Target, Some(path)) => {
                all.push(entry(kind, Some(path)));
            }
            (NamespaceMode::Pod | NamespaceMode::Target, None) => {
                return unsupported(format!("the pod has no {kind} namespace to enter"));
            }
        }
    }
    Ok(all)
}

fn mode(number: i32) -> Result<NamespaceMode> {
    NamespaceMode::try_from(number)
        .map_err(|_| UnsupportedSpec(format!("{number} is no mode of a namespace")))
}

fn propagation_of(number: i32) -> Result<Propagation> {
    Propagation::try_from(number)
        .map_err(|_| UnsupportedSpec(format!("{number} is no way of propagation")))
}
