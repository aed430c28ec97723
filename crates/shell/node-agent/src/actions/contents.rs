//! Asks for the ConfigMaps and Secrets that a container's variables come from.
//!
//! Rule: all of them within one limit. What could not be had, and why, is told to `container-setup`.

use super::ActionWorld;
use container_setup::contents::{Contents, wanted};
use pod_model::pod::Container;
use ports::{ContentError, ContentName};
use std::time::Duration;
use tokio::time::Instant;

/// For all together. A start that fails for it is tried again.
const LONGEST_READ: Duration = Duration::from_secs(30);

pub(super) async fn read(world: &ActionWorld, spec: &Container) -> Contents {
    let until = Instant::now() + LONGEST_READ;
    let mut contents = Contents::new();
    for (kind, name) in wanted(spec) {
        let namespace = world.pod.metadata.namespace.to_string();
        let asked = ContentName { kind, namespace, name };
        let read = tokio::time::timeout_at(until, world.context.ports.contents.read(&asked)).await;
        let read = read.unwrap_or_else(|_| {
            let why = format!("{asked} could not be read within {LONGEST_READ:?}");
            Err(ContentError::Failed(why))
        });
        contents.insert((kind, asked.name), read);
    }
    contents
}
