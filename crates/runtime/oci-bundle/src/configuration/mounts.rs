//! Mounts as in the OCI configuration.

use container_create::spec::{IdRange, MountKind, MountSpec, Propagation};

use super::{Result, UnsupportedSpec, propagation_of, unsupported};
use crate::json::{Json, Members};

pub(super) fn list(mounts: &[MountSpec]) -> Result<Vec<Json>> {
    mounts.iter().map(one).collect()
}

/// As a mount's option.
pub(super) fn propagation(number: i32) -> Result<&'static str> {
    Ok(match propagation_of(number)? {
        Propagation::Private => "rprivate",
        Propagation::Slave => "rslave",
        Propagation::Shared => "rshared",
        Propagation::Unbindable => "runbindable",
    })
}

fn one(mount: &MountSpec) -> Result<Json> {
    let kind = MountKind::try_from(mount.kind)
        .map_err(|_| UnsupportedSpec(format!("{} is no kind of mount", mount.kind)))?;
    if !mount.sub_path.is_empty() {
        return unsupported(format!(
            "the mount at {} names {:?} beneath its source, which was to be resolved before",
            mount.target, mount.sub_path
        ));
    }
    let (name, source) = match kind {
        MountKind::Bind => ("bind", mount.source.as_str()),
        MountKind::Tmpfs | MountKind::Dev => ("tmpfs", "tmpfs"),
        MountKind::Proc => ("proc", "proc"),
        MountKind::Sysfs => ("sysfs", "sysfs"),
        MountKind::Mqueue => ("mqueue", "mqueue"),
        MountKind::Devpts => ("devpts", "devpts"),
        MountKind::Cgroup => ("cgroup", "cgroup"),
    };
    let mut all = Members::default();
    all.put("destination", &mount.target);
    all.put("type", name);
    all.put("source", source);
    all.put("options", Json::List(options(mount, kind)?));
    if let Some(mappings) = &mount.id_mappings {
        all.put("uidMappings", ranges(&mappings.users));
        all.put("gidMappings", ranges(&mappings.groups));
    }
    Ok(all.into())
}

fn options(mount: &MountSpec, kind: MountKind) -> Result<Vec<Json>> {
    let mut all: Vec<Json> = Vec::new();
    let bind = kind == MountKind::Bind;
    for (wanted, word) in [
        (bind && !mount.not_recursive, "rbind"),
        (bind && mount.not_recursive, "bind"),
        (mount.no_suid, "nosuid"),
        (mount.no_exec, "noexec"),
        (mount.no_dev, "nodev"),
        (mount.recursive_read_only, "rro"),
        (mount.read_only && !mount.recursive_read_only, "ro"),
        (bind && !mount.read_only && !mount.recursive_read_only, "rw"),
    ] {
        if wanted {
            all.push(word.into());
        }
    }
    if bind {
        all.push(propagation(mount.propagation)?.into());
    }
    all.extend(mount.options.iter().map(Json::from));
    Ok(all)
}

pub(super) fn ranges(ranges: &[IdRange]) -> Json {
    let one = |range: &IdRange| {
        let mut all = Members::default();
        all.put("containerID", range.inside);
        all.put("hostID", range.outside);
        all.put("size", range.count);
        Json::from(all)
    };
    Json::List(ranges.iter().map(one).collect())
}
