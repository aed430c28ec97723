//! PID 1 of a bed: makes the namespaces look like a machine, starts the command, reaps orphans, and
//! passes the command's status on.
//!
//! Rule: what a part writes to `/run`, `/var`, `/etc`, `/usr` or a cgroup goes to the bed's own
//! directory and cgroups. When init ends the bed ends: the kernel kills what runs in its PID
//! namespace.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use mount_table::MountTable;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use rustix::system::sethostname;

use super::cgroups::{self, BedCgroupLayout, CgroupHierarchy};
use super::handover::{self, BedRole, BedSpec};
use super::inside::{DIR, ENTERED, TEMPORARY};
use super::{EXIT_NO_BED, network};

/// Kernel file systems below `/sys` that a new sysfs would hide and programs ask for.
const BELOW_SYS: [(&str, &str); 2] =
    [("securityfs", "/sys/kernel/security"), ("bpf", "/sys/fs/bpf")];

/// Runs init until the bed ends.
pub(super) fn run(spec: &BedSpec) -> ! {
    let status = match run_init(spec) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("no bed: {error:#}");
            EXIT_NO_BED
        }
    };
    std::process::exit(status)
}

fn run_init(spec: &BedSpec) -> Result<i32> {
    watch_lifeline(handover::take_descriptor()?);
    prepare_root(spec)?;
    let (program, arguments) = spec.command.split_first().context("no command was given")?;
    let mut command = Command::new(program);
    command.args(arguments).env("TMPDIR", Path::new(DIR).join(TEMPORARY));
    handover::set_role(&mut command, BedRole::Inside, spec, None)?;
    let child = command.spawn().with_context(|| format!("run {program}"))?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("child's id")?;
    let status = reap_until(child)?;
    if status == 0 && spec.must_enter && !Path::new(DIR).join(ENTERED).exists() {
        anyhow::bail!("the test ended well without reaching its body: is {} its name?", spec.name);
    }
    Ok(status)
}

/// Ends init when the warden's end of the lifeline closes: covers a warden that died before the
/// parent death signal was set.
fn watch_lifeline(lifeline: OwnedFd) {
    thread::spawn(move || {
        loop {
            let mut watched = [PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::IN)];
            if poll(&mut watched, None).is_ok_and(|ready| ready > 0) {
                std::process::exit(EXIT_NO_BED);
            }
        }
    });
}

fn reap_until(child: Pid) -> Result<i32> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == child => return Ok(shell_status(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the command"),
        }
    }
}

fn shell_status(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|one| 128 + one)).unwrap_or(-1)
}

fn prepare_root(spec: &BedSpec) -> Result<()> {
    let name = format!("bed-{}", spec.identity);
    sethostname(name.as_bytes()).context("set the host name")?;
    // Read before the new /sys hides them.
    let (layout, hierarchies) = cgroups::of_a_bed()?;
    let dir = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::DIRECTORY.bits().cast_signed())
        .open(&spec.dir)
        .with_context(|| format!("open {}", spec.dir.display()))?;
    // Nothing from here may reach the host's mount table.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("part from the host's mounts")?;
    replace("proc", "/proc")?;
    mount_sys(layout, &hierarchies)?;
    mount_null_device()?;
    mount_new("tmpfs", "/dev/shm", "mode=1777")?;
    mount_dirs(&dir)?;
    write_etc(&name)?;
    network::bring_up()?;
    // Mounts of one part (a volume) must be seen by another (a container runtime).
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)
        .context("share mounts inside the bed")
}

/// Gives the bed its own `/dev/null`, so that a test or part that changes its mode does not change
/// the host's.
fn mount_null_device() -> Result<()> {
    let (table, node) = ("/dev/shm", "/dev/shm/null");
    mount_new("tmpfs", table, "mode=755")?;
    let number = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, node, FileType::CharacterDevice, Mode::from_raw_mode(0o666), number)
        .context("make a null device")?;
    fs::set_permissions(node, fs::Permissions::from_mode(0o666))
        .context("open a null device to all")?;
    mount_bind(node, "/dev/null").context("bind a null device")?;
    unmount(table, UnmountFlags::DETACH).with_context(|| format!("unmount {table}"))
}

