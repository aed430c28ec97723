//! The cgroups above pods: `kubepods` and its classes of service, kept as heavy as their pods.
//!
//! Rule: set at the start and whenever the set of admitted pods changes; a failure is told and tried
//! again, and no pod waits for it (a pod's own cgroup makes its parents).

use crate::back_off::BackOff;
use crate::pods::PodContext;
use container_setup::cgroups;
use pod_model::pod::QosClass;
use ports::pod_host::{CgroupLimits, HostError};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Changes that come together are set together.
const SETTLE: Duration = Duration::from_millis(200);

/// Keeps the tree for ever.
pub(crate) async fn keep(context: Arc<PodContext>) {
    if !context.settings.cgroups.per_qos {
        info!("Pods have no cgroups of their own (cgroupsPerQOS is false)");
        return;
    }
    let mut changes = context.admissions.changes();
    let mut back_off = BackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        changes.borrow_and_update();
        match apply(&context).await {
            Ok(()) => {
                back_off.reset();
                if changes.changed().await.is_err() {
                    return;
                }
                tokio::time::sleep(SETTLE).await;
            }
            Err(error) => {
                error!(err = %error, "Cannot set the cgroups above pods; trying again");
                tokio::time::sleep(back_off.pause()).await;
            }
        }
    }
}

async fn apply(context: &PodContext) -> Result<(), HostError> {
    let settings = &context.settings.cgroups;
    let pods = context.admissions.admitted();
    let limits = cgroups::class_limits(pods.iter().map(|pod| &**pod), &context.settings.setup);
    let all = CgroupLimits {
        unified: limits.guaranteed.unified.clone(),
        ..settings.enforced.clone().unwrap_or_else(|| limits.guaranteed.clone())
    };
    let host = &context.ports.cgroups;
    host.apply(&cgroups::all_pods(&settings.root), &all).await?;
    for (class, limits) in
        [(QosClass::Burstable, &limits.burstable), (QosClass::BestEffort, &limits.best_effort)]
    {
        host.apply(&cgroups::of_class(&settings.root, &class), limits).await?;
    }
    Ok(())
}
