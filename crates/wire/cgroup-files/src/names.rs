//! Names of nested cgroups by the two conventions, cgroupfs and systemd.
//!
//! Rule: pure translations. A [`GroupName`] is a list of plain words such as `kubepods`,
//! `burstable`, `pod1234`; the driver decides how they become a path. Creates nothing.
//!
//! upstream: pkg/kubelet/cm/cgroup_manager_linux.go (names), systemd.slice(5) (nesting by dashes).

#[cfg(test)]
mod tests;

/// The cgroup driver: the tree is managed by the agent itself, or by systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    CgroupFs,
    Systemd,
}

/// A cgroup by its words from the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupName(Vec<String>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{0:?} is no slice: expected NAME.slice without / and without empty parts between -")]
    NotASlice(String),
    #[error("{0:?} is no group: expected SLICE:PREFIX:NAME or an absolute path without ..")]
    NotAGroup(String),
    #[error("{0:?} cannot be a word of a group's name: it is empty, . or .., or contains /")]
    NotAWord(String),
}

impl GroupName {
    pub fn root() -> Self {
        Self::default()
    }

    pub fn child(&self, word: &str) -> Result<Self, NameError> {
        if word.is_empty() || word == "." || word == ".." || word.contains(['/', '\0', '\n']) {
            return Err(NameError::NotAWord(word.to_owned()));
        }
        let mut words = self.0.clone();
        words.push(word.to_owned());
        Ok(Self(words))
    }

    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// The cgroup's path from the hierarchy's root.
    pub fn path(&self, driver: Driver) -> String {
        match driver {
            Driver::CgroupFs => format!("/{}", self.0.join("/")),
            // Words are escaped below, so the name can be expanded.
            Driver::Systemd => expand_slice(&self.slice()).unwrap_or_else(|_| "/".to_owned()),
        }
    }

    /// The slice's unit name: `kubepods-burstable-pod1234.slice`, for the root `-.slice`.
    pub fn slice(&self) -> String {
        if self.0.is_empty() {
            return "-.slice".to_owned();
        }
        let words: Vec<String> = self.0.iter().map(|word| word.replace('-', "_")).collect();
        format!("{}.slice", words.join("-"))
    }

    /// Parses a path of either driver. A dash looks like an escaped one: systemd names
    /// come back with `_`.
    pub fn from_path(path: &str, driver: Driver) -> Result<Self, NameError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match driver {
            Driver::CgroupFs => parts.try_fold(Self::root(), |name, part| name.child(part)),
            Driver::Systemd => {
                let Some(last) = parts.next_back() else { return Ok(Self::root()) };
                let stem = last
                    .strip_suffix(".slice")
                    .ok_or_else(|| NameError::NotASlice(last.to_owned()))?;
                if stem == "-" {
                    return Ok(Self::root());
                }
                stem.split('-').try_fold(Self::root(), |name, part| name.child(part))
            }
        }
    }
}

/// `a-b.slice` is at `/a.slice/a-b.slice`.
pub fn expand_slice(slice: &str) -> Result<String, NameError> {
    let bad = || NameError::NotASlice(slice.to_owned());
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
pub struct ContainerGroup {
    /// From the hierarchy's root.
    pub path: String,
    /// The systemd unit and its slice, if systemd must create it.
    pub scope: Option<Scope>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub unit: String,
    pub slice: String,
}

impl ContainerGroup {
    /// `parent` is a sandbox's `cgroup_parent`: a path for cgroupfs; for systemd a slice, or a path
    /// that ends in one.
    pub fn within(parent: &str, prefix: &str, id: &str, driver: Driver) -> Result<Self, NameError> {
        // The id becomes a part of the path.
        GroupName::root().child(id)?;
        match driver {
            Driver::CgroupFs => {
                let parent = GroupName::from_path(parent, Driver::CgroupFs)?;
                Ok(Self { path: parent.child(id)?.path(Driver::CgroupFs), scope: None })
            }
            Driver::Systemd => {
                let slice = parent.rsplit('/').find(|part| !part.is_empty()).unwrap_or("-.slice");
                let folder = expand_slice(slice)?;
                let unit = format!("{prefix}-{id}.scope");
                let path = format!("{}/{unit}", folder.trim_end_matches('/'));
                Ok(Self { path, scope: Some(Scope { unit, slice: slice.to_owned() }) })
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