fn mount_new(kind: &str, target: &str, options: &str) -> Result<()> {
    let options = std::ffi::CString::new(options).context("mount options")?;
    mount(kind, target, kind, MountFlags::empty(), options.as_c_str())
        .with_context(|| format!("mount {kind} on {target} ({options:?})"))
}

/// Unmounts the host's mount before the bed's own is made: programs look for cgroups in the mount
/// table, which still lists a hidden mount.
fn replace(kind: &str, target: &str) -> Result<()> {
    match unmount(target, UnmountFlags::DETACH) {
        // Not a mount of its own here.
        Ok(()) | Err(rustix::io::Errno::INVAL) => mount_new(kind, target, ""),
        Err(error) => Err(error).with_context(|| format!("take the host's {target} away")),
    }
}

/// A new sysfs shows this network namespace's links; cgroups show the bed's own as their roots.
fn mount_sys(layout: BedCgroupLayout, hierarchies: &[CgroupHierarchy]) -> Result<()> {
    let mounts = MountTable::read().context(mount_table::PATH)?;
    replace("sysfs", "/sys")?;
    for (kind, target) in BELOW_SYS {
        if mounts.mounts().any(|mount| mount.point == Path::new(target)) {
            mount_new(kind, target, "")?;
        }
    }
    if layout == BedCgroupLayout::V2 {
        return mount_new("cgroup2", "/sys/fs/cgroup", "");
    }
    mount_new("tmpfs", "/sys/fs/cgroup", "mode=755")?;
    for hierarchy in hierarchies {
        let name = hierarchy.mount_point.file_name().context("a hierarchy's mount point")?;
        let target = Path::new("/sys/fs/cgroup").join(name);
        fs::create_dir(&target).with_context(|| format!("make {}", target.display()))?;
        mount_new("cgroup", &target.to_string_lossy(), &hierarchy.controllers)?;
        link_joint_controllers(hierarchy, &target)?;
    }
    Ok(())
}

/// Where controllers share a hierarchy (`cpu,cpuacct`), each also has a link of its own name.
fn link_joint_controllers(hierarchy: &CgroupHierarchy, target: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else { return Ok(()) };
    for controller in hierarchy.controllers.split(',') {
        if controller.starts_with("name=") || parent.join(controller).exists() {
            continue;
        }
        symlink(name, parent.join(controller))
            .with_context(|| format!("link {controller} to {}", target.display()))?;
    }
    Ok(())
}

/// `/run` is new; `/var`, `/etc` and `/usr` are overlays whose writes go to the bed's directory.
fn mount_dirs(dir: &File) -> Result<()> {
    mount_new("tmpfs", "/run", "mode=755")?;
    let make =
        |path: &Path| fs::create_dir_all(path).with_context(|| format!("make {}", path.display()));
    make(Path::new(DIR))?;
    mount_bind(format!("/proc/self/fd/{}", dir.as_raw_fd()), DIR)
        .with_context(|| format!("mount the bed's folder on {DIR}"))?;
    make(Path::new("/run/lock"))?;
    for covered in ["var", "etc", "usr"] {
        let layers = Path::new(DIR).join(".layers").join(covered);
        let (upper, work) = (layers.join("upper"), layers.join("work"));
        make(&upper)?;
        make(&work)?;
        let options =
            format!("lowerdir=/{covered},upperdir={},workdir={}", upper.display(), work.display());
        mount_new("overlay", &format!("/{covered}"), &options)?;
    }
    // A kubelet's root must be a plain file system: runtimes put overlays of their own on it.
    let kubelet = Path::new("/var/lib/kubelet");
    let real: PathBuf = Path::new(DIR).join("var-lib-kubelet");
    make(&real)?;
    make(kubelet)?;
    mount_bind(&real, kubelet).with_context(|| format!("mount {}", kubelet.display()))
}

/// Makes names resolve the same way on every machine: by `/etc/hosts` alone.
fn write_etc(host_name: &str) -> Result<()> {
    let hosts =
        format!("127.0.0.1 localhost\n::1 localhost\n{} {host_name}\n", network::NODE_ADDRESS);
    for (path, text) in
        [("/etc/hosts", hosts.as_str()), ("/etc/resolv.conf", "nameserver 127.0.0.1\n")]
    {
        // It may be a link into the /run that is hidden now.
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("remove {path}")),
        }
        fs::write(path, text).with_context(|| format!("write {path}"))?;
    }
    Ok(())
}
