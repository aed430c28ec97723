//! Reads the ConfigMaps and Secrets that a container's environment variables refer to.
//!
//! Rule: one timeout for all of them. `container-setup` gets the reason of each that could not be
//! read.

use super::ActionInputs;
use container_setup::contents::{Contents, wanted};
use pod_model::pod::Container;
use ports::{ContentError, ContentName};
use std::time::Duration;
use tokio::time::Instant;

/// For all together. A start that fails because of it is retried.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn read(action_inputs: &ActionInputs, spec: &Container) -> Contents {
    let until = Instant::now() + READ_TIMEOUT;
    let mut contents = Contents::new();
    for (kind, name) in wanted(spec) {
        let namespace = action_inputs.pod.metadata.namespace.to_string();
        let asked = ContentName { kind, namespace, name };
        let read =
            tokio::time::timeout_at(until, action_inputs.context.contents.read(&asked)).await;
        let read = read.unwrap_or_else(|_| {
            let why = format!("{asked} could not be read within {READ_TIMEOUT:?}");
            Err(ContentError::Failed(why))
        });
        contents.insert((kind, asked.name), read.map(|object| object.data.clone()));
    }
    contents
}
