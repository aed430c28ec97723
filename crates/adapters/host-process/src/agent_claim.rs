//! The agent's claim on machine-wide names besides its root directory: the cgroup above its pods
//! and the directory of their logs. In both it removes what belongs to none of its pods, so no
//! other agent may have pods there.
//!
//! Rule: the claim ends with the process; an agent of another root may then adopt its pods, as it
//! may those of a reference kubelet. The caller supplies the names.

use std::path::Path;
use std::time::Duration;

use machine_claims::{ClaimConflict, ClaimError, ClaimedResources, Claims, HeldClaim};

#[cfg(test)]
mod tests;

/// A holder that exits on contention (`--exit-on-lock-contention`) may need some time.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// The names that an agent claims.
#[derive(Debug, Clone, Copy)]
pub struct AgentNames<'a> {
    pub root: &'a Path,
    /// Parent of all pod cgroups; `None` if pods have no cgroups of their own.
    pub cgroup: Option<&'a str>,
    pub pod_logs: &'a Path,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentClaimError {
    /// Another agent holds some of it.
    #[error("{0}")]
    Held(Box<ClaimConflict>),
    #[error("cannot claim the names of this agent: {0}")]
    Files(ClaimError),
}

/// Acquires the claim for the process `pid`. Waits at most a second for a holder that is exiting.
/// `directory` holds the claims of the machine.
pub fn acquire(
    directory: &Path,
    names: &AgentNames<'_>,
    pid: u32,
) -> Result<HeldClaim, AgentClaimError> {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let root = canonical(names.root);
    let resources = ClaimedResources {
        id: format!("agent of {}", root.display()),
        pid,
        cgroups: names.cgroup.map(str::to_owned).into_iter().collect(),
        directories: vec![canonical(names.pod_logs)],
        root,
        ..ClaimedResources::default()
    };
    let claims = Claims::new(directory);
    let key = machine_claims::key("agent", &resources.root);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let lock = claims.lock().map_err(AgentClaimError::Files)?;
        match lock.acquire(&key, resources.clone()) {
            Ok(held) => return Ok(held),
            Err(ClaimError::Conflict(conflict)) if attempts >= ATTEMPTS => {
                return Err(AgentClaimError::Held(conflict));
            }
            Err(ClaimError::Conflict(_)) => {}
            Err(error) => return Err(AgentClaimError::Files(error)),
        }
        drop(lock);
        std::thread::sleep(BETWEEN_ATTEMPTS);
    }
}
