//! Which program supervises pods.
//!
//! Rule: what the administrator names; otherwise the one that this program carries (a release);
//! otherwise the one that is installed beside it (a development build); otherwise this program
//! itself. Each server runs it from a sealed memory file, so neither an upgrade of this program nor
//! a container can change what supervises a pod that runs.

use container_runtime::Settings;

/// The supervisor as a program of its own, where it is installed beside this one.
const BESIDE: &str = "keelson-pod";

#[cfg(carries_supervisor)]
const CARRIED: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/keelson-pod")));
#[cfg(not(carries_supervisor))]
const CARRIED: Option<&[u8]> = None;

/// Fills in what the settings leave open.
pub(crate) fn choose(settings: &mut Settings) {
    settings.carried_supervisor = CARRIED;
    if settings.supervisor.is_none() && CARRIED.is_none() {
        let own = std::env::current_exe().ok();
        settings.supervisor =
            own.and_then(|own| Some(own.parent()?.join(BESIDE))).filter(|path| path.is_file());
    }
}
