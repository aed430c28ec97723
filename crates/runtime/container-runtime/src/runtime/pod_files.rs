//! The files that a pod's containers share: hostname, hosts, resolv.conf, shared memory.
//!
//! Rule: containers may write to all of them, so all of them are on one small file system of the
//! pod's own, and not on that of the state directory, which is the host's `/run`. One for all needs
//! no more mounts than shared memory alone, and filling it harms only the pod.
//!
//! upstream: containerd internal/cri/server/podsandbox/sandbox_run_linux.go (setupSandboxFiles)

use std::ffi::CString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cri_wire::v1;
use mount_table::MountTable;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::Runtime;
use crate::durable;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::specification::{Labels, PodPlaces, Wish};

/// The usual size of shared memory; the files beside it are a few pages.
const SIZE: &str = "mode=0711,size=65536k";
/// An upper limit of the host's files that are copied.
const LARGEST: u64 = 1 << 20;

impl Runtime {
    pub(super) async fn make_pod_files(
        &self,
        sandbox: &str,
        config: &v1::PodSandboxConfig,
    ) -> Result<()> {
        let (places, machine, config) =
            (self.places(sandbox), std::sync::Arc::clone(&self.machine), config.clone());
        let id = sandbox.to_owned();
        blocking(move || {
            let labels = machine.selinux.labels(&Wish::of_pod(&id, &config))?;
            make(&places, &machine.hostname, &config, &labels)
        })
        .await
    }
}

fn make(
    places: &PodPlaces,
    of_machine: &str,
    config: &v1::PodSandboxConfig,
    labels: &Labels,
) -> Result<()> {
    let folder = places.folder();
    durable::make_folder(folder)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("shm", folder, "tmpfs", flags, options(labels)?.as_c_str())
        .doing(format!("mounting what the pod shares at {}", folder.display()))?;
    let hostname = match config.hostname.as_str() {
        "" => of_machine,
        name => name,
    };
    let owner = root_of_pod(config);
    let write = |path: &Path, bytes: &[u8]| write(path, bytes, owner);
    write(&places.hostname(), format!("{hostname}\n").as_bytes())?;
    write(&places.hosts(), &of_host("/etc/hosts")?)?;
    let resolver = match &config.dns_config {
        Some(dns) => resolver(dns)?,
        None => String::new(),
    };
    if resolver.is_empty() {
        write(&places.resolver(), &of_host("/etc/resolv.conf")?)?;
    } else {
        write(&places.resolver(), resolver.as_bytes())?;
    }
    let options = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = options.and_then(|security| security.namespace_options.as_ref());
    if options.is_some_and(|options| options.ipc() == v1::NamespaceMode::Node) {
        return Ok(());
    }
    let place = places.shared_memory();
    durable::make_folder(&place)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o1777))
        .doing(format!("mode of {}", place.display()))
}

/// Mount options of the pod's shared file system.
fn options(labels: &Labels) -> Result<CString> {
    let label = match labels.file.as_str() {
        "" => String::new(),
        label => format!(",context=\"{label}\""),
    };
    CString::new(format!("{SIZE}{label}"))
        .map_err(|_| Failure::plain("the label of the pod's files has a zero byte in it"))
}

/// The ids of the pod's root on the host. Files that belong to it need no id-mapped mount, which
/// the state directory's file system (a tmpfs) supports only since Linux 6.3.
fn root_of_pod(config: &v1::PodSandboxConfig) -> Option<(u32, u32)> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    let wish = security.namespace_options.as_ref()?.userns_options.as_ref()?;
    if wish.mode() != v1::NamespaceMode::Pod {
        return None;
    }
    let root = |ranges: &[v1::IdMapping]| {
        ranges.iter().find(|range| range.container_id == 0).map(|range| range.host_id)
    };
    root(&wish.uids).zip(root(&wish.gids))
}

fn write(path: &Path, bytes: &[u8], owner: Option<(u32, u32)>) -> Result<()> {
    fs::write(path, bytes).doing(format!("writing {}", path.display()))?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::lchown(path, Some(user), Some(group))
            .doing(format!("giving {} to the pod", path.display()))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        .doing(format!("mode of {}", path.display()))
}

/// A file of the host; empty if it does not exist.
fn of_host(path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => {
            file.take(LARGEST).read_to_end(&mut bytes).doing(format!("reading {path}"))?;
            Ok(bytes)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(bytes),
        Err(error) => Err(error).doing(format!("opening {path}")),
    }
}

/// upstream: containerd parseDNSOptions
fn resolver(dns: &v1::DnsConfig) -> Result<String> {
    const MOST_SEARCHES: usize = 32;
    if dns.searches.len() > MOST_SEARCHES {
        return Err(Failure::invalid(format!(
            "DNS has {} search domains; at most {MOST_SEARCHES}",
            dns.searches.len()
        )));
    }
    let lines = dns.servers.iter().chain(&dns.searches).chain(&dns.options);
    if lines.into_iter().any(|word| word.contains('\n')) {
        return Err(Failure::invalid("a DNS setting has a line break in it"));
    }
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    Ok(text)
}

/// Unmounts everything at and below one of our directories, then removes it.
pub(super) fn remove_with_mounts(path: &Path) -> Result<()> {
    let table = MountTable::read().doing("reading the mount table")?;
    for place in table.beneath(path) {
        match unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => {
                return Err(error).doing(format!("unmounting {}", place.display()));
            }
        }
    }
    durable::remove_tree(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs root, as the runtime does.
    #[test]
    fn what_a_pod_shares_has_a_limit_and_goes_with_its_mount() {
        // The mount table escapes a space as an octal number.
        let bed = tempfile::tempdir().unwrap();
        let pod = bed.path().canonicalize().unwrap().join("a pod");
        let places = PodPlaces::new(&pod.join("shared"));
        make(&places, "host", &v1::PodSandboxConfig::default(), &Labels::default()).unwrap();
        assert_eq!(fs::read(places.hostname()).unwrap(), b"host\n");
        let mode = fs::metadata(places.shared_memory()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777);
        for path in [places.hostname(), places.shared_memory().join("file")] {
            let filled = fs::write(&path, vec![7; 80 << 20]).unwrap_err();
            assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull, "{}", path.display());
            fs::write(&path, "").unwrap();
        }
        remove_with_mounts(&pod).unwrap();
        assert!(!pod.exists());
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(r"/a\040pod"), "{table}");
    }

    #[test]
    fn a_resolver_has_its_lines_in_order_and_nothing_smuggled_in() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let dns = v1::DnsConfig {
            servers: texts(&["10.0.0.10", "10.0.0.11"]),
            searches: texts(&["a.svc", "svc"]),
            options: texts(&["ndots:5"]),
        };
        let expected =
            "search a.svc svc\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n";
        assert_eq!(resolver(&dns).unwrap(), expected);
        let odd = v1::DnsConfig { servers: texts(&["1.1.1.1\nx"]), ..Default::default() };
        assert!(resolver(&odd).is_err());
        assert_eq!(resolver(&v1::DnsConfig::default()).unwrap(), "");
    }
}
