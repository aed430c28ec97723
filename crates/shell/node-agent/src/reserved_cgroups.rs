//! Limits for the reserved resources of the system and the node's own services, set at their
//! cgroups.
//!
//! Rules: only existing cgroups; their owners create them. Set once. The kubelet exits where this
//! fails; here pods run all the same, each failure is reported as an error and retried, since the
//! owner may create the cgroup later.
//!
//! upstream: pkg/kubelet/cm/node_container_manager_linux.go

use crate::back_off::ExponentialBackOff;
use crate::cgroup_tree::{ENFORCED, NOT_ENFORCED};
use crate::pods::{PodContext, ReservedCgroup};
use pod_lifecycle::EventType;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// As often as the kubelet retries the limits of pods.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Returns when all of them are set.
pub(crate) async fn enforce(context: Arc<PodContext>, mut cgroups: Vec<ReservedCgroup>) {
    let host = &context.ports.cgroups;
    let emit_event = |kind: EventType, reason: &str, message: &str| {
        context.status_store.emit_node_event(kind, reason, message, context.clock.now());
    };
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut failed = Vec::new();
        for cgroup in cgroups {
            match host.set_limits_of_existing(&cgroup.path, &cgroup.limits).await {
                Ok(()) => {
                    info!(level = cgroup.level, cgroup = cgroup.path, "Updated limits on cgroup");
                    let level_description = level_description(&cgroup.level).to_lowercase();
                    let message =
                        format!("Updated limits on {level_description} cgroup {}", cgroup.path);
                    emit_event(EventType::Normal, ENFORCED, &message);
                }
                Err(error) => {
                    error!(
                        level = cgroup.level,
                        cgroup = cgroup.path,
                        err = %error,
                        "Failed to enforce reserved cgroup limits; pods run without them, trying again"
                    );
                    let message = failure(&cgroup, &error.to_string());
                    emit_event(EventType::Warning, NOT_ENFORCED, &message);
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

/// What a level is for, in the wording of the kubelet's messages.
fn level_description(level: &str) -> &'static str {
    if level.starts_with("system") { "System Reserved" } else { "Kube Reserved" }
}

fn failure(cgroup: &ReservedCgroup, why: &str) -> String {
    let level_description = level_description(&cgroup.level);
    let what = if cgroup.level.ends_with("compressible") { " Compressible" } else { "" };
    format!("Failed to enforce {level_description}{what} Cgroup Limits on {:?}: {why}", cgroup.path)
}

#[cfg(test)]
mod tests;
