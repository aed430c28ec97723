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

use crate::happening::ProbeKind;
use crate::lineup;
use crate::plan::ProbeWant;
use crate::scene::{Scene, counts_for_readiness};

pub(crate) fn wanted(scene: &Scene<'_>, status: &PodStatus) -> Vec<ProbeWant> {
    let mut wanted = Vec::new();
    if status.is_terminal() {
        return wanted;
    }
    for (list, _, container) in scene.pod.spec.all_containers() {
        if !counts_for_readiness(lineup::kind(list, container)) {
            continue;
        }
        let Some(record) = scene.lineup.latest(&container.name) else { continue };
        if record.state != ContainerState::Running || scene.lacks_post_start(container, record) {
            continue;
        }
        let memory = scene.memory(&container.name);
        let failed = memory
            .and_then(|memory| memory.failed_probe.as_ref())
            .is_some_and(|(id, _)| *id == record.id);
        let started = scene.has_started(container, record);
        for kind in ProbeKind::ALL {
            let due = match kind {
                ProbeKind::Startup => !started && !failed && !scene.over,
                ProbeKind::Liveness => started && !failed && !scene.over,
                ProbeKind::Readiness => started,
            };
            if due && kind.in_container(container).is_some() {
                let can_wait = kind != ProbeKind::Readiness
                    || memory
                        .and_then(|memory| memory.readiness.as_ref())
                        .is_some_and(|(id, _)| *id == record.id);
                wanted.push(ProbeWant {
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
