//! What the kernel shows about this machine, read and not judged.
//!
//! Rule: everything is read beneath `root`, so that a directory of files stands for a machine in
//! tests; what cannot be read is absent, never invented. What has to be tried is in `trials`.

use super::trials::Trials;
use mount_table::MountTable;
use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Where runtimes listen by default.
const RUNTIME_SOCKETS: [&str; 4] = [
    "run/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "run/keelson/cri.sock",
];
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineFacts {
    pub(crate) kernel_release: Option<String>,
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) missing_namespaces: Vec<&'static str>,
    pub(crate) file_systems: BTreeSet<String>,
    pub(crate) user_namespace_limit: Option<u64>,
    pub(crate) effective_capabilities: Option<u64>,
    pub(crate) swap_areas: Option<usize>,
    pub(crate) inotify_instances: Option<u64>,
    pub(crate) inotify_watches: Option<u64>,
    pub(crate) runtime_sockets: Vec<String>,
    /// Limit of open files that a process can raise itself to; None for no limit.
    pub(crate) open_files: Option<Limit>,
    pub(crate) process_ids: Option<u64>,
    /// Configurations of network plugins.
    pub(crate) network_configurations: usize,
    pub(crate) confinement: Confinement,
    pub(crate) tried: Trials,
}

/// The active mandatory access control; a kernel has at most one of them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Whether the program that loads profiles is installed.
    AppArmor {
        parser: bool,
    },
    Selinux {
        enforcing: bool,
    },
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    None,
    At(u64),
}

/// The hierarchy that carries the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroups {
    pub(crate) unified: bool,
    pub(crate) controllers: BTreeSet<String>,
}

/// The facts that decide whether the agent may start, and nothing else: no seccomp filter is loaded
/// for it.
pub(crate) fn for_start(root: &Path) -> node_policy::StartupFacts {
    node_policy::StartupFacts {
        unified_cgroups: cgroups(root).map(|cgroups| cgroups.unified),
        swap_areas: swap_areas(root),
    }
}

/// Swap areas that are on.
fn swap_areas(root: &Path) -> Option<usize> {
    // A swap file may have any name.
    let list = std::fs::read(root.join("proc/swaps")).ok()?;
    Some(String::from_utf8_lossy(&list).lines().skip(1).count())
}

/// Reads the machine beneath `root`.
pub(crate) fn gather(root: &Path, tried: Trials) -> MachineFacts {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| text(path).and_then(|content| content.trim().parse().ok());
    MachineFacts {
        kernel_release: text("proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
        cgroups: cgroups(root),
        missing_namespaces: NAMESPACES
            .into_iter()
            .filter(|name| root.join("proc/self/ns").join(name).symlink_metadata().is_err())
            .collect(),
        file_systems: text("proc/filesystems")
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
            .collect(),
        user_namespace_limit: number("proc/sys/user/max_user_namespaces"),
        effective_capabilities: text("proc/self/status").as_deref().and_then(capabilities),
        swap_areas: swap_areas(root),
        inotify_instances: number("proc/sys/fs/inotify/max_user_instances"),
        inotify_watches: number("proc/sys/fs/inotify/max_user_watches"),
        runtime_sockets: RUNTIME_SOCKETS
            .into_iter()
            .filter(|path| {
                let metadata = root.join(path).metadata();
                metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
            })
            .map(|path| format!("unix:///{path}"))
            .collect(),
        open_files: text("proc/self/limits").as_deref().and_then(open_files),
        process_ids: number("proc/sys/kernel/pid_max"),
        network_configurations: network_configurations(&root.join("etc/cni/net.d")),
        confinement: confinement(root),
        tried,
    }
}

/// The hard limit of `Max open files`.
fn open_files(limits: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(Limit::None),
        number => number.parse().ok().map(Limit::At),
    }
}

fn network_configurations(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|end| ["conf", "conflist", "json"].iter().any(|it| end == *it))
    };
    names.filter(is_one).count()
}

fn confinement(root: &Path) -> Confinement {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    if let Some(mode) = text("sys/fs/selinux/enforce") {
        return Confinement::Selinux { enforcing: mode.trim() == "1" };
    }
    let on = text("sys/module/apparmor/parameters/enabled").is_some_and(|on| on.starts_with('Y'));
    // Inside another container the kernel has it, but its policy is not visible.
    if on && root.join("sys/kernel/security/apparmor/profiles").exists() {
        let places = ["sbin/apparmor_parser", "usr/sbin/apparmor_parser"];
        let parser = places.iter().any(|place| root.join(place).exists());
        return Confinement::AppArmor { parser };
    }
    Confinement::Nothing
}

/// The mask behind `CapEff:`.
pub(crate) fn capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn cgroups(root: &Path) -> Option<Cgroups> {
    let table = MountTable::from(std::fs::read(root.join("proc/self/mountinfo")).ok()?);
    let base = Path::new("/sys/fs/cgroup");
    let unified = table.mounts().any(|one| one.is_of_type("cgroup2") && one.point == base);
    let mut separate = BTreeSet::new();
    for mount in table.mounts().filter(|mount| mount.is_of_type("cgroup")) {
        let names = mount.options().filter_map(|name| name.to_str());
        separate.extend(names.map(str::to_owned));
    }
    if unified {
        let list = std::fs::read_to_string(root.join("sys/fs/cgroup/cgroup.controllers"));
        let list = list.unwrap_or_default();
        let controllers = list.split_whitespace().map(str::to_owned).collect();
        return Some(Cgroups { unified, controllers });
    }
    // The options of a v1 mount mix controllers with options such as `rw`; only known controllers
    // count.
    let known = std::fs::read_to_string(root.join("proc/cgroups")).unwrap_or_default();
    let known: BTreeSet<&str> = known
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    separate.retain(|name| known.contains(name.as_str()));
    (!separate.is_empty()).then_some(Cgroups { unified, controllers: separate })
}
