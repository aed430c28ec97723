//! What is reserved for the system and the node's own services, set at their cgroups.
//!
//! Rules: only cgroups that are there already; whoever owns them makes them. Set once. The
//! reference ends where this fails; here pods run all the same, it is told as an error each time,
//! and tried again, since the owner may come later.
//!
//! upstream: pkg/kubelet/cm/node_container_manager_linux.go

use crate::back_off::BackOff;
use crate::cgroup_tree::{ENFORCED, NOT_ENFORCED};
use crate::pods::{PodContext, ReservedCgroup};
use pod_lifecycle::EventKind;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// As often as the reference tries the limits of pods again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Ends when all of them are set.
pub(crate) async fn enforce(context: Arc<PodContext>, mut cgroups: Vec<ReservedCgroup>) {
    let host = &context.ports.cgroups;
    let tell = |kind: EventKind, reason: &str, message: &str| {
        context.board.tell_of_node(kind, reason, message, context.clock.now());
    };
    let mut back_off = BackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut failed = Vec::new();
        for cgroup in cgroups {
            match host.limit_existing(&cgroup.path, &cgroup.limits).await {
                Ok(()) => {
                    info!(level = cgroup.level, cgroup = cgroup.path, "Updated limits on cgroup");
                    let whose = whose(&cgroup.level).to_lowercase();
                    let message = format!("Updated limits on {whose} cgroup {}", cgroup.path);
                    tell(EventKind::Normal, ENFORCED, &message);
                }
                Err(error) => {
                    error!(
                        level = cgroup.level,
                        cgroup = cgroup.path,
                        err = %error,
                        "Failed to enforce reserved cgroup limits; pods run without them, trying again"
                    );
                    let message = failure(&cgroup, &error.to_string());
                    tell(EventKind::Warning, NOT_ENFORCED, &message);
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

/// Who a level is for, as the reference's messages say it.
fn whose(level: &str) -> &'static str {
    if level.starts_with("system") { "System Reserved" } else { "Kube Reserved" }
}

fn failure(cgroup: &ReservedCgroup, why: &str) -> String {
    let whose = whose(&cgroup.level);
    let what = if cgroup.level.ends_with("compressible") { " Compressible" } else { "" };
    format!("Failed to enforce {whose}{what} Cgroup Limits on {:?}: {why}", cgroup.path)
}

#[cfg(test)]
mod tests;
