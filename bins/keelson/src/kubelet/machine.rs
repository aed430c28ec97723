//! The properties of this machine that running pods needs.
//!
//! Rule: read beneath `root`, so that a directory of files stands for a machine in tests; what
//! cannot be read is absent or zero, never invented. The node's addresses come from the kernel's
//! routes.

use node_policy::admission::kernel_version;
use pod_model::{CpuSet, Quantity, QuantityFormat};
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MachineSize {
    pub(super) processors: i64,
    /// The numbers of the CPUs that are online; empty if the kernel does not show them.
    pub(super) online: CpuSet,
    pub(super) memory_bytes: i64,
    pub(super) swap_bytes: i64,
    /// The kernel can limit swap by control group.
    pub(super) can_limit_swap: bool,
    pub(super) huge_page_sizes: Vec<String>,
    /// Bytes of a page and of all pages of that size.
    pub(super) huge_pages: Vec<(i64, i64)>,
    /// Of the filesystem with the root directory; None if it cannot be read.
    pub(super) storage_bytes: Option<i64>,
    /// The output of `getsubids` for the user `kubelet`; None if there is no such user or program.
    pub(super) subordinate_users: Option<Result<String, String>>,
    pub(super) thermal_throttle_paths: Vec<String>,
    pub(super) is_selinux_on: bool,
    pub(super) is_app_armor_on: bool,
    /// The first two numbers of the kernel's release.
    pub(super) kernel: Option<(u32, u32)>,
    pub(super) page_bytes: i64,
    /// How many processes and threads the kernel allows at once.
    pub(super) most_tasks: Option<i64>,
}

pub(super) fn read(root: &Path) -> MachineSize {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let memory = text("proc/meminfo");
    MachineSize {
        processors: processors(&text("proc/cpuinfo")),
        online: CpuSet::parse(text("sys/devices/system/cpu/online").trim()).unwrap_or_default(),
        memory_bytes: amount(&memory, "MemTotal:"),
        swap_bytes: amount(&memory, "SwapTotal:"),
        can_limit_swap: cgroup_files::can_limit_swap(root),
        huge_page_sizes: huge_page_sizes(root),
        huge_pages: huge_pages(root),
        storage_bytes: None,
        subordinate_users: None,
        thermal_throttle_paths: thermal_throttle_paths(root),
        is_selinux_on: root.join("sys/fs/selinux/enforce").exists(),
        is_app_armor_on: root.join("sys/kernel/security/apparmor").exists()
            && text("sys/module/apparmor/parameters/enabled").starts_with('Y'),
        kernel: kernel_version(&text("proc/sys/kernel/osrelease")),
        page_bytes: page_bytes(&std::fs::read(root.join("proc/self/auxv")).unwrap_or_default()),
        // upstream: kubelet/stats/pidlimit: the smaller of both.
        most_tasks: ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"]
            .into_iter()
            .filter_map(|path| text(path).trim().parse().ok())
            .min(),
    }
}

/// Kubernetes' name for the CPU architecture.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Bytes by resource name, such as `hugepages-2Mi`.
pub(super) fn huge_page_resources(machine: &MachineSize) -> BTreeMap<String, i64> {
    let name = |size| Quantity::from_units(size, QuantityFormat::BinarySi);
    let pages = machine.huge_pages.iter();
    pages.map(|(size, all)| (format!("hugepages-{}", name(*size)), *all)).collect()
}

fn processors(cpuinfo: &str) -> i64 {
    let lines = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    i64::try_from(lines).unwrap_or(i64::MAX).max(1)
}

