//! Results of probes: consecutive results against thresholds, and the effect of crossing one.
//!
//! Rules: a result takes effect after as many equal ones in a row as its threshold says; a
//! container that failed its liveness or startup probe stays failed (its successor begins anew); an
//! attempt that failed in itself is ignored.
//!
//! upstream: prober/worker.go, prober/prober.go

use pod_model::pod::Pod;

use crate::input::{EventType, PodEffects, ProbeKind, ProbeResult};

use super::events::about_container;
use super::{PodMemory, Streak};

/// One result.
pub(super) struct ProbeAttempt<'a> {
    pub(super) container: &'a str,
    pub(super) container_id: &'a str,
    pub(super) kind: ProbeKind,
    pub(super) result: &'a ProbeResult,
}

impl PodMemory {
    pub(super) fn probe(
        &mut self,
        pod: &Pod,
        probe_attempt: &ProbeAttempt<'_>,
        emitted: &mut PodEffects,
    ) {
        let Some(probe) = probe_attempt.kind.of(pod, probe_attempt.container) else { return };
        let mut emit_warning = |reason: &str, text: String| {
            let event =
                about_container(pod, probe_attempt.container, EventType::Warning, reason, text);
            emitted.events.push(event);
        };
        let title = probe_attempt.kind.title();
        let success = match probe_attempt.result {
            ProbeResult::Success => true,
            ProbeResult::Warning(output) => {
                emit_warning("ProbeWarning", format!("{title} probe warning: {output}"));
                true
            }
            ProbeResult::Failure(output) => {
                emit_warning("Unhealthy", format!("{title} probe failed: {output}"));
                false
            }
            ProbeResult::Unknown(error) => {
                let text = format!("{title} probe errored and resulted in unknown state: {error}");
                emit_warning("Unhealthy", text);
                return;
            }
        };
        let threshold = if success { probe.success_threshold } else { probe.failure_threshold };
        self.count(probe_attempt, success, u32::try_from(threshold).unwrap_or(0).max(1));
    }

    fn count(&mut self, probe_attempt: &ProbeAttempt<'_>, success: bool, threshold: u32) {
        let id = probe_attempt.container_id;
        let decided = self.container(probe_attempt.container).is_some_and(|memory| {
            let passed = memory.startup_passed.as_deref() == Some(id);
            let failed = memory.failed_probe.as_ref().is_some_and(|(failed, _)| failed == id);
            failed || (passed && probe_attempt.kind == ProbeKind::Startup)
        });
        if decided && probe_attempt.kind != ProbeKind::Readiness {
            return;
        }
        let streak = self
            .transient_mut(probe_attempt.container)
            .streaks
            .entry(probe_attempt.kind)
            .or_default();
        if streak.container_id == id && streak.success == success {
            streak.length = streak.length.saturating_add(1);
        } else {
            *streak = Streak { container_id: id.to_owned(), success, length: 1 };
        }
        if streak.length < threshold {
            return;
        }
        let memory = self.container_mut(probe_attempt.container);
        match (probe_attempt.kind, success) {
            (ProbeKind::Readiness, _) => memory.readiness = Some((id.to_owned(), success)),
            (ProbeKind::Startup, true) => memory.startup_passed = Some(id.to_owned()),
            (ProbeKind::Liveness | ProbeKind::Startup, false) => {
                memory.failed_probe = Some((id.to_owned(), probe_attempt.kind));
            }
            (ProbeKind::Liveness, true) => {}
        }
    }
}
