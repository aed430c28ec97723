//! SELinux labels of a container's processes and files.
//!
//! Rule: the policy has the defaults, the caller's options change them field by field, and the
//! level separates pods: all of a pod's containers have the same one, also after a restart of the
//! server. A requested label is applied or the container is refused. Without SELinux in the kernel
//! a request is ignored with a warning (docs/decisions/0012). Choosing is pure; reads the policy's
//! defaults, asks the kernel whether it knows a label, changes nothing.
//!
//! upstream: containerd internal/cri/server/container_create.go (toLabel), go-selinux label.InitLabels

use std::path::Path;

use cri_wire::v1;

use crate::failure::{CallContext as _, CriError, Result};

#[cfg(test)]
mod tests;

/// Exists only while SELinux is enabled.
const ENFORCE: &str = "/sys/fs/selinux/enforce";
/// Accepts a label if the policy has it.
const CHECK: &str = "/sys/fs/selinux/context";
/// Names the policy.
const CONFIGURATION: &str = "/etc/selinux/config";

const USUAL_PROCESS: &str = "system_u:system_r:container_t:s0";
const USUAL_FILE: &str = "system_u:object_r:container_file_t:s0";

/// The number of categories, as in every policy that has them.
const CATEGORIES: u64 = 1024;

/// What this host's kernel and policy have of SELinux.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selinux {
    defaults: Option<PolicyDefaults>,
}

/// The policy's labels of a container's processes and files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PolicyDefaults {
    process: SelinuxContext,
    file: SelinuxContext,
}

/// Each is empty if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SelinuxLabels {
    pub(crate) process: String,
    pub(crate) file: String,
}

/// A pod or container, and the labels that it requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabelRequest<'a> {
    /// The id of the pod's sandbox.
    pub(crate) pod: &'a str,
    pub(crate) of_pod: Option<&'a v1::SeLinuxOption>,
    pub(crate) of_container: Option<&'a v1::SeLinuxOption>,
    pub(crate) privileged: bool,
}

impl<'a> LabelRequest<'a> {
    /// For files that all containers of a pod share.
    pub(crate) fn of_pod(pod: &'a str, config: &'a v1::PodSandboxConfig) -> Self {
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let of_pod = security.and_then(|security| security.selinux_options.as_ref());
        Self { pod, of_pod, of_container: None, privileged: false }
    }

    /// For one container.
    pub(crate) fn of_container(self, config: &'a v1::ContainerConfig) -> Self {
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        Self {
            of_container: security.and_then(|security| security.selinux_options.as_ref()),
            privileged: security.is_some_and(|security| security.privileged),
            ..self
        }
    }

    /// The container's own options, or the pod's if it has none.
    fn options(&self) -> Option<&'a v1::SeLinuxOption> {
        let is_set = |options: &&v1::SeLinuxOption| **options != Default::default();
        self.of_container.filter(is_set).or(self.of_pod.filter(is_set))
    }
}

impl Selinux {
    pub(crate) fn of_this_machine() -> Self {
        if !Path::new(ENFORCE).exists() {
            return Self::default();
        }
        let configuration = std::fs::read_to_string(CONFIGURATION).unwrap_or_default();
        let contexts = policy_of(&configuration).and_then(|policy| {
            std::fs::read_to_string(format!("/etc/selinux/{policy}/contexts/lxc_contexts")).ok()
        });
        Self { defaults: Some(defaults(&contexts.unwrap_or_default())) }
    }

    /// The labels of a container's processes and files.
    pub(crate) fn labels(&self, request: &LabelRequest<'_>) -> Result<SelinuxLabels> {
        let options = request.options();
        for options in request.of_pod.iter().chain(&request.of_container) {
            check(options)?;
        }
        let Some(defaults) = &self.defaults else {
            if let Some(options) = options {
                tracing::warn!(?options, "this kernel has no SELinux: its options are left out");
            }
            return Ok(SelinuxLabels::default());
        };
        let labels = choose(defaults, request);
        let unknown = [&labels.process, &labels.file]
            .into_iter()
            .find(|label| !label.is_empty() && std::fs::write(CHECK, label).is_err());
        match (unknown, options) {
            (None, _) => Ok(labels),
            (Some(label), Some(_)) => Err(CriError::plain(format!(
                "the SELinux label {label:?} is not known to this machine's policy"
            ))),
            (Some(label), None) => {
                tracing::warn!(label, "SELinux's policy knows no containers: no label is set");
                Ok(SelinuxLabels::default())
            }
        }
    }
}

/// The fields of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SelinuxContext {
    user: String,
    role: String,
    kind: String,
    /// None in a policy without levels.
    level: Option<String>,
}

