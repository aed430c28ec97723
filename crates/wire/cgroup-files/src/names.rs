//! Names of nested cgroups by the two conventions, cgroupfs and systemd.
//!
//! Rule: pure translations. A [`CgroupName`] is a list of plain words such as `kubepods`,
//! `burstable`, `pod1234`; the driver decides how they become a path. Creates nothing.
//!
//! upstream: pkg/kubelet/cm/cgroup_manager_linux.go (names), systemd.slice(5) (nesting by dashes).

#[cfg(test)]
mod tests;

/// The cgroup driver: the tree is managed by the agent itself, or by systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupManager {
    CgroupFs,
    Systemd,
}

/// A cgroup by its words from the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CgroupName(Vec<String>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupNameError {
    #[error("{0:?} is no slice: expected NAME.slice without / and without empty parts between -")]
    InvalidSliceName(String),
    #[error("{0:?} is no group: expected SLICE:PREFIX:NAME or an absolute path without ..")]
    InvalidCgroupName(String),
    #[error("{0:?} cannot be a word of a group's name: it is empty, . or .., or contains /")]
    InvalidComponent(String),
}

impl CgroupName {
    pub fn root() -> Self {
        Self::default()
    }

    pub fn child(&self, component: &str) -> Result<Self, CgroupNameError> {
        if component.is_empty()
            || component == "."
            || component == ".."
            || component.contains(['/', '\0', '\n'])
        {
            return Err(CgroupNameError::InvalidComponent(component.to_owned()));
        }
        let mut components = self.0.clone();
        components.push(component.to_owned());
        Ok(Self(components))
    }

    pub fn components(&self) -> &[String] {
        &self.0
    }

    /// The cgroup's path from the hierarchy's root.
    pub fn path(&self, driver: CgroupManager) -> String {
        match driver {
            CgroupManager::CgroupFs => format!("/{}", self.0.join("/")),
            // Words are escaped below, so the name can be expanded.
            CgroupManager::Systemd => {
                expand_slice(&self.slice()).unwrap_or_else(|_| "/".to_owned())
            }
        }
    }

    /// The slice's unit name: `kubepods-burstable-pod1234.slice`, for the root `-.slice`.
    pub fn slice(&self) -> String {
        if self.0.is_empty() {
            return "-.slice".to_owned();
        }
        let components: Vec<String> =
            self.0.iter().map(|component| component.replace('-', "_")).collect();
        format!("{}.slice", components.join("-"))
    }

    /// Parses a path of either driver. A dash looks like an escaped one: systemd names
    /// come back with `_`.
    pub fn from_path(path: &str, driver: CgroupManager) -> Result<Self, CgroupNameError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match driver {
            CgroupManager::CgroupFs => parts.try_fold(Self::root(), |name, part| name.child(part)),
            CgroupManager::Systemd => {
                let Some(last) = parts.next_back() else { return Ok(Self::root()) };
                let stem = last
                    .strip_suffix(".slice")
                    .ok_or_else(|| CgroupNameError::InvalidSliceName(last.to_owned()))?;
                if stem == "-" {
                    return Ok(Self::root());
                }
                stem.split('-').try_fold(Self::root(), |name, part| name.child(part))
            }
        }
    }
}

/// `a-b.slice` is at `/a.slice/a-b.slice`.
pub fn expand_slice(slice: &str) -> Result<String, CgroupNameError> {
    let bad = || CgroupNameError::InvalidSliceName(slice.to_owned());
    let stem = slice.strip_suffix(".slice").ok_or_else(bad)?;
    if stem == "-" {
        return Ok("/".to_owned());
    }
    if stem.is_empty() || slice.contains('/') || stem.split('-').any(str::is_empty) {
        return Err(bad());
    }
    let mut path = String::new();
    for (at, _) in stem.match_indices('-').chain([(stem.len(), "")]) {
        path.push('/');
        path.push_str(&stem[..at]);
        path.push_str(".slice");
    }
    Ok(path)
}

/// A container's cgroup inside a parent that CRI names: cgroupfs by path, systemd by slice and
/// scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerCgroup {
    /// From the hierarchy's root.
    pub path: String,
    /// The systemd unit and its slice, if systemd must create it.
    pub scope: Option<ScopeUnit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScopeUnit {
    pub unit: String,
    pub slice: String,
}

impl ContainerCgroup {
    /// `parent` is a sandbox's `cgroup_parent`: a path for cgroupfs; for systemd a slice, or a path
    /// that ends in one.
    pub fn within(
        parent: &str,
        prefix: &str,
        id: &str,
        driver: CgroupManager,
    ) -> Result<Self, CgroupNameError> {
        // The id becomes a part of the path.
        CgroupName::root().child(id)?;
        match driver {
            CgroupManager::CgroupFs => {
                let parent = CgroupName::from_path(parent, CgroupManager::CgroupFs)?;
                Ok(Self { path: parent.child(id)?.path(CgroupManager::CgroupFs), scope: None })
            }
            CgroupManager::Systemd => {
                let slice = parent.rsplit('/').find(|part| !part.is_empty()).unwrap_or("-.slice");
                let dir = expand_slice(slice)?;
                let unit = format!("{prefix}-{id}.scope");
                let path = format!("{}/{unit}", dir.trim_end_matches('/'));
                Ok(Self { path, scope: Some(ScopeUnit { unit, slice: slice.to_owned() }) })
            }
        }
    }

    /// `SLICE:PREFIX:NAME`, as an OCI runtime takes a systemd group; a path otherwise.
    pub fn oci_path(&self, prefix: &str, id: &str) -> String {
        match &self.scope {
            None => self.path.clone(),
            Some(scope) => format!("{}:{prefix}:{id}", scope.slice),
        }
    }
}
