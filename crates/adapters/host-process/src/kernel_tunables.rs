//! Sysctls that a node relies on: memory overcommit, an OOM kill instead of a panic, a reboot after
//! a kernel panic, and enough keys for containers.
//!
//! Rule: a value that differs is set, or only reported if `protectKernelDefaults` is on. A value
//! that the kernel refuses is reported and skipped: pods run all the same.
//!
//! upstream: pkg/kubelet/cm/container_manager_linux.go (setupKernelTunables)

use std::path::Path;

#[cfg(test)]
mod tests;

/// A sysctl: its dotted name, and the value.
type Tunable = (&'static str, i64);

const WANTED: [Tunable; 6] = [
    ("vm.overcommit_memory", 1),
    ("vm.panic_on_oom", 0),
    ("kernel.panic", 10),
    ("kernel.panic_on_oops", 1),
    ("kernel.keys.root_maxkeys", 1_000_000),
    ("kernel.keys.root_maxbytes", 25_000_000),
];

/// Why a value is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum TunableError {
    #[error("cannot read {path}: {cause}")]
    Unreadable { path: String, cause: std::io::Error },
    #[error("{path}: expected a whole number, found {found:?}")]
    NotANumber { path: String, found: String },
    #[error("invalid kernel flag: {name}, expected value: {wanted}, actual value: {found}")]
    Differs { name: &'static str, wanted: i64, found: i64 },
    #[error("cannot set {path} from {found} to {wanted}: {cause}")]
    Refused { path: String, wanted: i64, found: i64, cause: std::io::Error },
}

/// Sets the values that differ; with `protect` it reports them instead. `dir` is `/proc/sys`.
/// Returns the names and values that were set, and the errors.
pub fn set_up(dir: &Path, protect: bool) -> (Vec<(&'static str, i64)>, Vec<TunableError>) {
    let (mut set, mut wrong) = (Vec::new(), Vec::new());
    for (name, wanted) in WANTED {
        match set_one(dir, (name, wanted), protect) {
            Ok(true) => set.push((name, wanted)),
            Ok(false) => {}
            Err(error) => wrong.push(error),
        }
    }
    (set, wrong)
}

/// Whether it had to be set.
fn set_one(dir: &Path, (name, wanted): Tunable, protect: bool) -> Result<bool, TunableError> {
    let file = dir.join(name.replace('.', "/"));
    let path = file.display().to_string();
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(cause) => return Err(TunableError::Unreadable { path, cause }),
    };
    let Ok(found) = text.trim().parse::<i64>() else {
        return Err(TunableError::NotANumber { path, found: text.trim().to_owned() });
    };
    if found == wanted {
        return Ok(false);
    }
    if protect {
        return Err(TunableError::Differs { name, wanted, found });
    }
    match std::fs::write(&file, wanted.to_string()) {
        Ok(()) => Ok(true),
        Err(cause) => Err(TunableError::Refused { path, wanted, found, cause }),
    }
}