impl SelinuxContext {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':').map(str::to_owned);
        let (user, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
        let whole = [&user, &role, &kind].iter().all(|part| is_name(part));
        whole.then(|| Self { user, role, kind, level: parts.next() })
    }

    fn write(&self) -> String {
        let Self { user, role, kind, level } = self;
        match level {
            Some(level) => format!("{user}:{role}:{kind}:{level}"),
            None => format!("{user}:{role}:{kind}"),
        }
    }
}

/// The value of `SELINUXTYPE`, which names a directory.
fn policy_of(configuration: &str) -> Option<&str> {
    let values = configuration.lines().filter_map(|line| line.trim().strip_prefix("SELINUXTYPE="));
    values.map(str::trim).next_back().filter(|name| is_name(name))
}

/// From the policy's file about containers; defaults of most policies for what it leaves out.
fn defaults(contexts: &str) -> PolicyDefaults {
    let of = |wanted: &str, usual: &str| {
        let lines = contexts.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
        let mut values = lines.filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == wanted).then(|| value.trim().trim_matches('"'))
        });
        values.next_back().and_then(SelinuxContext::read).or_else(|| SelinuxContext::read(usual))
    };
    let plain = || SelinuxContext {
        user: String::new(),
        role: String::new(),
        kind: String::new(),
        level: None,
    };
    PolicyDefaults {
        process: of("process", USUAL_PROCESS).unwrap_or_else(plain),
        file: of("file", USUAL_FILE).unwrap_or_else(plain),
    }
}

fn choose(defaults: &PolicyDefaults, request: &LabelRequest<'_>) -> SelinuxLabels {
    let PolicyDefaults { mut process, mut file } = defaults.clone();
    let options = request.options().cloned().unwrap_or_default();
    let set = |part: &mut String, wanted: &str| {
        if !wanted.is_empty() {
            wanted.clone_into(part);
        }
    };
    set(&mut process.user, &options.user);
    set(&mut file.user, &options.user);
    set(&mut process.role, &options.role);
    set(&mut process.kind, &options.r#type);
    let of_pod = request.of_pod.map(|options| options.level.as_str()).unwrap_or_default();
    let level = [options.level.as_str(), of_pod].into_iter().find(|level| !level.is_empty());
    let level = match (level, &process.level) {
        (Some(asked), _) => Some(asked.to_owned()),
        (None, Some(_)) => Some(level_of(request.pod)),
        (None, None) => None,
    };
    (process.level, file.level) = (level.clone(), level);
    // Its files are labelled all the same: they are a container's.
    let process = if request.privileged { String::new() } else { process.write() };
    SelinuxLabels { process, file: file.write() }
}

/// Two different categories, derived from the pod's id alone, so that nothing has to be stored.
fn level_of(pod: &str) -> String {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const STEP: u64 = 0x0100_0000_01b3;
    let number =
        pod.bytes().fold(START, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(STEP)) >> 16;
    let one = number % CATEGORIES;
    let other = number / CATEGORIES % (CATEGORIES - 1);
    let other = if other >= one { other + 1 } else { other };
    format!("s0:c{},c{}", one.min(other), one.max(other))
}

/// No character may end a label early or begin another mount option.
fn is_name(text: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    !text.is_empty() && text.chars().all(fits) && text != ".."
}

fn check(options: &v1::SeLinuxOption) -> Result<()> {
    let parts = [("user", &options.user), ("role", &options.role), ("type", &options.r#type)];
    for (name, value) in parts {
        if !value.is_empty() && !is_name(value) {
            return Err(CriError::plain(format!("the SELinux {name} {value:?} is no name")));
        }
    }
    if !options.level.is_empty() && !is_level(&options.level) {
        return Err(CriError::plain(format!(
            "the format of 'level' {:?} is not correct; expected such as s0:c1,c2",
            options.level
        )));
    }
    Ok(())
}

/// `s0`, `s0-s1`, `s0:c1`, `s0:c1.c5,c9`.
fn is_level(text: &str) -> bool {
    let number = |text: &str, letter: char, most: usize| {
        text.strip_prefix(letter).is_some_and(|digits| {
            (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let (sensitivity, categories) = match text.split_once(':') {
        Some((sensitivity, categories)) => (sensitivity, Some(categories)),
        None => (text, None),
    };
    let pair = |text: &str, between: char, letter: char, most: usize| {
        let (low, high) = text.split_once(between).unwrap_or((text, text));
        number(low, letter, most) && number(high, letter, most)
    };
    pair(sensitivity, '-', 's', 1)
        && categories.is_none_or(|list| list.split(',').all(|one| pair(one, '.', 'c', 4)))
}

/// Sets the label of the container's files on a mount's source.
pub(super) fn relabel(mount: &v1::Mount, source: &Path, labels: &SelinuxLabels) -> Result<()> {
    if !mount.selinux_relabel || labels.file.is_empty() {
        return Ok(());
    }
    super::relabel::relabel(source, &labels.file).doing(format!(
        "relabel {:?} with {:?} failed",
        source.display().to_string(),
        labels.file
    ))
}
