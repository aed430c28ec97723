//! What the runtime says of itself, as pods need it: ready or why not, its name, its handlers.
//!
//! Rule: follows the runtime watch; asks for the handlers once each time the runtime comes back.

use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use pod_lifecycle::Settings;
use ports::container_runtime::{RuntimeConditionKind, RuntimeStatus};
use ports::runtime_objects::HandlerFeatures;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

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
    loop {
        let seen = view.borrow_and_update().clone();
        let handlers = match &seen {
            RuntimeView::Answering { .. } => Some(handlers(&ports).await),
            _ => None,
        };
        node.send_if_modified(|known| {
            let next = state(known, &seen, handlers);
            let changed = next != *known;
            *known = next;
            changed
        });
        if view.changed().await.is_err() {
            return;
        }
    }
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
