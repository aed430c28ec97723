//! Builds the machine into the cache: packages, our own two files, kernel and disk image.
//!
//! The rule: the cache key is the whole recipe, so a changed recipe is a new machine and an
//! unchanged one costs a lookup. One builder at a time; the others wait for it. The next build
//! removes what an interrupted one left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure as require};

use super::{EmulatedMachine, mirror};
use crate::cache;
use crate::images::digest;
use crate::machine::boot::kill_with_caller;

/// What must be installed on this machine to build and boot the emulated one.
pub const HOST_PACKAGES: &[&str] = &["debootstrap", "e2fsprogs", "qemu-system-x86", "util-linux"];

const SUITE: &str = "bookworm";
const GUEST_PACKAGES: &[&str] = &[
    "apparmor",
    "ca-certificates",
    "conntrack",
    "dbus",
    "initramfs-tools",
    "iproute2",
    "iptables",
    "kmod",
    "libseccomp2",
    "linux-image-cloud-amd64",
    "lz4",
    "mount",
    "nftables",
    "procps",
    "systemd",
    "systemd-sysv",
    "udev",
    "util-linux",
];
const DISK_MB: u32 = 4096;
const BUILD: &str = include_str!("guest/build.sh");
const UNIT: &str = include_str!("guest/payload.service");
const ENTRY: &str = include_str!("guest/entry.sh");
const POLICY: &str = include_str!("guest/container.cil");

/// What confines programs in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineVariant {
    AppArmor,
    /// Debian's reference policy, permissive: it logs denials and allows everything.
    Selinux,
}

impl MachineVariant {
    fn packages(self) -> String {
        let more: &[&str] = match self {
            Self::AppArmor => &[],
            Self::Selinux => &["policycoreutils", "selinux-policy-default"],
        };
        [GUEST_PACKAGES, more].concat().join(",")
    }

    pub(super) fn kernel_arguments(self) -> &'static str {
        match self {
            Self::AppArmor => "",
            Self::Selinux => "security=selinux selinux=1 enforcing=0",
        }
    }
}

/// The machine, from the cache or built into it (about two minutes, with the package mirror).
///
/// # Errors
/// When a program of [`HOST_PACKAGES`] is missing, or the build fails; the log's path is named.
pub fn ensure() -> Result<EmulatedMachine> {
    ensure_variant(MachineVariant::AppArmor)
}

/// The same for a variant of it.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_variant(variant: MachineVariant) -> Result<EmulatedMachine> {
    require!(
        std::env::consts::ARCH == "x86_64",
        "the cgroup v2 machine is made for x86_64 only, this is {}",
        std::env::consts::ARCH
    );
    require_programs(&["qemu-system-x86_64", "mkfs.ext4", "unshare"])?;
    let machines = cache::root()?.join("machines");
    let dir = machines.join(format!("{SUITE}-{}", &key(variant)[..16]));
    if dir.is_dir() {
        return Ok(EmulatedMachine { dir, variant });
    }
    fs::create_dir_all(&machines).with_context(|| format!("making {}", machines.display()))?;
    let lock_path = machines.join("lock");
    let lock = File::create(&lock_path).with_context(|| lock_path.display().to_string())?;
    lock.lock().with_context(|| format!("locking {}", lock_path.display()))?;
    if !dir.is_dir() {
        remove_unfinished(&machines)?;
        build(&machines, &dir, variant)?;
    }
    Ok(EmulatedMachine { dir, variant })
}

/// A digest over everything that shapes the machine, except the mirror's state.
fn key(variant: MachineVariant) -> String {
    let recipe = [SUITE, &variant.packages(), &DISK_MB.to_string(), BUILD, UNIT, ENTRY, POLICY];
    digest(recipe.join("\0").as_bytes()).trim_start_matches("sha256:").to_owned()
}

fn build(machines: &Path, dir: &Path, variant: MachineVariant) -> Result<()> {
    require_programs(&["debootstrap"])?;
    let log_path = machines.join("build.log");
    let log = File::create(&log_path).with_context(|| log_path.display().to_string())?;
    let unfinished = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(machines)
        .with_context(|| format!("a folder in {}", machines.display()))?;
    eprintln!("machine: building the cgroup v2 machine, about two minutes");
    let started = Instant::now();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", BUILD])
        .env("OUT", unfinished.path())
        .env("SUITE", SUITE)
        .env("MIRROR", mirror::serving(SUITE)?)
        .env("PACKAGES", variant.packages())
        .env("SIZE_MB", DISK_MB.to_string())
        .env("UNIT", UNIT)
        .env("ENTRY", ENTRY)
        .env("POLICY", POLICY)
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if let Some(proxy) = apt_proxy() {
        command.env("http_proxy", proxy);
    }
    let status = kill_with_caller(&mut command).status().context("starting unshare")?;
    require!(status.success(), "building the machine: {status}, see {}", log_path.display());
    fs::rename(unfinished.path(), dir)
        .with_context(|| format!("placing the machine at {}", dir.display()))?;
    // The log of a successful build is not needed.
    let _ = fs::remove_file(&log_path);
    eprintln!("machine: built in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn remove_unfinished(machines: &Path) -> Result<()> {
    for entry in fs::read_dir(machines)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(".building-") {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The proxy for apt, whose configuration debootstrap does not read.
fn apt_proxy() -> Option<String> {
    let output = Command::new("apt-config")
        .args(["dump", "--no-empty", "--format", "%v%n", "Acquire::http::Proxy"])
        .output()
        .ok()?;
    let proxy = String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_owned();
    (!proxy.is_empty() && proxy != "DIRECT").then_some(proxy)
}

fn require_programs(programs: &[&str]) -> Result<()> {
    let path = search_path();
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !path.split(':').any(|dir| Path::new(dir).join(program).exists()))
        .collect();
    require!(
        missing.is_empty(),
        "{} not found; the cgroup v2 machine needs the Debian packages {}",
        missing.join(", "),
        HOST_PACKAGES.join(", ")
    );
    Ok(())
}

/// The caller's search path with the directories of system programs, which a plain user's may lack.
pub(super) fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// The path of a file in the machine's directory.
pub(super) fn file(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    require!(path.is_file(), "{} is missing: remove its folder to build again", path.display());
    Ok(path)
}
