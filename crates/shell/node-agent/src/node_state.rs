//! What the runtime says of itself, as pods need it: ready or why not, its name, its handlers.
//!
//! Rules: follows the runtime watch; asks for the handlers and the cgroup driver each time the
//! runtime comes back. A runtime that answers and does not tell its driver cannot be used: a guess
//! would put pods where it does not look. Only one that says it cannot tell leaves it to the
//! configuration.
//!
//! upstream: cmd/kubelet/app/server.go (getCgroupDriverFromCRI)

use crate::back_off::BackOff;
use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use pod_lifecycle::Settings;
use ports::container_runtime::{ContainerRuntimeError, RuntimeConditionKind, RuntimeStatus};
use ports::runtime_objects::HandlerFeatures;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::warn;

/// While the runtime answers other calls and not the one for its driver.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Before anything was heard.
pub(crate) fn unknown(settings: &Settings) -> NodeState {
    let why = RuntimeView::default().summary();
    NodeState {
        network_ready: Err(why.clone()),
        runtime_ready: Err(why),
        strict_groups: None,
        lifecycle: Arc::new(settings.clone()),
        handlers: Arc::default(),
    }
}

/// Follows the runtime for ever.
pub(crate) async fn follow(
    ports: PodPorts,
    mut view: watch::Receiver<RuntimeView>,
    node: watch::Sender<NodeState>,
) {
    let mut is_learned = false;
    let mut back_off = BackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut seen = view.borrow_and_update().clone();
        let mut handlers = None;
        if let RuntimeView::Answering { .. } = &seen {
            handlers = Some(self::handlers(&ports).await);
            match learn_driver(&ports).await {
                Ok(()) => is_learned = true,
                Err(why) if !is_learned => seen = RuntimeView::Silent { why },
                // What is known holds.
                Err(_) => {}
            }
        }
        let asks_again = matches!(*view.borrow(), RuntimeView::Answering { .. }) && !is_learned;
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
        if is_learned {
            back_off.reset();
        }
    }
}

/// Asks the runtime for its cgroup driver and passes it on; why it does not tell.
async fn learn_driver(ports: &PodPorts) -> Result<(), String> {
    let driver = match ports.runtime.cgroup_driver().await {
        Ok(driver) => Some(driver),
        Err(ContainerRuntimeError::Unimplemented { .. }) => None,
        Err(error) => {
            warn!(err = %error, "The container runtime does not tell its cgroup driver; no pod is started before it does");
            return Err(format!("its cgroup driver is not known: {error}"));
        }
    };
    ports.cgroups.learn_driver(driver);
    Ok(())
}

fn state(
    known: &NodeState,
    view: &RuntimeView,
    handlers: Option<Vec<HandlerFeatures>>,
) -> NodeState {
    let RuntimeView::Answering { version, status } = view else {
        let why = view.summary();
        return NodeState {
            network_ready: Err(why.clone()),
            runtime_ready: Err(why),
            ..known.clone()
        };
    };
    let handlers = handlers.unwrap_or_default();
    let recursive = handlers
        .iter()
        .map(|handler| (handler.name.clone(), handler.recursive_read_only_mounts))
        .collect();
    let lifecycle = Settings {
        runtime_name: version.runtime_name.clone(),
        recursive_read_only: recursive,
        ..(*known.lifecycle).clone()
    };
    NodeState {
        network_ready: condition(status, &RuntimeConditionKind::NetworkReady),
        runtime_ready: condition(status, &RuntimeConditionKind::RuntimeReady),
        strict_groups: Some(status.strict_groups),
        lifecycle: Arc::new(lifecycle),
        handlers: Arc::new(handlers),
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

async fn handlers(ports: &PodPorts) -> Vec<HandlerFeatures> {
    ports.runtime.handlers().await.unwrap_or_else(|error| {
        warn!(err = %error, "The container runtime does not tell what its handlers can do");
        Vec::new()
    })
}
