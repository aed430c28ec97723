//! Why the runtime keeps the node from being ready, in the reference's words and order.
//!
//! Rule: a runtime that has not answered, or was not ready, for less than half a minute is not down;
//! what it last said of itself and its network stays until it answers again. One whose pods cannot
//! be listed for three minutes is reported beside that: an answer about itself shows nothing of them.
//!
//! upstream: pkg/kubelet/runtime.go, kubelet.go (updateRuntimeUp), pleg/generic.go (Healthy)

use std::time::Duration;

use pod_model::GoDuration;

#[cfg(test)]
mod tests;

/// How long a runtime may not answer or not be ready before the node reports it down.
const RUNTIME_DOWN_AFTER: Duration = Duration::from_secs(30);
/// How long its pods may not be listed.
const RELIST_THRESHOLD: Duration = Duration::from_secs(180);

/// What is known of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeObservation {
    /// Since it last answered that it is ready; absent while it never has.
    pub ready_ago: Option<Duration>,
    /// Its last answer; absent while it has never answered.
    pub conditions: Option<ObservedRuntimeConditions>,
    pub relist: RelistHealth,
}

/// Its conditions, as far as it reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedRuntimeConditions {
    pub ready: Option<ObservedRuntimeCondition>,
    pub network: Option<ObservedRuntimeCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRuntimeCondition {
    pub met: bool,
    /// Such as `NetworkReady=false reason:NetworkPluginNotReady message:…`.
    pub text: String,
}

/// Whether the runtime's pods can be listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelistHealth {
    #[default]
    NeverListed,
    /// For how long no listing has succeeded that was due; zero if none is.
    LastSeen(Duration),
}

/// The errors of the runtime, then those of its network.
pub fn runtime_errors(seen: &RuntimeObservation) -> Vec<String> {
    let mut errors = Vec::new();
    match seen.ready_ago {
        None => {
            errors.push("container runtime status check may not have completed yet".to_owned());
        }
        Some(ago) if ago >= RUNTIME_DOWN_AFTER => {
            errors.push("container runtime is down".to_owned());
        }
        Some(_) => {}
    }
    errors.extend(relist_error(seen.relist));
    let Some(conditions) = &seen.conditions else {
        errors.push("network state unknown".to_owned());
        return errors;
    };
    let ObservedRuntimeConditions { ready, network } = conditions;
    for (name, condition) in [("container runtime", ready), ("container runtime network", network)]
    {
        match condition {
            Some(condition) if condition.met => {}
            Some(condition) => errors.push(format!("{name} not ready: {}", condition.text)),
            None => errors.push(format!("{name} not ready: <nil>")),
        }
    }
    errors
}

fn relist_error(relist: RelistHealth) -> Option<String> {
    let go = |duration: Duration| {
        GoDuration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    };
    match relist {
        RelistHealth::NeverListed => {
            Some("PLEG is not healthy: pleg has yet to be successful".to_owned())
        }
        RelistHealth::LastSeen(ago) if ago > RELIST_THRESHOLD => Some(format!(
            "PLEG is not healthy: pleg was last seen active {} ago; threshold is {}",
            go(ago),
            go(RELIST_THRESHOLD)
        )),
        RelistHealth::LastSeen(_) => None,
    }
}
