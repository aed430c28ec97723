//! Reads the ConfigMaps and Secrets that a container's environment variables refer to.
//!
//! Rule: one timeout for all of them. `container-setup` gets the reason of each that could not be
//! read.

use super::ActionWorld;
use container_setup::contents::{Contents, wanted};
use pod_model::pod::Container;
use ports::{ContentError, ContentName};
use std::time::Duration;
use tokio::time::Instant;

/// For all together. A start that fails because of it is retried.
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
