//! Which probes should be running.
//!
//! Rules: the startup probe until it has succeeded, the others only after; none for a container
//! that failed its liveness or startup probe or its postStart hook (it will be killed); while the
//! pod terminates only readiness.
//!
//! upstream: prober/worker.go, prober/prober_manager.go

use pod_model::pod::status::PodStatus;
use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::containers_by_name;
use crate::input::ProbeKind;
use crate::plan::RequiredProbe;
use crate::plan_context::{PlanContext, counts_for_readiness};

pub(crate) fn wanted(plan_context: &PlanContext<'_>, status: &PodStatus) -> Vec<RequiredProbe> {
    let mut wanted = Vec::new();
    if status.is_terminal() {
        return wanted;
    }
    for (list, _, container) in plan_context.pod.spec.all_containers() {
        if !counts_for_readiness(containers_by_name::kind(list, container)) {
            continue;
        }
        let Some(record) = plan_context.containers_by_name.latest(&container.name) else {
            continue;
        };
        if record.state != ContainerState::Running
            || plan_context.is_post_start_pending(container, record)
        {
            continue;
        }
        let memory = plan_context.memory(&container.name);
        let failed = memory
            .and_then(|memory| memory.failed_probe.as_ref())
            .is_some_and(|(id, _)| *id == record.id);
        let started = plan_context.has_started(container, record);
        for kind in ProbeKind::ALL {
            let due = match kind {
                ProbeKind::Startup => !started && !failed && !plan_context.over,
                ProbeKind::Liveness => started && !failed && !plan_context.over,
                ProbeKind::Readiness => started,
            };
            if due && kind.in_container(container).is_some() {
                let can_wait = kind != ProbeKind::Readiness
                    || memory
                        .and_then(|memory| memory.readiness.as_ref())
                        .is_some_and(|(id, _)| *id == record.id);
                wanted.push(RequiredProbe {
                    container: container.name.to_string(),
                    container_id: record.id.clone(),
                    kind,
                    started_at: ApiTime::from_nanos(record.started_at),
                    can_wait,
                });
            }
        }
    }
    wanted
}
