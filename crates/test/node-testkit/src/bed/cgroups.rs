//! A bed's cgroups. On the host: the mounted hierarchies, a cgroup in each, and their removal.
//! Inside the bed: the mounts that make them look like a machine's own.
//!
//! Rule: a bed's cgroup is below the caller's own, so that limits on the caller hold for the bed.
//! On a hybrid machine the bed is plain v1: without `unified` inside, no program takes it for v2.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mount_table::{MountInfo, MountTable};

/// The prefix of every bed's cgroup.
pub(crate) const PREFIX: &str = "keelson-bed-";
/// On v2 a cgroup with children may hold no processes, so the bed's own processes stay in a leaf.
const LEAF: &str = "init";
/// How long the kernel may take to release a cgroup whose processes have ended.
const REMOVAL: Duration = Duration::from_secs(10);

/// One hierarchy that is mounted on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupHierarchy {
    /// As in `/proc/self/cgroup`: `memory`, `cpu,cpuacct`, `name=systemd`; empty for v2.
    pub controllers: String,
    pub mount_point: PathBuf,
    /// This process's cgroup in it.
    pub own: PathBuf,
}

/// The cgroup layout that programs in a bed see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BedCgroupLayout {
    V1,
    V2,
}

/// Every mounted hierarchy.
pub(crate) fn mounted() -> Result<Vec<CgroupHierarchy>> {
    let own = fs::read("/proc/self/cgroup").context("/proc/self/cgroup")?;
    let table = MountTable::read().context(mount_table::PATH)?;
    let found = parse(&String::from_utf8_lossy(&own), &table);
    if found.is_empty() {
        bail!("no cgroup hierarchy is mounted on this machine");
    }
    Ok(found)
}

/// The hierarchies that a bed gets: the v1 ones if any controller is on v1.
pub(super) fn of_a_bed() -> Result<(BedCgroupLayout, Vec<CgroupHierarchy>)> {
    let all = mounted()?;
    let has_controller = |one: &CgroupHierarchy| {
        !one.controllers.is_empty() && !one.controllers.starts_with("name=")
    };
    if all.iter().any(has_controller) {
        Ok((
            BedCgroupLayout::V1,
            all.into_iter().filter(|one| !one.controllers.is_empty()).collect(),
        ))
    } else {
        Ok((
            BedCgroupLayout::V2,
            all.into_iter().filter(|one| one.controllers.is_empty()).collect(),
        ))
    }
}

pub(super) fn parse(own_cgroups: &str, table: &MountTable) -> Vec<CgroupHierarchy> {
    let mut found = Vec::new();
    for line in own_cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let Some(mount) = table.mounts().find(|one| has_controllers(one, controllers)) else {
            continue;
        };
        let mount_point = mount.point.to_path_buf();
        // A mount may show only a part of its hierarchy; what is above it cannot be reached.
        let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(path));
        let own = mount_point.join(below.strip_prefix("/").unwrap_or(below));
        found.push(CgroupHierarchy { controllers: controllers.to_owned(), mount_point, own });
    }
    found
}

/// Whether this is the mount of the hierarchy with these controllers.
fn has_controllers(mount: &MountInfo<'_>, controllers: &str) -> bool {
    if controllers.is_empty() {
        return mount.is_of_type("cgroup2");
    }
    let has = |wanted: &str| mount.options().any(|option| option == wanted);
    mount.is_of_type("cgroup") && controllers.split(',').all(has)
}

/// The cgroups that a bed will have: where it starts, and for v2 the leaf it moves to.
#[derive(Debug)]
pub(super) struct BedCgroupPlan {
    pub layout: BedCgroupLayout,
    pub roots: Vec<PathBuf>,
}

impl BedCgroupPlan {
    /// Chooses the paths without creating them: they are recorded on disk first.
    pub(super) fn plan(identity: &str) -> Result<Self> {
        let (layout, hierarchies) = of_a_bed()?;
        let roots = hierarchies
            .iter()
            .map(|hierarchy| {
                let parent = match layout {
                    BedCgroupLayout::V1 => hierarchy.own.clone(),
                    BedCgroupLayout::V2 => parent_with_controllers(hierarchy),
                };
                parent.join(format!("{PREFIX}{identity}"))
            })
            .collect();
        Ok(Self { layout, roots })
    }

    pub(super) fn create(&self) -> Result<()> {
        for root in &self.roots {
            fs::create_dir(root).with_context(|| format!("make cgroup {}", root.display()))?;
            match self.layout {
                BedCgroupLayout::V1 => copy_cpuset(root)?,
                BedCgroupLayout::V2 => {
                    let leaf = root.join(LEAF);
                    fs::create_dir(&leaf)
                        .with_context(|| format!("make cgroup {}", leaf.display()))?;
                }
            }
        }
        Ok(())
    }

    /// The `cgroup.procs` files to write to on the way into the bed: those before the cgroup
    /// namespace is created, so that the bed's cgroups become its roots, and those after.
    pub(super) fn entries(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let procs = |root: &PathBuf| root.join("cgroup.procs");
        let before = self.roots.iter().map(procs).collect();
        let after = match self.layout {
            BedCgroupLayout::V1 => Vec::new(),
            BedCgroupLayout::V2 => self.roots.iter().map(|root| procs(&root.join(LEAF))).collect(),
        };
        (before, after)
    }
}

/// A new v1 cpuset is empty, and nothing can run in it before it has cpus and memory nodes.
fn copy_cpuset(root: &Path) -> Result<()> {
    let Some(parent) = root.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let from = parent.join(file);
        if !from.exists() {
            continue;
        }
        let value = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        let to = root.join(file);
        fs::write(&to, value.trim()).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// The nearest cgroup, from our own upwards, that can give its children all of its controllers: one
/// that holds processes cannot.
fn parent_with_controllers(hierarchy: &CgroupHierarchy) -> PathBuf {
    for candidate in hierarchy.own.ancestors() {
        if !candidate.starts_with(&hierarchy.mount_point) {
            break;
        }
        if enable_controllers(candidate).is_ok() {
            return candidate.to_owned();
        }
    }
    hierarchy.mount_point.clone()
}

fn enable_controllers(cgroup: &Path) -> std::io::Result<()> {
    let available = fs::read_to_string(cgroup.join("cgroup.controllers"))?;
    let enabled = fs::read_to_string(cgroup.join("cgroup.subtree_control"))?;
    for controller in available.split_whitespace() {
        if !enabled.split_whitespace().any(|one| one == controller) {
            fs::write(cgroup.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
    }
    Ok(())
}

/// Removes a bed's cgroup with everything below it. Its processes must have been killed.
pub(super) fn remove(root: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        match remove_tree(root) {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > REMOVAL => {
                let held = fs::read_to_string(root.join("cgroup.procs")).unwrap_or_default();
                let held: Vec<_> = held.split_whitespace().collect();
                return Err(error).with_context(|| {
                    format!("remove cgroup {} (processes in it: {held:?})", root.display())
                });
            }
            // The kernel drops the last references a little after the last process has gone.
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

fn remove_tree(cgroup: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(cgroup) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}
