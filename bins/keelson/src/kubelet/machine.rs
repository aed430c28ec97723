//! What this machine is, as far as running pods needs it.
//!
//! Rule: read beneath `root`, so that a folder of files stands for a machine in tests; what cannot
//! be read is absent or zero, never invented. The node's addresses are asked of the kernel's routes.

use node_policy::admission::kernel_version;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MachineSize {
    pub(super) processors: i64,
    pub(super) memory_bytes: i64,
    pub(super) swap_bytes: i64,
    pub(super) huge_page_sizes: Vec<String>,
    pub(super) thermal_throttle_paths: Vec<String>,
    pub(super) is_selinux_on: bool,
    pub(super) is_app_armor_on: bool,
    /// The first two numbers of the kernel's release.
    pub(super) kernel: Option<(u32, u32)>,
    pub(super) page_bytes: i64,
}

pub(super) fn read(root: &Path) -> MachineSize {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let memory = text("proc/meminfo");
    MachineSize {
        processors: processors(&text("proc/cpuinfo")),
        memory_bytes: amount(&memory, "MemTotal:"),
        swap_bytes: amount(&memory, "SwapTotal:"),
        huge_page_sizes: huge_page_sizes(root),
        thermal_throttle_paths: thermal_throttle_paths(root),
        is_selinux_on: root.join("sys/fs/selinux/enforce").exists(),
        is_app_armor_on: root.join("sys/kernel/security/apparmor").exists()
            && text("sys/module/apparmor/parameters/enabled").starts_with('Y'),
        kernel: kernel_version(&text("proc/sys/kernel/osrelease")),
        page_bytes: page_bytes(&std::fs::read(root.join("proc/self/auxv")).unwrap_or_default()),
    }
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

/// Names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
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

fn thermal_throttle_paths(root: &Path) -> Vec<String> {
    let folder = Path::new("sys/devices/system/cpu");
    let found = names(&root.join(folder)).into_iter().filter_map(|name| {
        let path = folder.join(&name).join("thermal_throttle");
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

/// The node's name: what was said, or the machine's, in small letters.
pub(super) fn node_name(said: &str) -> String {
    let name = match said.trim() {
        "" => rustix::system::uname().nodename().to_string_lossy().trim().to_owned(),
        said => said.to_owned(),
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
            write(&format!("sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages"), "0");
        }
        write("sys/devices/system/cpu/cpu0/thermal_throttle/x", "");
        write("sys/devices/system/cpu/cpufreq/x", "");
        write("sys/module/apparmor/parameters/enabled", "Y\n");
        write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        assert!(!read(root.path()).is_app_armor_on, "the kernel's own files are not there");
        write("sys/kernel/security/apparmor/profiles", "");
        let found = read(root.path());
        assert_eq!((found.processors, found.memory_bytes, found.swap_bytes), (2, 2 << 20, 0));
        assert_eq!((found.kernel, found.is_app_armor_on), (Some((6, 8)), true));
        assert_eq!(found.huge_page_sizes, ["1GB", "2MB"]);
        assert_eq!(found.thermal_throttle_paths, ["/sys/devices/system/cpu/cpu0/thermal_throttle"]);
        let nothing = read(&root.path().join("none"));
        let least = MachineSize { processors: 1, page_bytes: 4096, ..MachineSize::default() };
        assert_eq!(nothing, least);
        let words = [3u64, 0, 6, 65536, 0, 0].map(u64::to_ne_bytes).concat();
        assert_eq!(page_bytes(&words), 65536);
    }

    #[test]
    fn a_name_that_was_said_counts() {
        assert_eq!(node_name(" Node-1 "), "node-1");
        assert!(!node_name("").is_empty());
    }
}
