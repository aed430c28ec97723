//! The AppArmor profile of a container.
//!
//! Rule: a requested profile is applied or the container is refused; it is never left out silently.
//! Without a request a container gets the default profile, if this host can load one. The
//! administrator's profiles are only referred to, never changed; the default one is loaded whenever
//! it is missing, since clean-up tools remove profiles that no file of theirs describes.
//!
//! upstream: containerd internal/cri/sputil/apparmor_linux.go

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cri_wire::v1;
use cri_wire::v1::security_profile::ProfileType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::{CriError, Result};

/// The profiles that the kernel has loaded, one per line: `NAME (MODE)`.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

/// Where distributions install the profile compiler.
const PARSERS: [&str; 2] = ["/sbin/apparmor_parser", "/usr/sbin/apparmor_parser"];

/// A profile of this size takes it a tenth of a second.
const LOADING_LIMIT: Duration = Duration::from_secs(20);

const DEFAULT: &str = "keelson-default";
const DEFAULT_TEXT: &str = include_str!("default.apparmor");

/// What this host's kernel has of AppArmor.
#[derive(Debug, Clone)]
pub(crate) struct AppArmor {
    enabled: bool,
    /// Serializes the check for the default profile and its loading.
    loading: Arc<Mutex<()>>,
}

/// The profile that applies to a container.
#[derive(Debug, PartialEq, Eq)]
enum ProfileChoice {
    Nothing,
    Default { asked: bool },
    Named(String),
}

impl AppArmor {
    pub(crate) fn of_this_machine() -> Self {
        let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        // Inside another container the kernel has it, but its policy is not visible.
        let enabled = enabled.is_ok_and(|text| text.starts_with('Y')) && Path::new(LOADED).exists();
        Self { enabled, loading: Arc::default() }
    }

    /// The profile's name; empty for none. May wait until the default one is loaded.
    pub(crate) fn profile(&self, security: &v1::LinuxContainerSecurityContext) -> Result<String> {
        match choose(self.enabled, security)? {
            ProfileChoice::Nothing => Ok(String::new()),
            ProfileChoice::Default { asked } => self.default_profile(asked),
            ProfileChoice::Named(name) if is_loaded(&loaded()?, &name) => Ok(name),
            ProfileChoice::Named(name) => {
                Err(CriError::plain(format!("apparmor profile not found {name}")))
            }
        }
    }

    fn default_profile(&self, asked: bool) -> Result<String> {
        let _alone = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if is_loaded(&loaded()?, DEFAULT) {
            return Ok(DEFAULT.to_owned());
        }
        match PARSERS.iter().find(|parser| Path::new(parser).exists()) {
            Some(parser) => load(Path::new(parser), DEFAULT_TEXT, LOADING_LIMIT)?,
            None if asked => {
                return Err(CriError::plain(
                    "apparmor is not supported: apparmor_parser is missing, which loads the \
                     default profile; install the package apparmor",
                ));
            }
            None => return Ok(String::new()),
        }
        Ok(DEFAULT.to_owned())
    }
}

fn loaded() -> Result<String> {
    std::fs::read_to_string(LOADED)
        .map_err(|error| CriError::plain(format!("reading {LOADED}: {error}")))
}

fn is_loaded(all: &str, name: &str) -> bool {
    all.lines().filter_map(|line| line.rsplit_once(" (")).any(|(one, _)| one == name)
}

/// Lets the parser load a profile into the kernel.
fn load(parser: &Path, text: &str, limit: Duration) -> Result<()> {
    let failed = |why: &dyn std::fmt::Display| {
        CriError::plain(format!(
            "loading the default AppArmor profile: {}: {why}",
            parser.display()
        ))
    };
    let mut child = Command::new(parser)
        .args(["--replace", "--skip-cache"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    // Smaller than a pipe's buffer; a parser that does not read it reports an error of its own.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(text.as_bytes());
    }
    if !exits_within(&child, limit) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(&format_args!("no end within {limit:?}")));
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    if status.success() {
        return Ok(());
    }
    let mut stderr_text = Vec::new();
    if let Some(output) = child.stderr.take() {
        let _ = output.take(4096).read_to_end(&mut stderr_text);
    }
    Err(failed(&format_args!("{status}: {}", String::from_utf8_lossy(&stderr_text).trim())))
}

fn exits_within(child: &std::process::Child, limit: Duration) -> bool {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return false };
    let Ok(ended) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let mut waiting = [PollFd::new(&ended, PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    poll(&mut waiting, Some(&limit)).is_ok_and(|ready| ready == 1)
}

fn choose(enabled: bool, security: &v1::LinuxContainerSecurityContext) -> Result<ProfileChoice> {
    let asked = asked(security)?;
    if !enabled {
        return match asked {
            None | Some((ProfileType::Unconfined, _)) => Ok(ProfileChoice::Nothing),
            Some(_) => {
                Err(CriError::plain("apparmor is not supported: this kernel does not have it"))
            }
        };
    }
    let is_requested = asked.is_some();
    let (kind, name) = asked.unwrap_or((ProfileType::RuntimeDefault, String::new()));
    if kind != ProfileType::Localhost && !name.is_empty() {
        return Err(CriError::plain(
            "apparmor config invalid LocalhostRef must only be set if ProfileType is Localhost",
        ));
    }
    Ok(match kind {
        ProfileType::Unconfined => ProfileChoice::Nothing,
        ProfileType::RuntimeDefault if security.privileged => ProfileChoice::Nothing,
        ProfileType::RuntimeDefault => ProfileChoice::Default { asked: is_requested },
        ProfileType::Localhost => {
            ProfileChoice::Named(name.strip_prefix("localhost/").unwrap_or(&name).to_owned())
        }
    })
}

#[expect(deprecated, reason = "older clients still fill the field")]
fn asked(security: &v1::LinuxContainerSecurityContext) -> Result<Option<(ProfileType, String)>> {
    if let Some(profile) = &security.apparmor {
        return Ok(Some((profile.profile_type(), profile.localhost_ref.clone())));
    }
    match security.apparmor_profile.as_str() {
        "" => Ok(None),
        "runtime/default" => Ok(Some((ProfileType::RuntimeDefault, String::new()))),
        "unconfined" => Ok(Some((ProfileType::Unconfined, String::new()))),
        text => match text.strip_prefix("localhost/") {
            Some(name) => Ok(Some((ProfileType::Localhost, name.to_owned()))),
            None => Err(CriError::plain(format!("invalid AppArmor profile {text:?}"))),
        },
    }
}

#[cfg(test)]
mod tests;
