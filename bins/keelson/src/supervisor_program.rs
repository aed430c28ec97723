//! Chooses the program that supervises pods.
//!
//! Rule: the configured one; otherwise the one embedded in this binary (a release); otherwise the
//! one that is installed beside it (a development build); otherwise this program itself. Each
//! server runs it from a sealed memfd, so neither an upgrade of this program nor a container can
//! change the supervisor of a running pod.

use container_runtime::RuntimeSettings;

/// The file name of a supervisor that is installed beside this program.
const BESIDE: &str = "keelson-pod";

#[cfg(carries_supervisor)]
const CARRIED: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/keelson-pod")));
#[cfg(not(carries_supervisor))]
const CARRIED: Option<&[u8]> = None;

/// Fills in what the settings leave open.
pub(crate) fn choose(settings: &mut RuntimeSettings) {
    settings.carried_supervisor = CARRIED;
    if settings.supervisor.is_none() && CARRIED.is_none() {
        let own = std::env::current_exe().ok();
        settings.supervisor =
            own.and_then(|own| Some(own.parent()?.join(BESIDE))).filter(|path| path.is_file());
    }
}
