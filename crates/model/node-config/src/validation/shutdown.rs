//! Rules about how pods are terminated and restarted: the node's shutdown, the crash loop's cap.

use super::{ValidationFindings, ValidationInput};
use crate::feature_gates::Gate;
use pod_model::GoDuration;

const SECOND: i64 = 1_000_000_000;

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    grace_periods(input, findings);
    grace_by_priority(input, findings);
    crash_loop(input, findings);
}

fn grace_periods(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let all = input.settings.shutdown_grace_period;
    let critical = input.settings.shutdown_grace_period_critical_pods;
    let periods = [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)];
    if !input.gate(Gate::GracefulNodeShutdown) {
        for (field, period) in periods {
            if period.as_nanos() > 0 {
                findings.refuse(field, period, "needs the feature gate GracefulNodeShutdown");
            }
        }
        return;
    }
    for (field, period) in periods {
        if period.as_nanos() != 0 && period.as_nanos() < SECOND {
            findings.refuse(field, period, "must be zero, or 1s or more");
        }
    }
    if critical > all {
        findings.refuse(
            "shutdownGracePeriodCriticalPods",
            critical,
            format!("must not be longer than shutdownGracePeriod, which is {all}"),
        );
    }
}

fn grace_by_priority(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "shutdownGracePeriodByPodPriority";
    let settings = input.settings;
    let count = settings.shutdown_grace_period_by_pod_priority.len();
    if count == 0 {
        return;
    }
    let entries = format!("{count} entries");
    if !input.gate(Gate::GracefulNodeShutdownBasedOnPodPriority) {
        findings.refuse(
            FIELD,
            entries,
            "needs the feature gate GracefulNodeShutdownBasedOnPodPriority",
        );
    } else if positive(settings.shutdown_grace_period)
        || positive(settings.shutdown_grace_period_critical_pods)
    {
        findings.refuse(
            FIELD,
            entries,
            "cannot be combined with shutdownGracePeriod or shutdownGracePeriodCriticalPods",
        );
    }
}

fn positive(period: GoDuration) -> bool {
    period.as_nanos() > 0
}

fn crash_loop(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    let cap = input.settings.crash_loop_back_off.max_container_restart_period;
    match (input.gate(Gate::KubeletCrashLoopBackOffMax), cap) {
        (true, None) => findings.refuse(
            FIELD,
            "",
            "must be set while the feature gate KubeletCrashLoopBackOffMax is on",
        ),
        (true, Some(cap)) => {
            // Compared in whole milliseconds: 300.0009s is still 300s.
            let milliseconds = cap.as_nanos() / 1_000_000;
            if !(1_000..=300_000).contains(&milliseconds) {
                findings.refuse(FIELD, cap, "must be between 1s and 300s");
            }
        }
        (false, Some(cap)) => {
            findings.refuse(FIELD, cap, "needs the feature gate KubeletCrashLoopBackOffMax");
        }
        (false, None) => {}
    }
}
