//! Rules about eviction: signals, thresholds, grace periods, minimum reclaim.
//!
//! upstream: pkg/kubelet/eviction/helpers.go

use std::collections::BTreeMap;

use pod_model::{GoDuration, ThresholdValue};

use super::{ValidationFindings, ValidationInput, quoted_list};
use crate::document::child_path;

const SIGNALS: &[&str] = &[
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];
const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    thresholds(HARD, &settings.eviction_hard, findings);
    thresholds(SOFT, &settings.eviction_soft, findings);
    grace_periods(&settings.eviction_soft_grace_period, findings);
    least_reclaimed(&settings.eviction_minimum_reclaim, findings);
    for (signal, threshold) in &settings.eviction_soft {
        let known = SIGNALS.contains(&signal.as_str()) && !is_ignored(threshold);
        if known && !settings.eviction_soft_grace_period.contains_key(signal) {
            findings.refuse(
                child_path(SOFT, signal),
                threshold,
                format!("needs a grace period in {GRACE} (--eviction-soft-grace-period)"),
            );
        }
    }
    for signal in ["containerfs.available", "containerfs.inodesFree"] {
        for (field, thresholds) in
            [(HARD, &settings.eviction_hard), (SOFT, &settings.eviction_soft)]
        {
            if let Some(threshold) = thresholds.get(signal) {
                findings.warn(
                    child_path(field, signal),
                    threshold,
                    "has no effect: the threshold of nodefs or imagefs is used in its place",
                );
            }
        }
    }
}

/// 0% and 100% disable a threshold.
fn is_ignored(threshold: &str) -> bool {
    matches!(threshold, "0%" | "100%")
}

/// Whether the signal is known; reports it when it is not.
fn known_signal(path: &str, signal: &str, value: &str, findings: &mut ValidationFindings) -> bool {
    let known = SIGNALS.contains(&signal);
    if !known {
        let signals = quoted_list(SIGNALS);
        findings.refuse(path, value, format!("is no eviction signal; known are {signals}"));
    }
    known
}

fn thresholds(
    field: &str,
    thresholds: &BTreeMap<String, String>,
    findings: &mut ValidationFindings,
) {
    for (signal, text) in thresholds {
        let path = child_path(field, signal);
        if !known_signal(&path, signal, text, findings) {
            continue;
        }
        if let Err(error) = ThresholdValue::parse_threshold(text) {
            findings.refuse(path, text, error.to_string());
        }
    }
}

fn grace_periods(periods: &BTreeMap<String, String>, findings: &mut ValidationFindings) {
    for (signal, text) in periods {
        let path = child_path(GRACE, signal);
        if !known_signal(&path, signal, text, findings) {
            continue;
        }
        match GoDuration::parse(text) {
            Ok(period) if period.is_negative() => {
                findings.refuse(path, text, "must not be negative");
            }
            Ok(_) => {}
            Err(error) => findings.refuse(path, text, error.to_string()),
        }
    }
}

fn least_reclaimed(amounts: &BTreeMap<String, String>, findings: &mut ValidationFindings) {
    for (signal, text) in amounts {
        let path = child_path(RECLAIM, signal);
        if !known_signal(&path, signal, text, findings) {
            continue;
        }
        if let Err(error) = ThresholdValue::parse_minimum_reclaim(text) {
            findings.refuse(path, text, error.to_string());
        }
    }
}
