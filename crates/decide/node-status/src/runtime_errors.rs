//! Why the runtime keeps the node from being ready, in the reference's words and order.
//!
//! Rule: a runtime that has not answered for less than half a minute keeps its last state.
//!
//! upstream: pkg/kubelet/runtime.go, kubelet.go (updateRuntimeUp)

use std::time::Duration;

/// How long a runtime may not answer before the node reports it down.
const RUNTIME_DOWN_AFTER: Duration = Duration::from_secs(30);

/// The last answer of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeObservation {
    /// Absent while it has never answered.
    pub answered_ago: Option<Duration>,
    pub ready: Option<ObservedRuntimeCondition>,
    pub network: Option<ObservedRuntimeCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRuntimeCondition {
    pub met: bool,
    /// Such as `NetworkReady=false reason:NetworkPluginNotReady message:…`.
    pub text: String,
}

/// The errors of the runtime, then those of its network.
pub fn runtime_errors(seen: &RuntimeObservation) -> Vec<String> {
    let mut errors = Vec::new();
    let Some(ago) = seen.answered_ago else {
        errors.push("container runtime status check may not have completed yet".to_owned());
        errors.push("network state unknown".to_owned());
        return errors;
    };
    if ago >= RUNTIME_DOWN_AFTER {
        errors.push("container runtime is down".to_owned());
    }
    for (name, condition) in
        [("container runtime", &seen.ready), ("container runtime network", &seen.network)]
    {
        match condition {
            Some(condition) if condition.met => {}
            Some(condition) => errors.push(format!("{name} not ready: {}", condition.text)),
            None => errors.push(format!("{name} not ready: <nil>")),
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_error_has_its_message() {
        let condition =
            |met, text: &str| Some(ObservedRuntimeCondition { met, text: text.to_owned() });
        let well = RuntimeObservation {
            answered_ago: Some(Duration::ZERO),
            ready: condition(true, "r"),
            network: condition(true, "n"),
        };
        let rows: [(RuntimeObservation, &[&str]); 6] = [
            (well.clone(), &[]),
            (
                RuntimeObservation::default(),
                &[
                    "container runtime status check may not have completed yet",
                    "network state unknown",
                ],
            ),
            (
                RuntimeObservation { answered_ago: Some(Duration::from_secs(29)), ..well.clone() },
                &[],
            ),
            (
                RuntimeObservation { answered_ago: Some(Duration::from_secs(30)), ..well.clone() },
                &["container runtime is down"],
            ),
            (
                RuntimeObservation {
                    network: condition(false, "NetworkReady=false reason:R message:m"),
                    ..well.clone()
                },
                &["container runtime network not ready: NetworkReady=false reason:R message:m"],
            ),
            (
                RuntimeObservation { ready: None, network: None, ..well },
                &[
                    "container runtime not ready: <nil>",
                    "container runtime network not ready: <nil>",
                ],
            ),
        ];
        for (seen, expected) in rows {
            assert_eq!(runtime_errors(&seen), expected, "{seen:?}");
        }
    }
}
