//! The AppArmor profile of a container.
//!
//! Rule: confinement that was asked for is given or refused, never left out in silence. Where nobody
//! asks, nothing is set. Does not load profiles: those of the machine's administrator are used.
//!
//! upstream: containerd internal/cri/sputil/apparmor_linux.go

use std::path::Path;

use cri_wire::v1;
use cri_wire::v1::security_profile::ProfileType;

use crate::failure::{Failure, Result};

/// The profiles that the kernel has, a line each: `NAME (MODE)`.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

/// What this machine's kernel has of AppArmor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppArmor {
    pub enabled: bool,
}

impl AppArmor {
    pub(crate) fn of_this_machine() -> Self {
        let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        Self { enabled: enabled.is_ok_and(|text| text.starts_with('Y')) }
    }

    /// The profile's name; empty for none.
    pub(crate) fn profile(self, security: &v1::LinuxContainerSecurityContext) -> Result<String> {
        let loaded = || {
            std::fs::read_to_string(Path::new(LOADED))
                .map_err(|error| Failure::plain(format!("reading {LOADED}: {error}")))
        };
        choose(self.enabled, security, loaded)
    }
}

fn choose(
    enabled: bool,
    security: &v1::LinuxContainerSecurityContext,
    loaded: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let Some((kind, name)) = asked(security)? else { return Ok(String::new()) };
    if !enabled {
        return match kind {
            ProfileType::Unconfined => Ok(String::new()),
            _ => Err(Failure::plain("apparmor is not supported: this kernel does not have it")),
        };
    }
    if kind != ProfileType::Localhost && !name.is_empty() {
        return Err(Failure::plain(
            "apparmor config invalid LocalhostRef must only be set if ProfileType is Localhost",
        ));
    }
    match kind {
        ProfileType::Unconfined => Ok(String::new()),
        ProfileType::RuntimeDefault if security.privileged => Ok(String::new()),
        ProfileType::RuntimeDefault => Err(Failure::plain(
            "the AppArmor profile RuntimeDefault is asked for, but this runtime has none of its \
             own; load one and name it (Localhost), or say Unconfined",
        )),
        ProfileType::Localhost => {
            let name = name.strip_prefix("localhost/").unwrap_or(&name).to_owned();
            let all = loaded()?;
            let known =
                all.lines().filter_map(|line| line.rsplit_once(" (")).any(|(one, _)| one == name);
            if known {
                Ok(name)
            } else {
                Err(Failure::plain(format!("apparmor profile not found {name}")))
            }
        }
    }
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
            None => Err(Failure::plain(format!("invalid AppArmor profile {text:?}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(kind: ProfileType, name: &str) -> v1::LinuxContainerSecurityContext {
        let profile =
            v1::SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() };
        v1::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() }
    }

    fn loaded() -> Result<String> {
        Ok("web (enforce)\n/usr/bin/odd name (complain)\n".to_owned())
    }

    #[test]
    fn a_kernel_without_it_refuses_what_was_asked_for() {
        let choose = |wish: &v1::LinuxContainerSecurityContext| choose(false, wish, loaded);
        assert_eq!(choose(&Default::default()).unwrap(), "");
        assert_eq!(choose(&wish(ProfileType::Unconfined, "")).unwrap(), "");
        for kind in [ProfileType::RuntimeDefault, ProfileType::Localhost] {
            let text = choose(&wish(kind, "web")).unwrap_err().text;
            assert!(text.contains("apparmor is not supported"), "{text}");
        }
    }

    #[test]
    fn a_kernel_with_it_knows_its_profiles() {
        let choose = |wish: &v1::LinuxContainerSecurityContext| choose(true, wish, loaded);
        assert_eq!(choose(&wish(ProfileType::Localhost, "web")).unwrap(), "web");
        assert_eq!(choose(&wish(ProfileType::Localhost, "localhost/web")).unwrap(), "web");
        let odd = wish(ProfileType::Localhost, "/usr/bin/odd name");
        assert_eq!(choose(&odd).unwrap(), "/usr/bin/odd name");
        let text = choose(&wish(ProfileType::Localhost, "we")).unwrap_err().text;
        assert_eq!(text, "apparmor profile not found we");
        assert!(choose(&wish(ProfileType::Unconfined, "web")).is_err());
        assert!(choose(&wish(ProfileType::RuntimeDefault, "")).is_err());
        let mut privileged = wish(ProfileType::RuntimeDefault, "");
        privileged.privileged = true;
        assert_eq!(choose(&privileged).unwrap(), "");
    }

    #[test]
    #[expect(deprecated, reason = "older clients still fill the field")]
    fn the_old_field_says_the_same() {
        let old = |text: &str| v1::LinuxContainerSecurityContext {
            apparmor_profile: text.to_owned(),
            ..Default::default()
        };
        assert_eq!(choose(true, &old("localhost/web"), loaded).unwrap(), "web");
        assert_eq!(choose(true, &old("unconfined"), loaded).unwrap(), "");
        assert!(choose(false, &old("runtime/default"), loaded).is_err());
        assert!(choose(true, &old("web"), loaded).is_err());
    }
}
