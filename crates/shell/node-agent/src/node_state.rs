//! The runtime's state as pods need it: ready or why not, its name, its handlers.
//!
//! Rules: follows the runtime watch; reads the handlers and the cgroup driver each time the runtime
//! comes back. Handler features stay known until the runtime returns others: a failed read keeps
//! them and is retried. A runtime that answers but does not return its driver cannot be used: a
//! guess would put pods into cgroups where it does not look. Only a runtime without that call
//! leaves the driver to the configuration.
//!
//! upstream: cmd/kubelet/app/server.go (getCgroupDriverFromCRI)

use crate::back_off::ExponentialBackOff;
use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use pod_lifecycle::PodLifecycleSettings;
use ports::container_runtime::{ContainerRuntimeError, RuntimeConditionKind, RuntimeStatus};
use ports::runtime_objects::HandlerFeatures;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::warn;

/// While the runtime answers other calls but not those for its driver and its handlers.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// The state before the runtime has answered.
pub(crate) fn initial_state(settings: &PodLifecycleSettings) -> NodeState {
    let why = RuntimeView::default().summary();
    NodeState {
        network_ready: Err(why.clone()),
        runtime_ready: Err(why),
        strict_supplemental_groups: None,
        lifecycle: Arc::new(settings.clone()),
        handlers: Arc::default(),
    }
}

/// Follows the runtime for ever.
pub(crate) async fn update_node_state(
    ports: PodPorts,
    mut view: watch::Receiver<RuntimeView>,
    node: watch::Sender<NodeState>,
) {
    let mut is_learned = false;
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut seen = view.borrow_and_update().clone();
        let mut handlers = None;
        if let RuntimeView::Responding { .. } = &seen {
            handlers = self::handlers(&ports).await;
            match learn_driver(&ports).await {
                Ok(()) => is_learned = true,
                Err(why) if !is_learned => seen = RuntimeView::Unreachable { why },
                // Keep what is known.
                Err(_) => {}
            }
        }
        let is_answering = matches!(*view.borrow(), RuntimeView::Responding { .. });
        let asks_again = is_answering && (!is_learned || handlers.is_none());
        if !asks_again {
            back_off.reset();
        }
        node.send_if_modified(|known| {
            let next = state(known, &seen, handlers);
            let changed = next != *known;
            *known = next;
            changed
        });
        tokio::select! {
            changed = view.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(back_off.pause()), if asks_again => {}
        }
    }
}

/// Reads the runtime's cgroup driver and passes it on.
async fn learn_driver(ports: &PodPorts) -> Result<(), String> {
    let driver = match ports.runtime.cgroup_driver().await {
        Ok(driver) => Some(driver),
        Err(ContainerRuntimeError::Unimplemented { .. }) => None,
        Err(error) => {
            warn!(err = %error, "The container runtime does not report its cgroup driver; no pod is started before it does");
            return Err(format!("its cgroup driver is not known: {error}"));
        }
    };
    ports.cgroups.set_driver(driver);
    Ok(())
}

fn state(
    known: &NodeState,
    view: &RuntimeView,
    handlers: Option<Vec<HandlerFeatures>>,
) -> NodeState {
    let RuntimeView::Responding { version, status } = view else {
        let why = view.summary();
        return NodeState {
            network_ready: Err(why.clone()),
            runtime_ready: Err(why),
            ..known.clone()
        };
    };
    let handlers = handlers.map_or_else(|| known.handlers.clone(), Arc::new);
    let recursive = handlers
        .iter()
        .map(|handler| (handler.name.clone(), handler.recursive_read_only_mounts))
        .collect();
    let lifecycle = PodLifecycleSettings {
        runtime_name: version.runtime_name.clone(),
        recursive_read_only: recursive,
        ..(*known.lifecycle).clone()
    };
    NodeState {
        network_ready: condition(status, &RuntimeConditionKind::NetworkReady),
        runtime_ready: condition(status, &RuntimeConditionKind::RuntimeReady),
        strict_supplemental_groups: Some(status.strict_supplemental_groups),
        lifecycle: Arc::new(lifecycle),
        handlers,
    }
}

fn condition(status: &RuntimeStatus, kind: &RuntimeConditionKind) -> Result<(), String> {
    match status.condition(kind) {
        Some(condition) if condition.met => Ok(()),
        Some(condition) => Err(format!(
            "container runtime {kind}: false, reason: {}, message: {}",
            condition.reason, condition.message
        )),
        None => Err(format!("container runtime does not report {kind}")),
    }
}

/// None if the runtime does not return them.
async fn handlers(ports: &PodPorts) -> Option<Vec<HandlerFeatures>> {
    let answer = ports.runtime.handlers().await.map_err(|error| {
        warn!(err = %error, "The container runtime does not report its handlers' features");
    });
    answer.ok()
}

#[cfg(test)]
mod tests;
