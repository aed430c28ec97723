//! Results of probes: consecutive results against thresholds, and the effect of crossing one.
//!
//! Rules: a result takes effect after as many equal ones in a row as its threshold says; a
//! container that failed its liveness or startup probe stays failed (its successor begins anew); an
//! attempt that failed in itself is ignored.
//!
//! upstream: prober/worker.go, prober/prober.go

use pod_model::pod::Pod;

use crate::happening::{EventKind, ProbeKind, ProbeResult, Told};

use super::events::about_container;
use super::{PodMemory, Streak};

/// One result.
pub(super) struct Tried<'a> {
    pub(super) container: &'a str,
    pub(super) container_id: &'a str,
    pub(super) kind: ProbeKind,
    pub(super) result: &'a ProbeResult,
}

impl PodMemory {
    pub(super) fn probe(&mut self, pod: &Pod, tried: &Tried<'_>, told: &mut Told) {
        let Some(probe) = tried.kind.of(pod, tried.container) else { return };
        let mut say = |reason: &str, text: String| {
            let event = about_container(pod, tried.container, EventKind::Warning, reason, text);
            told.events.push(event);
        };
        let title = tried.kind.title();
        let success = match tried.result {
            ProbeResult::Success => true,
            ProbeResult::Warning(output) => {
                say("ProbeWarning", format!("{title} probe warning: {output}"));
                true
            }
            ProbeResult::Failure(output) => {
                say("Unhealthy", format!("{title} probe failed: {output}"));
                false
            }
            ProbeResult::Unknown(error) => {
                let text = format!("{title} probe errored and resulted in unknown state: {error}");
                say("Unhealthy", text);
                return;
            }
        };
        let threshold = if success { probe.success_threshold } else { probe.failure_threshold };
        self.count(tried, success, u32::try_from(threshold).unwrap_or(0).max(1));
    }

    fn count(&mut self, tried: &Tried<'_>, success: bool, threshold: u32) {
        let id = tried.container_id;
        let decided = self.container(tried.container).is_some_and(|memory| {
            let passed = memory.startup_passed.as_deref() == Some(id);
            let failed = memory.failed_probe.as_ref().is_some_and(|(failed, _)| failed == id);
            failed || (passed && tried.kind == ProbeKind::Startup)
        });
        if decided && tried.kind != ProbeKind::Readiness {
            return;
        }
        let streak = self.passing_mut(tried.container).streaks.entry(tried.kind).or_default();
        if streak.container_id == id && streak.success == success {
            streak.length = streak.length.saturating_add(1);
        } else {
            *streak = Streak { container_id: id.to_owned(), success, length: 1 };
        }
        if streak.length < threshold {
            return;
        }
        let memory = self.container_mut(tried.container);
        match (tried.kind, success) {
            (ProbeKind::Readiness, _) => memory.readiness = Some((id.to_owned(), success)),
            (ProbeKind::Startup, true) => memory.startup_passed = Some(id.to_owned()),
            (ProbeKind::Liveness | ProbeKind::Startup, false) => {
                memory.failed_probe = Some((id.to_owned(), tried.kind));
            }
            (ProbeKind::Liveness, true) => {}
        }
    }
}
