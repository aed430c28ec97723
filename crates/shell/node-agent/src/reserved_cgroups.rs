//! What is reserved for the system and the node's own services, set at their cgroups.
//!
//! Rules: only cgroups that are there already; whoever owns them makes them. Set once. The
//! reference ends where this fails; here pods run all the same, it is told as an error each time,
//! and tried again, since the owner may come later.
//!
//! upstream: pkg/kubelet/cm/node_container_manager_linux.go

use crate::back_off::BackOff;
use crate::pods::ReservedCgroup;
use ports::pod_host::PodCgroups;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// As often as the reference tries the limits of pods again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Ends when all of them are set.
pub(crate) async fn enforce(host: Arc<dyn PodCgroups>, mut cgroups: Vec<ReservedCgroup>) {
    let mut back_off = BackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut failed = Vec::new();
        for cgroup in cgroups {
            match host.limit_existing(&cgroup.path, &cgroup.limits).await {
                Ok(()) => {
                    info!(level = cgroup.level, cgroup = cgroup.path, "Updated limits on cgroup");
                }
                Err(error) => {
                    error!(
                        level = cgroup.level,
                        cgroup = cgroup.path,
                        err = %error,
                        "Failed to enforce reserved cgroup limits; pods run without them, trying again"
                    );
                    failed.push(cgroup);
                }
            }
        }
        if failed.is_empty() {
            return;
        }
        cgroups = failed;
        tokio::time::sleep(back_off.pause()).await;
    }
}
