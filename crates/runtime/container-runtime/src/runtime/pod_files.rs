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
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::specification::{LabelRequest, PodPaths, SelinuxLabels};

/// The usual size of shared memory; the files beside it are a few pages.
const SIZE: &str = "mode=0711,size=65536k";
/// An upper limit of the host's files that are copied.
const MAX_SIZE: u64 = 1 << 20;

impl Runtime {
    pub(super) async fn create_pod_files(
        &self,
        sandbox: &str,
        config: &v1::PodSandboxConfig,
    ) -> Result<()> {
        let (pod_paths, machine, config) =
            (self.pod_paths(sandbox), std::sync::Arc::clone(&self.machine), config.clone());
        let id = sandbox.to_owned();
        blocking(move || {
            let labels = machine.selinux.labels(&LabelRequest::of_pod(&id, &config))?;
            make(&pod_paths, &machine.hostname, &config, &labels)
        })
        .await
    }
}

fn make(
    pod_paths: &PodPaths,
    of_machine: &str,
    config: &v1::PodSandboxConfig,
    labels: &SelinuxLabels,
) -> Result<()> {
    let dir = pod_paths.dir();
    durable::make_dir(dir)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("shm", dir, "tmpfs", flags, options(labels)?.as_c_str())
        .doing(format!("mounting what the pod shares at {}", dir.display()))?;
    let hostname = match config.hostname.as_str() {
        "" => of_machine,
        name => name,
    };
    let owner = pod_root_ids(config);
    let write = |path: &Path, bytes: &[u8]| write(path, bytes, owner);
    write(&pod_paths.hostname(), format!("{hostname}\n").as_bytes())?;
    write(&pod_paths.hosts(), &read_host_file("/etc/hosts")?)?;
    let resolver = match &config.dns_config {
        Some(dns) => resolver(dns)?,
        None => String::new(),
    };
    if resolver.is_empty() {
        write(&pod_paths.resolver(), &read_host_file("/etc/resolv.conf")?)?;
    } else {
        write(&pod_paths.resolver(), resolver.as_bytes())?;
    }
    let options = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = options.and_then(|security| security.namespace_options.as_ref());
    if options.is_some_and(|options| options.ipc() == v1::NamespaceMode::Node) {
        return Ok(());
    }
    let place = pod_paths.shared_memory();
    durable::make_dir(&place)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o1777))
        .doing(format!("mode of {}", place.display()))
}

/// Mount options of the pod's shared file system.
fn options(labels: &SelinuxLabels) -> Result<CString> {
    let label = match labels.file.as_str() {
        "" => String::new(),
        label => format!(",context=\"{label}\""),
    };
    CString::new(format!("{SIZE}{label}"))
        .map_err(|_| CriError::plain("the label of the pod's files has a zero byte in it"))
}

/// The ids of the pod's root on the host. Files that belong to it need no id-mapped mount, which
/// the state directory's file system (a tmpfs) supports only since Linux 6.3.
fn pod_root_ids(config: &v1::PodSandboxConfig) -> Option<(u32, u32)> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    let userns = security.namespace_options.as_ref()?.userns_options.as_ref()?;
    if userns.mode() != v1::NamespaceMode::Pod {
        return None;
    }
    let root = |ranges: &[v1::IdMapping]| {
        ranges.iter().find(|range| range.container_id == 0).map(|range| range.host_id)
    };
    root(&userns.uids).zip(root(&userns.gids))
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
fn read_host_file(path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => {
            file.take(MAX_SIZE).read_to_end(&mut bytes).doing(format!("reading {path}"))?;
            Ok(bytes)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(bytes),
        Err(error) => Err(error).doing(format!("opening {path}")),
    }
}

/// upstream: containerd parseDNSOptions
fn resolver(dns: &v1::DnsConfig) -> Result<String> {
    const MAX_SEARCHES: usize = 32;
    if dns.searches.len() > MAX_SEARCHES {
        return Err(CriError::invalid(format!(
            "DNS has {} search domains; at most {MAX_SEARCHES}",
            dns.searches.len()
        )));
    }
    let lines = dns.servers.iter().chain(&dns.searches).chain(&dns.options);
    if lines.into_iter().any(|word| word.contains('\n')) {
        return Err(CriError::invalid("a DNS setting has a line break in it"));
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
    fn shared_pod_files_are_limited_and_removed_with_their_mount() {
        // The mount table escapes a space as an octal number.
        let bed = tempfile::tempdir().unwrap();
        let pod = bed.path().canonicalize().unwrap().join("a pod");
        let pod_paths = PodPaths::new(&pod.join("shared"));
        make(&pod_paths, "host", &v1::PodSandboxConfig::default(), &SelinuxLabels::default())
            .unwrap();
        assert_eq!(fs::read(pod_paths.hostname()).unwrap(), b"host\n");
        let mode = fs::metadata(pod_paths.shared_memory()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777);
        for path in [pod_paths.hostname(), pod_paths.shared_memory().join("file")] {
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
    fn resolv_conf_lines_are_ordered_and_cannot_be_injected() {
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
