//! The machine as the node's status describes it.
//!
//! Rule: read beneath `root`, so that a directory of files stands for a machine in tests. Name
//! services and file systems may hang: each read has a thread of its own and a deadline, and while
//! one hangs the node reports what was read before.
//!
//! upstream: cadvisor's machine package, pkg/kubelet/nodestatus/setters.go

use super::machine;
use host_paths::BlockingPool;
use ports::{MachineFacts, MachineInfo, PortFuture};
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Names are looked up again after this time: a lookup may use servers elsewhere.
const NAMES_TTL: Duration = Duration::from_secs(60);

/// This machine.
pub(super) struct HostMachineInfo {
    root_dir: PathBuf,
    node_name: String,
    files: BlockingPool,
    names: BlockingPool,
    before: Mutex<LastKnown>,
}

#[derive(Default)]
struct LastKnown {
    machine: Option<MachineFacts>,
    names: Option<(Instant, Vec<IpAddr>)>,
}

impl HostMachineInfo {
    pub(super) fn new(root_dir: &Path, node_name: &str) -> Self {
        Self {
            root_dir: root_dir.to_owned(),
            node_name: node_name.to_owned(),
            files: BlockingPool::new("machine-files", 1, READ_TIMEOUT),
            names: BlockingPool::new("machine-names", 1, READ_TIMEOUT),
            before: Mutex::default(),
        }
    }

    async fn by_name(&self) -> Vec<IpAddr> {
        let known = self.before.lock().unwrap_or_else(PoisonError::into_inner).names.clone();
        if let Some((at, names)) = &known
            && at.elapsed() < NAMES_TTL
        {
            return names.clone();
        }
        let name = self.node_name.clone();
        let Ok(found) = self.names.run(move || look_up(&name)).await else {
            return known.map(|(_, names)| names).unwrap_or_default();
        };
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.names = Some((Instant::now(), found.clone()));
        found
    }
}

impl MachineInfo for HostMachineInfo {
    fn read(&self) -> PortFuture<'_, Option<MachineFacts>> {
        Box::pin(async move {
            let root_dir = self.root_dir.clone();
            let files = self.files.run(move || read(Path::new("/"), &root_dir)).await;
            let by_name = self.by_name().await;
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(machine) = files {
                before.machine = Some(machine);
            }
            before.machine.clone().map(|machine| MachineFacts { by_name, ..machine })
        })
    }
}

fn look_up(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs();
    found.map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

fn read(root: &Path, root_dir: &Path) -> MachineFacts {
    let size = machine::read(root);
    let text = |path: &str| {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        text.trim().to_owned()
    };
    let first = |paths: &[&str]| {
        paths.iter().map(|path| text(path)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let routes = machine::addresses();
    MachineFacts {
        cpus: size.processors,
        memory: size.memory_bytes,
        swap: size.swap_bytes,
        huge_pages: machine::huge_page_resources(&size),
        machine_id: first(&["etc/machine-id", "var/lib/dbus/machine-id"]),
        system_uuid: first(&[
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
            "etc/machine-id",
        ]),
        boot_id: text("proc/sys/kernel/random/boot_id"),
        kernel_version: text("proc/sys/kernel/osrelease"),
        os_image: os_image(&first(&["etc/os-release", "usr/lib/os-release"])),
        ephemeral_storage: machine::storage_bytes(root_dir),
        addresses: interface_addresses(),
        by_name: Vec::new(),
        default_v4: routes.iter().find(|ip| ip.is_ipv4()).copied(),
        default_v6: routes.iter().find(|ip| ip.is_ipv6()).copied(),
    }
}

/// The `PRETTY_NAME` of `os-release`.
fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map(|name| name.trim().trim_matches(['"', '\'']).to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "Linux".to_owned())
}

fn interface_addresses() -> BTreeSet<IpAddr> {
    let addresses = netlink::NetlinkSocket::routes().and_then(|mut socket| socket.addresses());
    match addresses {
        Ok(addresses) => addresses.into_iter().map(|(_, address, _)| address).collect(),
        Err(error) => {
            tracing::warn!(err = %error, "The addresses of this machine cannot be listed");
            BTreeSet::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:       2048 kB\nSwapTotal:      1024 kB\n");
        write("proc/sys/kernel/random/boot_id", "b-1\n");
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("var/lib/dbus/machine-id", "m-1\n");
        write("usr/lib/os-release", "ID=x\nPRETTY_NAME=\"An OS 12\"\n");
        write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        let facts = read(root.path(), root.path());
        assert_eq!((facts.memory, facts.swap), (2 << 20, 1 << 20));
        assert_eq!((facts.machine_id.as_str(), facts.boot_id.as_str()), ("m-1", "b-1"));
        assert_eq!(facts.system_uuid, "");
        assert_eq!((facts.kernel_version.as_str(), facts.os_image.as_str()), ("6.1.0", "An OS 12"));
        assert_eq!(facts.huge_pages.get("hugepages-2Mi"), Some(&(6 << 20)));
        assert!(facts.ephemeral_storage.is_some_and(|bytes| bytes > 0));
        assert!(facts.addresses.contains(&IpAddr::from([127, 0, 0, 1])), "{:?}", facts.addresses);
        write("etc/machine-id", "m-2\n");
        let facts = read(root.path(), root.path());
        assert_eq!((facts.machine_id.as_str(), facts.system_uuid.as_str()), ("m-2", "m-2"));
        assert_eq!(os_image("ID=x"), "Linux");
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_leaves_the_rest() {
        let machine = HostMachineInfo::new(Path::new("/"), "no-such-name.invalid");
        let facts = machine.read().await.unwrap();
        assert_eq!(facts.by_name, Vec::<IpAddr>::new());
        assert!(facts.cpus > 0 && facts.memory > 0);
    }
}