/// A line such as `MemTotal:  16384256 kB`, in bytes.
fn amount(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<i64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// The size of a page, from the vector that the kernel gives every process: pairs of words.
fn page_bytes(vector: &[u8]) -> i64 {
    const PAGE_SIZE_ENTRY: u64 = 6;
    const USUAL: i64 = 4096;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    let pairs = vector.chunks_exact(16).map(|pair| pair.split_at(8));
    let found = pairs.filter(|(kind, _)| word(kind) == Some(PAGE_SIZE_ENTRY));
    let size = found.filter_map(|(_, size)| i64::try_from(word(size)?).ok()).next();
    size.unwrap_or(USUAL)
}

/// Names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// As the kernel's cgroup files name them.
fn huge_page_sizes(root: &Path) -> Vec<String> {
    let kilobytes = |name: &String| {
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        size.parse::<u64>().ok()
    };
    let sizes = names(&root.join("sys/kernel/mm/hugepages"));
    let written = sizes.iter().filter_map(kilobytes).map(|size| match size {
        size if size >= 1024 * 1024 => format!("{}GB", size / (1024 * 1024)),
        size if size >= 1024 => format!("{}MB", size / 1024),
        size => format!("{size}KB"),
    });
    written.collect()
}

/// Each size that the kernel supports, also without a page of it.
fn huge_pages(root: &Path) -> Vec<(i64, i64)> {
    let dir = root.join("sys/kernel/mm/hugepages");
    let of = |name: &String| {
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<i64>().ok()?;
        let count = std::fs::read_to_string(dir.join(name).join("nr_hugepages")).ok()?;
        let size = size.checked_mul(1024)?;
        Some((size, size.checked_mul(count.trim().parse().ok()?)?))
    };
    names(&dir).iter().filter_map(of).collect()
}

/// The size of a directory's filesystem; of its nearest existing ancestor if it does not exist yet.
pub(super) fn storage_bytes(dir: &Path) -> Option<i64> {
    let there = dir.ancestors().find(|dir| dir.exists())?;
    let size = rustix::fs::statvfs(there).ok()?;
    i64::try_from(size.f_blocks.checked_mul(size.f_frsize)?).ok()
}

/// The subordinate ids of the user `kubelet`: the same users and groups, or an error. The program
/// may use a directory service, so it has a timeout.
pub(super) async fn subordinate_users(root: &Path) -> Option<Result<String, String>> {
    const LONGEST: Duration = Duration::from_secs(20);
    let users = std::fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    if !users.lines().any(|line| line.starts_with("kubelet:")) {
        return None;
    }
    let ask = |arguments: &'static [&'static str]| async move {
        let mut program = tokio::process::Command::new("getsubids");
        let output = program.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
        match tokio::time::timeout(LONGEST, output).await {
            Err(_) => Err(format!("getsubids kubelet: no answer within {LONGEST:?}")),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(format!("getsubids kubelet: {error}")),
            Ok(Ok(output)) if !output.status.success() => {
                Err(format!("getsubids kubelet: {}", output.status))
            }
            Ok(Ok(output)) => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        }
    };
    let (users, groups) = (ask(&["kubelet"]).await, ask(&["-g", "kubelet"]).await);
    match (users, groups) {
        (Ok(None), _) | (_, Ok(None)) => None,
        (Ok(Some(users)), Ok(Some(groups))) if users == groups => Some(Ok(users)),
        (Ok(_), Ok(_)) => {
            Some(Err("mismatched subuids and subgids for user \"kubelet\"".to_owned()))
        }
        (Err(why), _) | (_, Err(why)) => Some(Err(why)),
    }
}

fn thermal_throttle_paths(root: &Path) -> Vec<String> {
    let dir = Path::new("sys/devices/system/cpu");
    let found = names(&root.join(dir)).into_iter().filter_map(|name| {
        let path = dir.join(&name).join("thermal_throttle");
        let is_cpu = name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
        (is_cpu && root.join(&path).is_dir()).then(|| format!("/{}", path.display()))
    });
    found.collect()
}

/// The addresses from which this machine would reach others, one per family. Nothing is sent.
pub(super) fn addresses() -> Vec<IpAddr> {
    // Documentation addresses: the kernel only looks up its routes.
    let far = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let own = far.iter().filter_map(|(own, far)| {
        let socket = UdpSocket::bind(own).ok()?;
        socket.connect(far).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    own.filter(|ip| !ip.is_unspecified() && !ip.is_loopback()).collect()
}

/// The node's name: `configured`, or the machine's, in lower case.
pub(crate) fn node_name(configured: &str) -> String {
    let name = match configured.trim() {
        "" => rustix::system::uname().nodename().to_string_lossy().trim().to_owned(),
        configured => configured.to_owned(),
    };
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_machine_are_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:       2048 kB\nSwapTotal:         0 kB\n");
        write("proc/cpuinfo", "processor\t: 0\nmodel\t: x\nprocessor\t: 1\n");
        for size in ["2048kB", "1048576kB"] {
            let count = if size == "2048kB" { "3\n" } else { "0\n" };
            write(&format!("sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages"), count);
        }
        write("sys/devices/system/cpu/cpu0/thermal_throttle/x", "");
        write("sys/devices/system/cpu/cpufreq/x", "");
        write("sys/devices/system/cpu/online", "0-1\n");
        write("sys/module/apparmor/parameters/enabled", "Y\n");
        write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        write("proc/sys/kernel/threads-max", "15710\n");
        assert!(!read(root.path()).is_app_armor_on, "the kernel's own files are not there");
        write("sys/kernel/security/apparmor/profiles", "");
        let without_swap = read(root.path());
        write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "");
        let found = read(root.path());
        assert!(found.can_limit_swap && !without_swap.can_limit_swap);
        assert_eq!((found.processors, found.memory_bytes, found.swap_bytes), (2, 2 << 20, 0));
        assert_eq!((found.online.to_string().as_str(), found.most_tasks), ("0-1", Some(15710)));
        assert_eq!((found.kernel, found.is_app_armor_on), (Some((6, 8)), true));
        assert_eq!(found.huge_page_sizes, ["1GB", "2MB"]);
        assert_eq!(found.huge_pages, [(1 << 30, 0), (2 << 20, 6 << 20)]);
        let here = storage_bytes(&root.path().join("not/there/yet")).unwrap();
        assert!(here > 0);
        assert_eq!(found.thermal_throttle_paths, ["/sys/devices/system/cpu/cpu0/thermal_throttle"]);
        let nothing = read(&root.path().join("none"));
        let least = MachineSize { processors: 1, page_bytes: 4096, ..MachineSize::default() };
        assert_eq!(nothing, least);
        let words = [3u64, 0, 6, 65536, 0, 0].map(u64::to_ne_bytes).concat();
        assert_eq!(page_bytes(&words), 65536);
    }

    #[test]
    fn a_configured_node_name_wins() {
        assert_eq!(node_name(" Node-1 "), "node-1");
        assert!(!node_name("").is_empty());
    }
}
